from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from trainers.reports.charts import confusion_figure, learning_curve_figure, png
from trainers.reports.learning_curve import HeldOutPoint, LearningCurve, TrainPoint


def curve(points: int, *held_out: float) -> LearningCurve:
    return LearningCurve(
        train=[
            TrainPoint(step=10 * n, loss=2 / n, learning_rate=0.1 / n) for n in range(1, points + 1)
        ],
        held_out=[
            HeldOutPoint(step=100 * n, loss=1 / n, accuracy=accuracy)
            for n, accuracy in enumerate(held_out, start=1)
        ],
    )


def texts(figure: Figure, axes: int) -> list[str]:
    return [text.get_text() for text in figure.axes[axes].texts]


def opened(picture: bytes) -> Image.Image:
    return Image.open(io.BytesIO(picture), formats=["PNG"])


def test_the_losses_are_drawn_over_the_steps_with_names_and_units() -> None:
    figure = learning_curve_figure(curve(100, 0.5, 0.75, 0.7), title="resnet8 on v1")
    loss, rate = figure.axes
    lines = {str(line.get_label()): line for line in loss.get_lines()}
    batches, mean, held_out = lines.values()
    assert list(lines) == [
        "training, single batches",
        "training, mean of 5 points",
        "held-out images",
    ]
    assert np.asarray(batches.get_xdata()).tolist() == [10 * n for n in range(1, 101)]
    assert np.asarray(batches.get_ydata()).tolist() == [2 / n for n in range(1, 101)]
    last_five = [2 / n for n in range(96, 101)]
    assert np.asarray(mean.get_ydata())[-1] == pytest.approx(sum(last_five) / 5)
    assert np.asarray(mean.get_ydata())[1] == pytest.approx(1.5)  # of what there was by then
    assert np.asarray(held_out.get_ydata()).tolist() == [1, 1 / 2, 1 / 3]
    assert texts(figure, 0) == ["held-out accuracy 70.0% (best 75.0% at step 200)"]
    assert loss.get_ylabel() == "cross-entropy, nats"
    assert (rate.get_xlabel(), rate.get_ylabel()) == ("step (batches done)", "learning rate")
    assert opened(png(figure)).size == (1200, 960)


@pytest.mark.parametrize("points", [0, 1, 2])
def test_few_points_or_none_can_be_drawn(points: int) -> None:
    assert opened(png(learning_curve_figure(curve(points), title="short"))).size == (1200, 960)


def test_a_small_matrix_has_names_counts_and_a_list() -> None:
    counts = torch.tensor([[30, 2, 0], [0, 40, 0], [7, 0, 21]])
    figure = confusion_figure(counts, ["cat", "dog", "$5 $note"], title="t")
    matrix = figure.axes[0]
    assert [label.get_text() for label in matrix.get_xticklabels()] == ["cat", "dog", r"\$5 \$note"]
    cells = {text.get_position(): text.get_text() for text in matrix.texts}
    assert cells == {(0, 0): "30", (1, 0): "2", (1, 1): "40", (0, 2): "7", (2, 2): "21"}
    assert texts(figure, 1)[0].splitlines() == [
        "100 images",
        "91 right (91.0%)",
        "",
        "most confused",
        "images  true → predicted",
        r"     7  \$5 \$note → cat",
        "     2  cat → dog",
    ]
    assert opened(png(figure)).size[0] > 1000


def test_a_class_without_images_divides_by_nothing() -> None:
    figure = confusion_figure(torch.tensor([[0, 0], [0, 3]]), ["a", "b"], title="t")
    assert "no confusion" in texts(figure, 1)[0]
    assert opened(png(figure)).size[0] > 1000


def test_one_confusion_among_a_thousand_classes_can_be_seen_and_is_named() -> None:
    counts = torch.eye(1000, dtype=torch.int64) * 50
    counts[700, 123] = 4
    classes = [f"species of the genus number {n}" for n in range(1000)]
    figure = confusion_figure(counts, classes, title="t")
    cells = np.asarray(figure.axes[0].images[0].get_array())
    assert cells.shape == (250, 250)
    assert cells[700 // 4, 123 // 4] == pytest.approx(100 * 4 / 54)
    assert "     4  species…ber 700 → species…ber 123" in texts(figure, 1)[0]
    assert "the largest of 4 x 4" in figure.axes[0].get_xlabel()
    assert max(opened(png(figure)).size) < 3000
