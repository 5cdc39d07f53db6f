"""The checker can fail: each mistake that is planted is found, by a story of a few items."""

from __future__ import annotations

import functools

import pytest

from tests.simulation.approval_checker import traffic_moves_as_people_agree
from tests.simulation.capacity_checker import INVARIANTS_OF_CAPACITY
from tests.simulation.kept import KEPT
from tests.simulation.mutations import MUTATIONS
from tests.simulation.rollout_checker import INVARIANTS_OF_ROLLOUTS
from tests.simulation.rollout_items import (
    DeleteEndpoint,
    ModelFate,
    OverwriteModel,
    PromoteToProduction,
    RollBackModel,
)
from tests.simulation.story import (
    DAY,
    HOUR,
    CallFault,
    CancelPromotion,
    CancelRun,
    DelayJobEvent,
    Delete,
    Deploy,
    DriftSignal,
    Forget,
    Item,
    JobEnd,
    JobFate,
    LoseEvent,
    OpenPage,
    Outage,
    OutageAfter,
    QuestionFate,
    Redrive,
    RedriveChanged,
    Refuse,
    Reproduce,
    RequestRun,
    RivalUpload,
    SecondCopy,
    Shortage,
    Story,
    StrayJobEvent,
    Terminate,
    TerminateAfter,
    Upload,
    Zone,
)
from tests.simulation.trial import try_story

UPLOADED_AT = 1_000.0
UPLOAD = Upload(at=UPLOADED_AT, path="1.png", content="one")
QUEUED_UPLOAD = Upload(at=UPLOADED_AT, path="day=2026-11-02/1.png", content="one")
UPLOAD_AT_THE_END = Upload(at=6.9 * DAY, path="1.png", content="one")
TERMINATED_PROMOTION = Terminate(at=4 * HOUR + 60, orchestrator="promotion")
REFUSED: list[Item] = [UPLOAD, Refuse(at=UPLOADED_AT + 100, seconds=10 * HOUR, status=403)]
# One of three files is overwritten: checks.changed_at_most allows fewer.
MANY_CHANGED: list[Item] = [
    *(Upload(at=UPLOADED_AT, path=f"{n}.png", content=f"{n}") for n in (1, 2, 3)),
    Deploy(at=2 * HOUR, floor=0.5, changes=("checks",)),
    Upload(at=5 * HOUR, path="1.png", content="other"),
]
# One file is added: settle.minimum_change wants three.
FEW_ADDED: list[Item] = [
    UPLOAD,
    Deploy(at=2 * HOUR, floor=0.5, changes=("minimum change",)),
    Upload(at=5 * HOUR, path="2.png", content="two"),
]
# The jobs in order: the training, the data check of the second batch.
WRONG: list[Item] = [
    UPLOAD,
    Deploy(at=2 * HOUR, floor=0.5, changes=("jobs of checks",)),
    Upload(at=5 * HOUR, path="2.png", content="two"),
    JobFate(number=2, end="is worse"),
]
# The data is right, and the champion has lost nothing.
GOOD_CHAMPION: list[Item] = [
    *WRONG[:3],
    JobFate(number=2, end="completes"),
    JobFate(number=3, end="completes"),
]
# People approve each question that has no other fate.
ASKED: list[Item] = [Deploy(at=100, floor=0.5, changes=("approvals",)), UPLOAD]
LATE_ANSWER = QuestionFate(number=1, end="is approved", delay=5 * HOUR)
# Together their runs want more nodes than there are.
TWO_BATCHES: list[Item] = [
    QUEUED_UPLOAD,
    Upload(at=UPLOADED_AT, path="day=2026-11-01/1.png", content="two"),
    *(RivalUpload(at=UPLOADED_AT + n, path="1.png", content=f"{n}") for n in (0, 900)),
]

LONG_JOBS = [*(JobFate(number=n, end="never ends") for n in (1, 2)), *TWO_BATCHES]


def first_job(end: JobEnd) -> JobFate:
    return JobFate(number=1, end=end)


