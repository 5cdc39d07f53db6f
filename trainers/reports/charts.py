"""Pictures for people, as PNG: the learning curve and the confusion matrix.

matplotlib is imported when one is drawn, and only its drawing part: no window, no global state.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from trainers.reports.learning_curve import LearningCurve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DOTS_PER_INCH = 150
_NAMED_CLASSES = 60  # more names do not fit beside a matrix
_COUNTED_CLASSES = 25  # more numbers do not fit into its cells
_DARK = 10  # percent: numbers on darker cells are white


def learning_curve_figure(curve: LearningCurve, *, title: str) -> Figure:
    """Losses and learning rate over the steps, and the last held-out score."""
    figure = _figure(8.0, 6.4)
    loss, rate = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    steps = [point["step"] for point in curve.train]
    losses = [point["loss"] for point in curve.train]
    loss.plot(steps, losses, marker="." if len(losses) == 1 else None, label="training")
    if losses and min(losses) > 0:
        loss.set_yscale("log")
    if curve.held_out:
        loss.plot(
            [point["step"] for point in curve.held_out],
            [point["loss"] for point in curve.held_out],
            marker="o",
            label=f"held out (last score {curve.held_out[-1]['accuracy']:.1%})",
        )
    loss.set(title=title, ylabel="loss")
    loss.legend(loc="upper right")
    rate.plot(steps, [point["learning_rate"] for point in curve.train])
    rate.set(xlabel="step (batches done)", ylabel="learning rate")
    return figure


def confusion_figure(confusion: Tensor, classes: Sequence[str], *, title: str) -> Figure:
    """True classes by predicted ones.

    Args:
        confusion: counts of shape (classes, classes).
        classes: their names, in the matrix's order.
        title: of the picture.
    """
    counts = confusion.numpy()
    size = len(classes)
    side = float(np.clip(2.5 + 0.34 * size, 4.5, 12.0))
    figure = _figure(side + 1.4, side + 0.6)
    matrix = figure.subplots()
    percent = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    image = matrix.imshow(percent, cmap="Blues", norm="symlog", vmin=0, vmax=100)
    figure.colorbar(image, ax=matrix, label="% of the true class's images")
    matrix.set(title=title, xlabel="predicted class", ylabel="true class")
    if size <= _NAMED_CLASSES:
        # matplotlib reads text between two dollars as a formula.
        names = [name.replace("$", r"\$") for name in classes]
        matrix.set_xticks(range(size), names, rotation=90)
        matrix.set_yticks(range(size), names)
    if size <= _COUNTED_CLASSES:
        for row, column in np.argwhere(counts > 0):
            color = "white" if percent[row, column] > _DARK else "black"
            text = str(counts[row, column])
            matrix.text(column, row, text, ha="center", va="center", fontsize=7, color=color)
    return figure


def png(figure: Figure) -> bytes:
    """The picture as a PNG file."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    return stream.getvalue()


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure  # noqa: PLC0415  # half a second, where one is drawn

    return Figure(figsize=(width, height), dpi=_DOTS_PER_INCH, layout="constrained")
