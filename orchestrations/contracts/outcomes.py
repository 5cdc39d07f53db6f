"""What each state, outcome and reason means to people: one table for each; others read it.

The type checker refuses a name without a row (`assert_never`). tests/contract/test_states.py
compares the tables with the page, the command line, the document of the API, and docs/.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

from orchestrations.contracts.landing import BatchOutcome, LandingAlert, LandingPhase
from orchestrations.contracts.notifications import NotificationKind
from orchestrations.contracts.rollouts import RolloutOutcome, RolloutState
from orchestrations.contracts.run_states import GateVerdict, RunState

PipelineState = Literal[
    "idle", "settling", "training", "retrying", "needs-a-human", "paused", "waiting"
]
BlobState = Literal[
    "unwatched",
    "filtered",
    "missing",
    "quarantined",
    "pending",
    "left-out",
    "held",
    "duplicate",
    "run",
]
Shown = PipelineState | BlobState | RunState | RolloutState | LandingPhase | LandingAlert
Colour = Literal["good", "busy", "warn", "bad", "quiet"]
Severity = Literal["information", "warning", "error"]


def colour_of(name: Shown) -> Colour:  # noqa: C901, PLR0911 - a table
    """The colour of a state on the page and the command line."""
    match name:
        case "succeeded" | "reproduced" | "live" | "finished":
            return "good"
        case "registering" | "provisioning" | "waiting_for_nodes" | "submitting" | "queued":
            return "busy"
        case "running" | "judging" | "publishing" | "training" | "settling" | "closing":
            return "busy"
        case "deploying" | "testing" | "baking" | "rolling_back":
            return "busy"
        case "ending" | "retrying" | "cancelled" | "held" | "not_reproduced":
            return "warn"
        case "batch-held" | "paused" | "pending":
            return "warn"
        case "failed" | "rejected" | "rolled_back" | "needs-a-human" | "quarantined" | "missing":
            return "bad"
        case "landing-failed" | "landing-overdue" | "manifest-invalid" | "pipeline-not-deployed":
            return "bad"
        case "idle" | "waiting" | "not_promoted" | "not_needed" | "superseded":
            return "quiet"
        case "unwatched" | "filtered" | "left-out" | "duplicate" | "run":
            return "quiet"
        case _:
            assert_never(name)


@dataclass(frozen=True, kw_only=True)
class RunRule:
    """What a state of a run means."""

    pipeline: PipelineState
    """The state of its pipeline, if this is the newest run and nothing else is under way."""
    is_failure: bool = False
    """Whether the attempt has failed."""
    gave_up: str = "has ended"
    """How a sentence tells the end of a run that needs a person."""


def rule_of_run(state: RunState) -> RunRule:  # noqa: PLR0911 - a table
    """What a state of a run means."""
    match state:
        case "registering" | "provisioning" | "waiting_for_nodes" | "submitting" | "queued":
            return RunRule(pipeline="training")
        case "running" | "ending" | "judging" | "publishing":
            return RunRule(pipeline="training")
        case "succeeded" | "not_promoted" | "not_needed" | "superseded" | "cancelled" | "held":
            return RunRule(pipeline="idle")  # what is held has a hold, which says more
        case "reproduced" | "not_reproduced":
            return RunRule(pipeline="idle")
        case "retrying":
            return RunRule(pipeline="retrying", is_failure=True)
        case "rejected":
            return RunRule(pipeline="needs-a-human", is_failure=True, gave_up="was rejected")
        case "failed":
            return RunRule(pipeline="needs-a-human", is_failure=True, gave_up="failed")
        case _:
            assert_never(state)


@dataclass(frozen=True, kw_only=True)
class VerdictRule:
    """What a verdict of the gate means."""

    sentence: str
    """The verdict in a few words."""
    promoted: bool = False
    needs_a_person: bool = False
    """Whether a person should look: only they know whether it is worth it."""
    colour: Colour = "quiet"


def rule_of_verdict(verdict: GateVerdict) -> VerdictRule:  # noqa: PLR0911 - a table
    """What a verdict of the gate means; `training.judging.judge` gives it with the numbers."""
    match verdict:
        case "first":
            return VerdictRule(sentence="there is no champion", promoted=True, colour="good")
        case "better":
            return VerdictRule(sentence="better than the champion", promoted=True, colour="good")
        case "misses-the-floor":
            return VerdictRule(sentence="misses the floor")
        case "not-better":
            return VerdictRule(sentence="does not beat the champion")
        case "worse-than-before":
            return VerdictRule(sentence="worse than the best of the last champions")
        case "may-be-luck":
            return VerdictRule(sentence="its lead may be luck")
        case "slice-fell":
            return VerdictRule(sentence="a slice fell", needs_a_person=True, colour="warn")
        case _:
            assert_never(verdict)


def promotion_sentence(verdict: GateVerdict, reason: str) -> str:
    """Why the gate promotes a model. Only the reason of a comparison says it by itself."""
    is_said = verdict == "first" or ": " in reason
    return reason if is_said else f"{reason}: {rule_of_verdict(verdict).sentence}"


@dataclass(frozen=True, kw_only=True)
class BatchRule:
    """What the outcome of a batch means."""

    is_trained: bool = False
    """Whether the batch is or was trained on; the next one is compared with it."""
    is_held: bool = False
    explained_as: BlobState | None = None
    """The state of its blobs; None if it has no manifest."""


def rule_of_batch(outcome: BatchOutcome) -> BatchRule:
    """What the outcome of a batch means."""
    match outcome:
        case "started":
            return BatchRule(is_trained=True, explained_as="run")
        case "duplicate":
            return BatchRule(is_trained=True, explained_as="duplicate")
        case "held":
            return BatchRule(is_held=True, explained_as="held")
        case "only-deletions":
            return BatchRule(explained_as="left-out")
        case "empty" | "overdue" | "invalid-manifest" | "not-deployed":
            return BatchRule()
        case _:
            assert_never(outcome)


@dataclass(frozen=True, kw_only=True)
class TroubleRule:
    """What a trouble of a zone means."""

    sentence: str
    """The begin of the sentence about it."""
    severity: Severity = "warning"
    ended_by: Literal["any batch", "a batch of its landing", "a batch that is not held"]


def rule_of_trouble(kind: LandingAlert) -> TroubleRule:
    """What a trouble of a zone means."""
    match kind:
        case "landing-failed":
            return TroubleRule(
                sentence="the landing fails", severity="error", ended_by="a batch of its landing"
            )
        case "landing-overdue":
            return TroubleRule(sentence="the data is incomplete", ended_by="any batch")
        case "manifest-invalid":
            return TroubleRule(sentence="the uploader's manifest is invalid", ended_by="any batch")
        case "pipeline-not-deployed":
            return TroubleRule(sentence="its pipeline was not deployed", ended_by="any batch")
        case "batch-held":
            return TroubleRule(sentence="the batch is held", ended_by="a batch that is not held")
        case _:
            assert_never(kind)


@dataclass(frozen=True, kw_only=True)
class RolloutRule:
    """What a state of a rollout means."""

    phase: Literal["before live", "live", "restoring", "over"]
    """An error before it is live restores the previous traffic."""
    has_steps: bool = False
    """Whether a person's decision is about a step."""
    can_be_promoted: bool = False
    is_failure: bool = False


