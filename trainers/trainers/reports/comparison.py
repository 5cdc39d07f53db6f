"""comparison.json: the model and the champion, sample by sample, on the held-out data.

Landfall judges by it whether a lead may be luck, and which slices fell: docs/operations.md.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trainers.tasks.task import Evaluation

LISTED_LABELS = 100  # Landfall reads at most 64 KiB
NAME_CHARACTERS = 60
_KINDS = ("both_wrong", "only_champion", "only_challenger", "both_right")


def compare(
    model: Evaluation, champion: Evaluation, classes: Sequence[str]
) -> dict[str, Any] | None:
    """The content of comparison.json; None if the task has no scores of samples.

    The slices are the labels. Above `LISTED_LABELS`, those with the fewest samples are one slice.
    """
    ours, theirs = model.sample_scores, champion.sample_scores
    if ours is None or theirs is None:
        return None
    pairs = torch.stack([ours, theirs]).double()
    are_counts = bool(((pairs == 0) | (pairs == 1)).all())

    def tally(which: Tensor) -> dict[str, float]:
        own, other = pairs[:, which]
        if are_counts:
            numbers = torch.bincount((2 * own + other).long(), minlength=4).tolist()
            return dict(zip(_KINDS, numbers, strict=True))
        change = own - other
        sums = {"difference": change.sum().item(), "squares": change.square().sum().item()}
        return {"samples": len(change), **sums}

    everything = torch.arange(pairs.shape[1])
    slices: dict[str, Tensor] = {}
    if model.labels is not None:
        sizes = torch.bincount(model.labels, minlength=len(classes))
        order = sizes.argsort(descending=True, stable=True).tolist()
        members: dict[str, list[int]] = defaultdict(list)
        for place, number in enumerate(order):
            # Names that are cut may be equal.
            name = re.sub(r"[\x00-\x1f\x7f]", " ", f"label:{classes[number]}")[:NAME_CHARACTERS]
            members[name if place < LISTED_LABELS else "label:(others)"].append(number)
        for name, numbers in members.items():
            which = torch.isin(model.labels, torch.tensor(numbers)).nonzero().flatten()
            slices[name] = which
    return {
        "metric": model.headline_name,
        "whole": tally(everything),
        "slices": {name: tally(which) for name, which in slices.items()},
    }
