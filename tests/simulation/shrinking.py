"""Makes a story that fails shorter: drops items as long as the same thing goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.simulation.story import Story

RUNS_LIMIT = 200


def shrink(story: Story, fails: Callable[[Story], bool], *, runs: int = RUNS_LIMIT) -> Story:
    """The story with as few items as `runs` tries allow, of which none can be left out.

    Halves are tried first, then quarters, then single items.
    """
    size = max(len(story.items) // 2, 1)
    while runs > 0:
        position, dropped = 0, False
        while position < len(story.items) and runs > 0:
            items = story.items[:position] + story.items[position + size :]
            shorter = replace(story, items=items)
            runs -= 1
            if fails(shorter):
                story, dropped = shorter, True
            else:
                position += size
        if size == 1 and not dropped:
            break
        size = max(size // 2, 1)
    return story