def rule_of_rollout(state: RolloutState) -> RolloutRule:  # noqa: PLR0911 - a table
    """What a state of a rollout means."""
    match state:
        case "waiting" | "deploying":
            return RolloutRule(phase="before live")
        case "testing":
            return RolloutRule(phase="before live", can_be_promoted=True)
        case "baking":
            return RolloutRule(phase="before live", can_be_promoted=True, has_steps=True)
        case "live":
            return RolloutRule(phase="live", can_be_promoted=True, has_steps=True)
        case "rolling_back":
            return RolloutRule(phase="restoring")
        case "finished" | "superseded":
            return RolloutRule(phase="over")
        case "rolled_back" | "failed":
            return RolloutRule(phase="over", is_failure=True)
        case _:
            assert_never(state)


def end_of(outcome: RolloutOutcome) -> RolloutState:
    """The last state of a rollout with this outcome."""
    match outcome:
        case "live":
            return "finished"
        case "rolled_back" | "superseded" | "failed":
            return outcome
        case _:
            assert_never(outcome)


def severity_of(kind: NotificationKind) -> Severity:
    """The severity of a notification as an alert."""
    match kind:
        case "started" | "succeeded" | "superseded" | "not_promoted" | "not_needed":
            return "information"
        case "deploying" | "deployed" | "reproduced":
            return "information"
        case "not_reproduced" | "cancelled" | "retrying" | "held" | "awaiting_approval":
            return "warning"
        case "failed" | "rolled_back":
            return "error"
        case _:
            assert_never(kind)
