"""The order of work within a step, and the identity of a run."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.trainers.given_settings import settings_of
from trainers.data import synthetic
from trainers.data.image_file import ImageFormat
from trainers.data.images import Samples
from trainers.errors import Stopped
from trainers.evaluate import evaluate, evaluate_champion
from trainers.loop import Run, stop_requests
from trainers.outputs import metrics_of
from trainers.parallelism.launch import Launch
from trainers.parallelism.world import World
from trainers.reports.speed import Speed
from trainers.serving.model_folder import new_model, save_model
from trainers.tasks.task import Evaluation
from trainers.warm_start import read_initial_model


def a_run(folder: Path, *options: str) -> Run:
    settings = settings_of(
        *("--dataset", "synthetic", "--synthetic-images", "32", "--synthetic-classes", "4"),
        *("--batch-size", "16", "--image-size", "8", "--epochs", "1", "--log-every", "1"),
        *options,
        folder=folder,
    )
    world = World.join(Launch(), timeout_seconds=1)
    dataset = synthetic.make(settings.dataset_request)
    initial = read_initial_model(settings)
    return Run(settings, dataset, world, lambda _: None, initial_model=initial)


def test_the_wait_for_a_share_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(tmp_path)
    events: list[str] = []
    take = run.batches.take

    @contextlib.contextmanager
    def waiting_for_data() -> Generator[None]:
        events.append("begin to count")
        yield
        events.append("end of count")

    def taken(step: int) -> Samples:
        events.append(f"take {step}")
        return take(step)

    monkeypatch.setattr(run.speed, "waiting_for_data", waiting_for_data)
    monkeypatch.setattr(run.batches, "take", taken)
    run.fit([])
    step = ["begin to count", "take {}", "end of count"]
    assert events == [event.format(number) for number in range(2) for event in step]


def test_held_out_images_are_scored_in_the_precision_of_the_training(tmp_path: Path) -> None:
    run = a_run(tmp_path, "--precision", "bf16")
    types: list[torch.dtype] = []
    for module in run.parallel.network.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(lambda _, __, output: types.append(output.dtype))
    run.evaluate()
    assert set(types) == {torch.bfloat16}


def test_a_champion_is_scored_in_the_precision_of_the_challenger(tmp_path: Path) -> None:
    run = a_run(tmp_path, "--precision", "bf16")
    save_model(tmp_path / "champion", run.model, {})
    settings = dataclasses.replace(run.settings, champion=tmp_path / "champion")
    challenger = run.evaluate()
    champion = evaluate_champion(settings, run.dataset, run.world)
    assert champion.loss == challenger.loss  # of the same weights


def test_an_evaluation_is_no_time_of_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(tmp_path, "--evaluate-every", "1", "--epochs", "3")
    now = [0.0]
    run.speed = Speed(devices=1, clock=lambda: now[0])
    evaluated: list[int] = []

    def slow(*arguments: Any, **named: Any) -> Evaluation:
        evaluated.append(run.step)
        now[0] += 1000
        return evaluate(*arguments, **named)

    monkeypatch.setattr("trainers.loop.evaluate", slow)
    step = run.optimizer.step

    def seconds_long() -> None:
        now[0] += 2
        step()

    monkeypatch.setattr(run.optimizer, "step", seconds_long)
    run.fit([])
    assert evaluated == [2, 4]
    assert run.speed.report()["train_seconds"] == 2 * run.steps


CHOSEN = ("--epochs", "6", "--evaluate-every", "1", "--keep-best", "--average-weights", "0.5")


def learned(folder: Path, *options: str) -> tuple[Run, dict[str, list[float]]]:
    """Train to the end, on from the newest checkpoint; return the model's weights, too."""
    run = a_run(folder, *CHOSEN, *options)
    run.resume()
    run.fit([])
    evaluation = run.conclude()
    assert evaluation.loss == run.curve.best()["loss"]  # the average of the best step, to the bit
    model = run.trained()
    assert model is not None
    return run, {name: weight.tolist() for name, weight in model.network.state_dict().items()}


