"""Claims of datasets: each effect happens once, and what is claimed is trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from handlers.platform.tags import reference_of
from handlers.training import assets
from orchestrations.contracts.landing import ClaimDataset, DatasetClaim
from tests.simulation.feature import Feature, Mistake
from tests.simulation.planting import body, round_without
from tests.simulation.story import DAY, HOUR, Crash, OutageAfter, SecondCopy, TerminateAfter, Upload
from tests.simulation.subjects import training_of
from tests.simulation.weeks import FIRST, UPLOAD, quiet_week

if TYPE_CHECKING:
    from handlers.platform.clients import Clients
    from orchestrations.contracts.runs import Model
    from orchestrations.contracts.training import RegisterModel
    from tests.simulation.evidence import Evidence


def every_claim_has_its_run(evidence: Evidence) -> Iterator[str]:
    """Claimed datasets are trained on."""
    for version, claim in evidence.claims.items():
        if claim["run"] not in evidence.runs:
            yield f"{version} was claimed for {claim['run']}, which never came to be"


def no_effect_happens_twice(evidence: Evidence) -> Iterator[str]:
    """One batch and one model per round of a dataset version, one alert per id."""
    started = Counter(
        batch.result.run for batch in evidence.batches if batch.result.outcome == "started"
    )
    yield from (f"{run} was started by {n} batches" for run, n in started.items() if n > 1)
    models = Counter(map(training_of, evidence.models))
    yield from (f"{training} has {n} models" for training, n in models.items() if n > 1)
    for name in {model.name for model in evidence.models}:
        versions = sorted(int(each.version) for each in evidence.models if each.name == name)
        if versions != list(range(1, len(versions) + 1)):
            yield f"versions of model {name} are counted {versions}"
    alerts = Counter(message.message_id for message in evidence.alerts)
    for message_id, count in alerts.items():
        if count > 1 and message_id.rpartition(":")[0] in evidence.runs:
            yield f"alert {message_id} was published {count} times"


def models_are_of_runs_that_succeeded(evidence: Evidence) -> Iterator[str]:
    """Each successful run has a model; a cancelled run has none."""
    trained = set(map(training_of, evidence.models))
    for run in evidence.runs.values():
        if run.state == "succeeded" and run.version not in trained:
            yield f"{run.id} succeeded without a model"
    for model in evidence.models:
        run = evidence.runs.get(model.tags["landfall.run"])
        if run is None or run.state == "cancelled":
            yield f"model {model.version} is of {run and run.id}, which was cancelled"


def _claim_for_everybody(_clients: Clients, request: ClaimDataset) -> DatasetClaim:
    return DatasetClaim(run=request.request.run, batch=request.batch)


def _register_the_next_version(clients: Clients, request: RegisterModel) -> Model:
    name = request.pipeline.model.name
    registered = assets.all_versions(clients, name)
    version = str(len(registered) + 1)
    model = assets._register(clients, request, {}, version)  # pyright: ignore[reportPrivateUsage]
    return reference_of(model)  # pyright: ignore[reportPrivateUsage]


FEATURE = Feature(
    invariants=(
        every_claim_has_its_run,
        no_effect_happens_twice,
        models_are_of_runs_that_succeeded,
    ),
    mistakes={
        "a claim is everybody's": Mistake(
            plant=body("claim_dataset", _claim_for_everybody),
            found_by=no_effect_happens_twice,
            items=[UPLOAD, Upload(at=DAY, path="1.png", content="one")],
        ),
        "a model is not adopted by its dataset": Mistake(
            plant=body("register_model", _register_the_next_version),
            found_by=no_effect_happens_twice,
            items=[UPLOAD, *(SecondCopy(number=number, delay=30.0) for number in range(1, 40))],
        ),
        "claims are not reconciled": Mistake(
            plant=round_without("check_claims"),
            found_by=every_claim_has_its_run,
            items=[UPLOAD, TerminateAfter(activity="claim_dataset", number=1)],
        ),
    },
    kept={
        "a host that is down for days after a claim": quiet_week(
            FIRST,
            TerminateAfter(activity="claim_dataset", number=1),
            Crash(call=28, after=True, down=48 * HOUR),
            seed=1546,
        ),
        "a run that broke before its first record": quiet_week(
            FIRST,
            OutageAfter(activity="claim_dataset", number=1, service="blobs", seconds=2 * HOUR),
            seed=1126,
        ),
    },
)
