"""Pictures for people, as PNG: the learning curve and the confusion matrix.

matplotlib is imported when one is drawn, and only its drawing part: no window, no global state.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from trainers.reports.learning_curve import LearningCurve
from trainers.tasks.classification import most_confused

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DOTS_PER_INCH = 150
_NAMED_CLASSES = 60  # more names do not fit beside a matrix
_COUNTED_CLASSES = 25  # more numbers do not fit into its cells
_CELLS = 250  # more in a row are too small to be seen
_CONFUSIONS = 12  # the most frequent ones are listed
_NAME_LENGTH = 15
_UPRIGHT_LETTERS = 30  # of all names under a matrix: more do not fit side by side
_SMOOTHED_OVER = 0.05  # of the points: the line through the batches' losses,
_SMOOTHED_AT_LEAST = 5  # if it is so many
_DARK = 0.5  # of the colour scale: numbers on darker cells are white
_BLUE, _ORANGE, _GREY = "#1f5fa8", "#d9731a", "#8a8a8a"


def learning_curve_figure(curve: LearningCurve, *, title: str) -> Figure:
    """Losses, held-out accuracy (where there is some) and learning rate over the steps."""
    figure = _figure(8.0, 6.4)
    loss, rate = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    steps = np.array([point.step for point in curve.train])
    losses = np.array([point.loss for point in curve.train])
    window = max(1, round(_SMOOTHED_OVER * len(losses)))
    smooth = window >= _SMOOTHED_AT_LEAST
    loss.plot(
        *(steps, losses),
        color=_BLUE,
        alpha=0.3 if smooth else 1.0,
        linewidth=0.8 if smooth else 1.6,
        marker="o" if len(losses) == 1 else None,
        label="training, single batches",
    )
    if smooth:
        label = f"training, mean of {window} points"
        loss.plot(steps, _running_mean(losses, window), color=_BLUE, linewidth=1.8, label=label)
    if losses.size and losses.min() > 0:
        loss.set_yscale("log")
        _plain_numbers(loss)
    if curve.held_out:
        _draw_held_out(loss, curve)
    loss.set_ylabel("cross-entropy, nats")
    loss.set_title(title)
    loss.legend(loc="upper right", frameon=True, framealpha=0.9)
    rate.plot(steps, [point.learning_rate for point in curve.train], color=_GREY, linewidth=1.4)
    rate.set_ylabel("learning rate")
    rate.set_ylim(bottom=0)
    rate.set_xlabel("step (batches done)")
    for axes in (loss, rate):
        axes.grid(visible=True, alpha=0.25)
    return figure


def confusion_figure(confusion: Tensor, classes: Sequence[str], *, title: str) -> Figure:
    """True classes by predicted ones, and beside them the most frequent confusions.

    Args:
        confusion: counts of shape (classes, classes).
        classes: their names, in the matrix's order.
        title: of the picture.
    """
    counts = confusion.numpy()
    size = len(classes)
    side = float(np.clip(2.5 + 0.34 * size, 4.5, 12.0))
    figure = _figure(side + 5.2, side + 0.6)
    figure.suptitle(title)
    matrix, listed = figure.subplots(1, 2, width_ratios=[side + 1.4, 3.8])
    percent = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    each = _draw_matrix(figure, matrix, percent)
    kind = "class" if size <= _NAMED_CLASSES else "class, by its position among the names"
    if each > 1:
        kind += f" (a cell: the largest of {each} x {each})"
    matrix.set_xlabel(f"predicted {kind}")
    matrix.set_ylabel(f"true {kind}")
    if size <= _NAMED_CLASSES:
        names = [_short(name) for name in classes]
        upright = max(map(len, names)) * size > _UPRIGHT_LETTERS
        matrix.set_xticks(range(size), names, rotation=90 if upright else 0)
        matrix.set_yticks(range(size), names)
    if size > _COUNTED_CLASSES:
        matrix.tick_params(labelsize=7)
    else:
        _write_counts(matrix, counts, percent)
    _list_confusions(listed, counts, classes)
    return figure


def png(figure: Figure) -> bytes:
    """The picture as a PNG file."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    return stream.getvalue()


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure  # noqa: PLC0415  # half a second, where one is drawn

    return Figure(figsize=(width, height), dpi=_DOTS_PER_INCH, layout="constrained")