def test_the_weights_of_the_best_evaluation_are_kept_also_after_a_resume(tmp_path: Path) -> None:
    run, weights = learned(tmp_path, "--checkpoint-every", "8")
    accuracies = [point["accuracy"] for point in run.curve.held_out]
    assert len(accuracies) == 6
    best = 2 * (accuracies.index(max(accuracies)) + 1)
    assert run.kept_step == best < 8
    assert metrics_of(run, run.evaluate())["kept_step"] == best

    next(tmp_path.glob("step-00000012-*.json")).unlink()
    again, resumed = learned(tmp_path, "--checkpoint-every", "8")
    assert again.resumed_from_step == 8  # the best weights are in that checkpoint only
    assert again.kept_step == best
    assert resumed == weights


def test_the_model_has_the_average_that_was_scored(tmp_path: Path) -> None:
    run = a_run(tmp_path, "--epochs", "6", "--average-weights", "0.9")
    run.fit([])
    model = run.trained()
    assert model is not None
    own = {name: weight.clone() for name, weight in run.parallel.network.named_parameters()}
    with run.copies.averaged():
        for name, average in run.parallel.network.named_parameters():
            assert torch.equal(model.network.get_parameter(name), average)
            assert not torch.equal(own[name], average)


def test_an_evaluation_that_sigterm_prevents_is_made_up_for(tmp_path: Path) -> None:
    an_epoch = ("--batch-size", "32")
    undisturbed, weights = learned(tmp_path / "undisturbed", *an_epoch)
    stopped = a_run(tmp_path / "stopped", *CHOSEN, *an_epoch)
    with pytest.raises(Stopped, match="after step 1, which is saved"):
        stopped.fit([signal.SIGTERM])
    assert stopped.curve.held_out == []
    resumed, again = learned(tmp_path / "stopped", *an_epoch)
    assert resumed.resumed_from_step == 1
    assert resumed.curve.held_out == undisturbed.curve.held_out
    assert again == weights


def test_training_ends_after_evaluations_that_are_no_better(tmp_path: Path) -> None:
    options = ("--early-stop-evaluations", "2", "--checkpoint-every", "100")
    run, weights = learned(tmp_path, *options)
    assert run.step == run.kept_step + 4 < run.steps
    again, resumed = learned(tmp_path, *options)
    assert again.resumed_from_step == again.step == run.step  # the end is saved
    assert resumed == weights
    assert again.curve == run.curve


def test_a_long_gradient_is_scaled_down(tmp_path: Path) -> None:
    run = a_run(tmp_path, "--clip-gradients", "0.001", "--optimizer", "torch.optim:SGD")
    before = [parameter.detach().clone() for parameter in run.parallel.network.parameters()]
    run.fit([])
    gradients = [p.grad for p in run.parallel.network.parameters() if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.cat([each.flatten() for each in gradients]))
    assert len(gradients) == len(before)
    assert float(norm) == pytest.approx(0.001, rel=0.01)


@pytest.mark.parametrize("option", ["--initial-model", "--pretrained"])
def test_a_run_begins_with_the_weights_that_it_is_given(option: str, tmp_path: Path) -> None:
    torch.manual_seed(7)
    classes = ("0000", "0001", "0002", "0003")
    model = new_model("resnet8", classes, ImageFormat(size=8, mode="rgb"))
    save_model(tmp_path / "model", model, {})
    random, warm = a_run(tmp_path), a_run(tmp_path, option, str(tmp_path / "model"))
    weights = warm.parallel.network.state_dict()
    assert all(torch.equal(weights[n], w) for n, w in model.network.state_dict().items())
    # Neither resumes a checkpoint of the other.
    assert random.identity.fingerprint() != warm.identity.fingerprint()


def test_sigterm_is_noted_inside_the_block_and_ends_the_process_outside() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_requests() as stop:
        assert not stop
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # impatient
        assert stop
    assert signal.getsignal(signal.SIGTERM) is before