# Mutation → the invariant that finds it, and what happens.
FOUND: dict[str, tuple[str, list[Item]]] = {
    "failed requests are not counted": (
        "broken_models_leave_the_traffic",
        [UPLOAD, ModelFate(number=1, end="fails requests")],
    ),
    "deployments are not deleted": (
        "deployments_serve_or_are_deleted",
        [UPLOAD, Upload(at=8 * HOUR, path="2.png", content="two")],
    ),
    "endpoints are not released": ("endpoints_are_released", [UPLOAD]),
    "rollouts are not started": ("every_model_is_rolled_out", [UPLOAD]),
    "dead-lettered rollouts are sent again under the same id": (
        "every_model_is_rolled_out",
        [UPLOAD, OutageAfter(activity="start_rollout", number=1, service="blobs", seconds=600)],
    ),
    "each attempt has checkpoints of its own": (
        "work_is_resumed",
        # The work of some of them takes longer than until the first checkpoint.
        [
            *(Upload(at=(1 + 4 * n) * HOUR, path="1.png", content=f"{n}") for n in range(4)),
            *(JobFate(number=1 + 2 * n, end="loses a node") for n in range(4)),
        ],
    ),
    "a claim is everybody's": (
        "no_effect_happens_twice",
        [UPLOAD, Upload(at=DAY, path="1.png", content="one")],
    ),
    "a job is not adopted by its name": (
        "no_job_goes_on_alone",
        # The eighth call submits the job: it takes effect, and the activity is retried.
        [UPLOAD, CallFault(service="azure_ml", number=8, end="answer lost")],
    ),
    "a model is not adopted by its dataset": (
        "no_effect_happens_twice",
        [UPLOAD, *(SecondCopy(number=number, delay=30.0) for number in range(1, 40))],
    ),
    "a job is not cancelled": ("nothing_waits_for_ever", [UPLOAD, first_job("never ends")]),
    "nothing is dead-lettered": (
        "every_run_ends_in_one_state",
        [UPLOAD, first_job("leaves a null metric")],
    ),
    "notifications are not published": ("every_end_is_notified_once", [UPLOAD]),
    "no deadline holds": (
        "jobs_are_ended_within_their_limits",
        [UPLOAD, first_job("never starts"), CancelRun(at=UPLOADED_AT + 6 * HOUR)],
    ),
    "every listing is whole": (
        "what_is_trained_on_was_whole",
        [UPLOAD, Upload(at=UPLOADED_AT + 290, path="2.png", content="two"), LoseEvent(number=2)],
    ),
    "long texts are not cut": ("custom_status_is_small", [UPLOAD, first_job("fails")]),
    "retries are not started": (
        "every_run_ends_in_one_state",
        [UPLOAD, first_job("loses a node")],
    ),
    "releases are not looked for": (
        "what_is_released_is_landed_again",
        [*KEPT["a batch is released while the landing that held it ends"].items],
    ),
    "forgotten contents stay when files are left out": (
        "forgotten_contents_are_found_and_trained_on_no_more",
        [*KEPT["a file is left out of a batch with a forgotten one"].items],
    ),
    "runs with forgotten contents are redriven": (
        "forgotten_contents_are_found_and_trained_on_no_more",
        [UPLOAD, first_job("leaves no metrics"), Forget(at=9 * HOUR), Redrive(at=DAY)],
    ),
    "zones are not reconciled": (
        "every_whole_batch_is_accounted_for",
        [UPLOAD, LoseEvent(number=1)],
    ),
    "claims are not reconciled": (
        "every_claim_has_its_run",
        [UPLOAD, TerminateAfter(activity="claim_dataset", number=1)],
    ),
    "broken requests are not reconciled": (
        "every_request_ends_or_is_alerted",
        [
            UPLOAD,
            RequestRun(at=UPLOADED_AT + 10, key="a"),
            Outage(service="blobs", at=UPLOADED_AT + 10.1, seconds=2 * HOUR),
        ],
    ),
    "broken runs are not reconciled": (
        "every_end_is_notified_once",
        [UPLOAD, Terminate(at=UPLOADED_AT + 340, orchestrator="retraining")],
    ),
    "the outbox is not flushed": (
        "nothing_waits_for_ever",
        [UPLOAD, Outage(service="service_bus", at=UPLOADED_AT + 200, seconds=2 * HOUR)],
    ),
    "files of the first release are used": (
        "runs_use_the_files_of_their_freeze",
        [Deploy(at=500, floor=0.9), UPLOAD],
    ),
    "job.yml is read live": (
        "runs_use_the_files_of_their_freeze",
        [UPLOAD, first_job("loses a node"), Deploy(at=UPLOADED_AT + 320, floor=0.7)],
    ),
    "changes of a redrive are dropped": (
        "changes_of_a_redrive_are_made",
        [
            UPLOAD,
            first_job("leaves a null metric"),
            RedriveChanged(at=UPLOADED_AT + 4 * HOUR, change="compute"),
        ],
    ),
    "a shortage ends the run": (
        "rejections_have_their_cause",
        [Shortage(at=0, seconds=DAY, clusters=("spot",)), UPLOAD],
    ),
    "copies are of what is there now": (
        "data_that_is_copied_never_changes",
        [
            UPLOAD,
            # Overwritten between the listing and its copy.
            OutageAfter(activity="freeze_manifest", number=1, service="blobs", seconds=60),
            Upload(at=UPLOADED_AT + 330, path="1.png", content="two"),
        ],
    ),
    "foreign job events are dropped": (
        "foreign_job_events_are_alerted",
        [StrayJobEvent(at=500, kind="other workspace")],
    ),
    "late job events wake runs that have ended": (
        "nothing_waits_for_ever",
        # The second event says that the job has ended.
        [UPLOAD, DelayJobEvent(number=2, delay=2 * HOUR)],
    ),
    "nodes are given back while the job lives": (
        "jobs_hold_their_nodes",
        [
            QUEUED_UPLOAD,
            first_job("never ends"),
            RivalUpload(at=UPLOADED_AT + HOUR, path="1.png", content="rival"),
            Terminate(at=UPLOADED_AT + 4 * HOUR - 20, orchestrator="retraining"),
        ],
    ),
    "nodes are not given back": (
        "jobs_hold_their_nodes",
        [QUEUED_UPLOAD, RivalUpload(at=UPLOADED_AT, path="1.png", content="rival")],
    ),
    "queues have no limits": (
        "nodes_are_never_above_their_limits",
        TWO_BATCHES,
    ),
    "budgets are not looked at": ("budgets_are_kept", LONG_JOBS),
    "why a run waits is not said": ("waiting_runs_have_their_sentence", TWO_BATCHES),
    "operators are not alerted to long waits": (
        "long_waits_are_alerted",
        LONG_JOBS,
    ),
    "cancellations are not seen": (
        "cancellations_hold",
        [UPLOAD, first_job("never ends"), CancelRun(at=UPLOADED_AT + HOUR)],
    ),
    "verdicts are alerted as errors": (
        "verdicts_are_no_failures",
        [
            UPLOAD,
            Upload(at=DAY, path="1.png", content="two"),
            JobFate(number=2, end="is worse"),
        ],
    ),
    "useless results are transient": (
        "mistakes_are_paid_for_once",
        [UPLOAD, first_job("leaves a null metric")],
    ),
    "errors have their stacks": ("messages_carry_no_stacks", [UPLOAD, first_job("loses a node")]),
    "a rollout takes an outage for a verdict": (
        "rollouts_have_a_cause_to_go_back",
        [UPLOAD, Outage(service="metrics", at=UPLOADED_AT + 1_500, seconds=1_800)],
    ),
    "a rollout does not see that its deployment is gone": (
        "every_rollout_ends_and_is_told",
        # At the end of the week, so that not many polls follow.
        [UPLOAD_AT_THE_END, DeleteEndpoint(at=UPLOAD_AT_THE_END.at + 1_800)],
    ),
    "windows are not looked at": (
        "traffic_moves_while_windows_are_open",
        [Deploy(at=500, floor=0.7, changes=("windows",)), UPLOAD],
    ),
    "a rollback of a model moves no traffic": (
        "the_model_in_service_serves",
        [UPLOAD, Upload(at=8 * HOUR, path="2.png", content="two"), RollBackModel(at=10 * HOUR)],
    ),
    "a batch is listed by older files than its run's": (
        "one_batch_has_one_configuration",
        [
            Deploy(at=500, floor=0.7, changes=("include",)),
            UPLOAD,
            Upload(at=UPLOADED_AT, path="9.png", content="nine"),
        ],
    ),
    "failing landings are told to nobody": ("failing_landings_are_told", REFUSED),
    "failing landings are not shown": ("failing_landings_are_shown", REFUSED),
    "rules for data are not read": ("data_is_trained_on_by_its_rules", MANY_CHANGED),
    "little changes are enough": ("data_is_trained_on_by_its_rules", FEW_ADDED),
    "a failed data check is a warning": ("training_waits_for_its_checks", WRONG),
    "a failed data check holds nothing": ("failed_checks_hold_and_alert", WRONG),
    "a champion has always lost": ("training_waits_for_its_checks", GOOD_CHAMPION),
    "what a check has ended counts as trained on": (
        "data_is_trained_on_by_its_rules",
        # One of four files is overwritten, and that does not train; then a second one is.
        [
            *(Upload(at=UPLOADED_AT, path=f"{n}.png", content=f"{n}") for n in range(4)),
            Deploy(at=2 * HOUR, floor=0.5, changes=("jobs of checks", "checks")),
            *(Upload(at=5 * n * HOUR, path=f"{n}.png", content=f"other {n}") for n in (1, 2)),
            *(JobFate(number=n, end="completes") for n in (2, 3, 4)),
            JobFate(number=5, end="is worse"),
        ],
    ),
    "the age of waiting batches is not looked at": (
        "nothing_waits_longer_than_its_age",
        FEW_ADDED,
    ),
    "each content that is held has an alert": (
        "one_hold_has_one_alert",
        [
            *(Upload(at=UPLOADED_AT, path=f"{n}.png", content=f"{n}") for n in range(3)),
            *(Delete(at=8 * HOUR, path=f"{n}.png") for n in (1, 2)),
            *(Upload(at=(8 + n) * HOUR, path="0.png", content=f"again {n}") for n in range(2)),
        ],
    ),
    "drift signals for known data are duplicates": (
        "signals_lead_to_runs",
        [UPLOAD, DriftSignal(at=DAY, number=1)],
    ),
    "slices are not looked at": (
        "promoted_models_hold_on_every_slice",
        [
            UPLOAD,
            Deploy(at=2 * HOUR, floor=0.5, changes=("slices",)),
            Upload(at=5 * HOUR, path="2.png", content="two"),
            JobFate(number=2, end="breaks a slice"),
        ],
    ),
    "a broken comparison is no comparison": (
        "promoted_models_hold_on_every_slice",
        [UPLOAD, first_job("leaves a wrong comparison")],
    ),
    "requests with new code are duplicates": (
        "requests_lead_to_runs",
        [UPLOAD, Deploy(at=DAY - HOUR, floor=0.7), RequestRun(at=DAY, key="again")],
    ),
    "forgotten contents are frozen again": (
        "forgotten_contents_are_found_and_trained_on_no_more",
        [UPLOAD, Forget(at=DAY), Upload(at=2 * DAY, path="2.png", content="one")],
    ),
    "requests to forget that broke are left": (
        "forgotten_contents_are_found_and_trained_on_no_more",
        [UPLOAD, TerminateAfter(activity="forget_blobs", number=1), Forget(at=DAY)],
    ),
    "a freeze does not see what is forgotten meanwhile": (
        "forgotten_contents_are_found_and_trained_on_no_more",
        # The zone is quiet at 1,300 s, and its freeze takes some seconds.
        [UPLOAD, Upload(at=UPLOADED_AT, path="2.png", content="two"), Forget(at=1_302.4)],
    ),
    "requests with other parameters are duplicates": (
        "requests_lead_to_runs",
        [UPLOAD, RequestRun(at=DAY, key="again", seed=1)],
    ),
    "the content of cancelled runs is a duplicate": (
        "requests_lead_to_runs",
        [
            UPLOAD,
            first_job("never ends"),
            CancelRun(at=2 * HOUR),
            RequestRun(at=DAY, key="again"),
        ],
    ),
    "no answer to a question is refused": (
        "models_are_registered_as_people_agree",
        [*ASKED, QuestionFate(number=1, end="is answered for another hash")],
    ),
    "files that were written after the verdict are registered": (
        "models_are_those_that_were_judged",
        [*ASKED, LATE_ANSWER, OverwriteModel(at=HOUR)],
    ),
    "files that were written after the registration are promoted": (
        "the_other_workspace_has_the_bits_of_the_version",
        [UPLOAD, OverwriteModel(at=3 * HOUR), PromoteToProduction(at=4 * HOUR)],
    ),
    "promotions that were only recorded are left alone": (
        "promotions_end_and_are_told",
        [
            UPLOAD,
            Outage(service="task_hub", at=4 * HOUR - 1, seconds=60),
            PromoteToProduction(at=4 * HOUR, once=True),
        ],
    ),
    "promotions that broke are left alone": (
        "promotions_end_and_are_told",
        [UPLOAD, PromoteToProduction(at=4 * HOUR), TERMINATED_PROMOTION],
    ),
    "questions about refused promotions stay open": (
        "questions_are_settled",
        [
            UPLOAD,
            PromoteToProduction(at=4 * HOUR),
            TERMINATED_PROMOTION,
            OverwriteModel(at=4 * HOUR + 70),
            PromoteToProduction(at=4 * HOUR + 80),
        ],
    ),
    "cancellations of promotions are not kept": (
        "cancelled_promotions_stop",
        [UPLOAD, PromoteToProduction(at=4 * HOUR), CancelPromotion(at=4 * HOUR + 60)],
    ),
    "rollouts ask nobody": ("traffic_moves_as_people_agree", ASKED),
    "all services share threads": (
        "the_api_answers",
        [
            UPLOAD,
            first_job("never ends"),
            Outage(service="service_bus", at=2 * HOUR, seconds=HOUR, hangs=True, endless=True),
            OpenPage(at=2 * HOUR + 100, seconds=600),
            CancelRun(at=2 * HOUR + 600),
        ],
    ),
    "the end of a run is ordered by the task hub's clock": (
        "every_end_is_in_the_list_of_runs",
        # In the same second, the job was submitted.
        [UPLOAD, Terminate(at=UPLOADED_AT + 308.5, orchestrator="retraining")],
    ),
    "steps are not patient": (
        "outages_cost_no_attempt",
        [UPLOAD, OutageAfter(activity="read_results", number=1, service="azure_ml", seconds=600)],
    ),
    "every reproduction is equal": (
        "reproductions_are_right",
        [UPLOAD, Reproduce(at=DAY), JobFate(number=2, end="is worse")],
    ),
    "reproductions are compared with the champion of today": (
        "reproductions_have_what_the_original_had",
        [UPLOAD, Reproduce(at=DAY)],
    ),
    "events are not given back": (
        "every_event_is_decided",
        [UPLOAD, Outage(service="blobs", at=UPLOADED_AT - 100, seconds=2 * HOUR)],
    ),
}

# Invariant → the zone whose stories it is about.
ZONES: dict[str, Zone] = {
    "data_that_is_copied_never_changes": "copied",
    "forgotten_contents_are_found_and_trained_on_no_more": "copied",
    **{each.__name__: "online" for each in INVARIANTS_OF_ROLLOUTS},
    traffic_moves_as_people_agree.__name__: "online",
    **{each.__name__: "queued" for each in INVARIANTS_OF_CAPACITY},
}


# Several mistakes are found by one story.
try_unchanged = functools.cache(try_story)


def test_every_mutation_is_tried() -> None:
    assert FOUND.keys() == MUTATIONS.keys()


@pytest.mark.parametrize("name", FOUND)
def test_a_planted_mistake_is_found(name: str) -> None:
    invariant, items = FOUND[name]
    zone: Zone = ZONES.get(invariant, "quiet")
    story = Story(seed=1, zone=zone, reconcile_every=8 * HOUR, items=tuple(items))
    sound = try_unchanged(story)
    assert not sound.problems, str(sound)
    with MUTATIONS[name]():
        mutant = try_story(story)
    assert invariant in mutant.invariants, str(mutant)
