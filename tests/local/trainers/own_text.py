"""A task of text: the next byte, from the three before it. docs/trainers.md shows how it is run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.data import samples
from trainers.data.dataset import Dataset, DatasetRequest
from trainers.data.images import Samples
from trainers.data.manifest import Entry, read_manifest
from trainers.serving.model_folder import Model
from trainers.tasks.task import Evaluation, HeldOut, Task

BYTES = 256
CONTEXT = 3
LENGTH = 16  # bytes of a sample that are predicted


class NextByte(Task):
    """Samples are pieces of text, shape (N, CONTEXT + LENGTH)."""

    def prepare(self, samples: Samples, device: torch.device) -> tuple[tuple[Any, ...], Any]:
        text = samples.inputs.to(device).long()
        return (text[:, :-1],), text[:, CONTEXT:]

    def loss(self, output: Any, targets: Any, *, label_smoothing: float) -> Tensor:
        del label_smoothing
        return functional.cross_entropy(output.mT, targets, reduction="sum") / LENGTH

    def evaluate(self, model: Model, held_out: HeldOut, classes: Sequence[str]) -> Evaluation:
        del classes
        sums = torch.zeros(2, dtype=torch.float64)
        model.network.eval()
        with torch.inference_mode():
            for numbers, batch in held_out.passes(at_once=64):
                arguments, targets = self.prepare(batch, held_out.world.device)
                output: Tensor = model.network(*arguments)[: len(numbers)]
                targets = targets[: len(numbers)]
                sums[0] += self.loss(output, targets, label_smoothing=0).cpu()
                sums[1] += (output.argmax(dim=2) == targets).sum().cpu() / LENGTH
        loss, right = (held_out.sum(sums) / len(held_out)).tolist()
        scores = {"accuracy": right, "perplexity": float(torch.tensor(loss).exp())}
        return Evaluation(headline_name="accuracy", scores=scores, loss=loss)


class Trigrams(nn.Module):
    def __init__(self, *, channels: int, classes: int) -> None:
        super().__init__()
        del channels  # of images
        self.embedding = nn.Embedding(classes, 16)
        self.context = nn.Conv1d(16, 64, CONTEXT)
        self.head = nn.Linear(64, classes)

    def forward(self, text: Tensor) -> Tensor:
        """Bytes, shape (B, L), to logits, shape (B, L - CONTEXT + 1, BYTES)."""
        features = self.context(self.embedding(text).mT).relu()
        return self.head(features.mT)


def pieces(request: DatasetRequest) -> Dataset:
    """The files of a manifest, cut into pieces; about one file in five is held out."""
    assert request.data is not None
    assert request.manifest is not None
    manifest = read_manifest(request.manifest, request.dataset_version)
    files, unreadable = samples.decode_all(request.data, manifest.entries, _pieces)
    samples.check_bad_fraction(unreadable, len(manifest.entries), request.max_bad_fraction)
    train, held_out = (_samples(side) for side in samples.split(files))
    return Dataset(
        version=manifest.version,
        classes=tuple(str(number) for number in range(BYTES)),
        train=train,
        held_out=held_out,
        held_out_as=lambda _: held_out,
        fingerprint=samples.fingerprint(files),
        task=NextByte(),
    )


def _pieces(_: Entry, content: bytes) -> Tensor:
    text = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    return text.unfold(0, CONTEXT + LENGTH, LENGTH)


def _samples(files: Sequence[samples.Decoded[Tensor]]) -> Samples:
    text = torch.cat([file.value for file in files])
    return Samples(inputs=text, labels=torch.zeros(len(text), dtype=torch.int64))