def _running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """The mean of each value and up to `window` - 1 before it."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - window)
    return (sums[ends] - sums[starts]) / (ends - starts)


def _plain_numbers(axes: Axes) -> None:
    """0.5, not 5 x 10^-1, on a logarithmic scale; fewer of them where it spans much."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter  # noqa: PLC0415  # as in _figure

    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _draw_held_out(axes: Axes, curve: LearningCurve) -> None:
    steps = [point.step for point in curve.held_out]
    losses = [point.loss for point in curve.held_out]
    axes.plot(steps, losses, color=_ORANGE, marker="o", linewidth=1.8, label="held-out images")
    best = max(curve.held_out, key=lambda point: point.accuracy)
    last = curve.held_out[-1]
    text = f"held-out accuracy {last.accuracy:.1%}"
    if best.accuracy > last.accuracy:
        text += f" (best {best.accuracy:.1%} at step {best.step:,})"
    axes.text(0.02, 0.04, text, transform=axes.transAxes, color=_ORANGE)


def _draw_matrix(figure: Figure, axes: Axes, percent: np.ndarray) -> int:
    """Draw the matrix; returns how many classes, each way, one cell shows."""
    from matplotlib.colors import PowerNorm  # noqa: PLC0415  # as above

    size = len(percent)
    each = -(-size // _CELLS)
    cells = _pooled(percent, each)
    end = len(cells) * each - 0.5
    image = axes.imshow(
        cells,
        cmap="Blues",
        norm=PowerNorm(0.5, vmin=0, vmax=100),  # the root brings out rare confusions
        interpolation="nearest",
        extent=(-0.5, end, end, -0.5),
    )
    axes.set_xlim(-0.5, size - 0.5)
    axes.set_ylim(size - 0.5, -0.5)
    bar = figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03, ticks=[0, 1, 5, 25, 50, 100])
    bar.set_label("% of the true class's images")
    return each


def _pooled(matrix: np.ndarray, each: int) -> np.ndarray:
    """The largest of each `each` x `each` cells, so that none is lost."""
    padding = -len(matrix) % each
    padded = np.pad(matrix, ((0, padding), (0, padding)))
    rows = len(padded) // each
    return padded.reshape(rows, each, rows, each).max(axis=(1, 3))


def _write_counts(axes: Axes, counts: np.ndarray, percent: np.ndarray) -> None:
    size = len(counts)
    longest = len(f"{counts.max():d}")
    for row, column in np.argwhere(counts > 0):
        axes.text(
            *(column, row),
            str(counts[row, column]),
            ha="center",
            va="center",
            fontsize=min(9.0, 24 / longest) if size > 4 else 11,  # noqa: PLR2004  # room for more
            color="white" if (percent[row, column] / 100) ** 0.5 > _DARK else "black",
        )


def _list_confusions(axes: Axes, counts: np.ndarray, classes: Sequence[str]) -> None:
    axes.axis("off")
    total = int(counts.sum())
    right = int(np.trace(counts))
    lines = [f"{total:,} images", f"{right:,} right ({right / max(total, 1):.1%})", ""]
    found = [
        f"{images:>6,}  {_short(classes[row])} → {_short(classes[column])}"
        for row, column, images in most_confused(torch.from_numpy(counts), _CONFUSIONS)
    ]
    lines += ["most confused", "images  true → predicted", *found] if found else ["no confusion"]
    text = axes.text(
        *(0, 1, "\n".join(lines)),
        va="top",
        family="monospace",
        fontsize=9,
        linespacing=1.5,
        transform=axes.transAxes,
    )
    text.set_in_layout(False)  # else the matrix would make room for it


def _short(name: str) -> str:
    """The beginning and the end of a long name: names differ there."""
    if len(name) > _NAME_LENGTH:
        half = (_NAME_LENGTH - 1) // 2
        name = f"{name[:half]}…{name[-half:]}"
    return name.replace("$", r"\$")  # matplotlib reads text between two of them as a formula
