from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from trainers.reports.charts import confusion_figure, learning_curve_figure, png
from trainers.reports.learning_curve import LearningCurve


def curve(points: int, *held_out: float) -> LearningCurve:
    return LearningCurve(
        train=[
            {"step": 10 * n, "loss": 2 / n, "learning_rate": 0.1 / n} for n in range(1, points + 1)
        ],
        held_out=[
            {"step": 100 * n, "loss": 1 / n, "accuracy": accuracy}
            for n, accuracy in enumerate(held_out, start=1)
        ],
    )


def opened(picture: bytes) -> Image.Image:
    return Image.open(io.BytesIO(picture), formats=["PNG"])


def test_the_losses_are_drawn_over_the_steps() -> None:
    figure = learning_curve_figure(curve(100, 0.5, 0.75, 0.7), title="resnet8 on v1")
    loss, rate = figure.axes
    training, held_out = loss.get_lines()
    assert np.asarray(training.get_xdata()).tolist() == [10 * n for n in range(1, 101)]
    assert np.asarray(training.get_ydata()).tolist() == [2 / n for n in range(1, 101)]
    assert np.asarray(held_out.get_ydata()).tolist() == [1, 1 / 2, 1 / 3]
    assert held_out.get_label() == "held out (last score 70.0%)"
    assert (rate.get_xlabel(), rate.get_ylabel()) == ("step (batches done)", "learning rate")
    assert opened(png(figure)).size == (1200, 960)


@pytest.mark.parametrize("points", [0, 1, 2])
def test_few_points_or_none_can_be_drawn(points: int) -> None:
    assert opened(png(learning_curve_figure(curve(points), title="short"))).size == (1200, 960)


def test_a_small_matrix_has_names_and_counts() -> None:
    counts = torch.tensor([[30, 2, 0], [0, 40, 0], [7, 0, 21]])
    figure = confusion_figure(counts, ["cat", "dog", "$5 $note"], title="t")
    matrix = figure.axes[0]
    assert [label.get_text() for label in matrix.get_xticklabels()] == ["cat", "dog", r"\$5 \$note"]
    cells = {text.get_position(): text.get_text() for text in matrix.texts}
    assert cells == {(0, 0): "30", (1, 0): "2", (1, 1): "40", (0, 2): "7", (2, 2): "21"}
    assert min(opened(png(figure)).size) > 500


def test_a_large_matrix_with_an_empty_class_can_be_drawn() -> None:
    counts = torch.eye(1000, dtype=torch.int64) * 50
    counts[0, 0] = 0
    figure = confusion_figure(counts, [f"species {n}" for n in range(1000)], title="t")
    assert np.asarray(figure.axes[0].images[0].get_array())[:2, :2].tolist() == [[0, 0], [0, 100]]
    assert max(opened(png(figure)).size) < 3000
