"""Each task of docs/operators.md is done with the command line only and with the page only."""

from __future__ import annotations

import re
from pathlib import Path

from tests.local.operators.command_steps import COMMANDS, SCRIPT

TASKS = {
    1: "What failed last night, and why?",
    2: "Stop the bleeding",
    3: "Let a held batch be trained on",
    4: "Redrive all that failed by quota",
    5: "Try a failed run again, or throw its message away",
    6: "Is my file in the model?",
    7: "Roll the champion back",
    8: "Why does this run wait, and why does nothing happen in this pipeline?",
    9: "What did it cost?",
    10: "Is everything in order, and who did what?",
    11: "Train on the same data again",
    12: "Forget a person's files",
    13: "What would another rule have done?",
    14: "Why was a better model kept back?",
    15: "What is the running job doing?",
}


def test_the_script_has_these_tasks_and_each_is_done_both_ways() -> None:
    headings = re.findall(r"^### (\d+)\. (.*)$", SCRIPT, re.MULTILINE)
    assert {int(number): title for number, title in headings} == TASKS
    assert set(COMMANDS) == {str(number) for number in TASKS}
    for way in ("command", "page"):
        tests = Path(__file__).with_name(f"test_tasks_by_{way}.py").read_text("utf-8")
        done = re.findall(rf"^async def test_(\d+)_{way}_", tests, re.MULTILINE)
        assert set(done) == set(COMMANDS), way
