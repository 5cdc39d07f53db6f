"""The errors that Landfall raises.

A `PermanentError` fails in the same way on every retry: activities return it as data, and it ends
in the dead-letter queue. A `TransientError` may pass: activities raise it, so that the durable
retry policy sees it; when those retries are used up, the run as a whole is retried.
"""

from __future__ import annotations

from collections.abc import Sequence

# Failures are sent in messages, whose headers are limited to 32 KB, and in custom statuses.
MESSAGE_LIMIT_CHARACTERS = 2_000


class LandfallError(Exception):
    """Base of all errors of Landfall."""


class PermanentError(LandfallError):
    """A retry cannot help: a person has to remove the cause first."""


class TransientError(LandfallError):
    """A retry may help."""


class InvalidEvent(PermanentError):
    """An event that is malformed, or about a place that no pipeline watches.

    Attributes:
        cause: the kind of fault, the same text for all events with that fault.
    """

    def __init__(self, message: str, *, cause: str = "malformed") -> None:
        super().__init__(message)
        self.cause = cause


class InvalidRequest(PermanentError):
    """A caller's request that is invalid; the message says how to correct it."""


class InvalidPipeline(PermanentError):
    """A pipeline file that breaks the schema; the message names file, line, key and value."""


class InvalidQueues(PermanentError):
    """A `queues.yml` that breaks its schema; the message names file, line, key and value."""


class InvalidWorkspaces(PermanentError):
    """A `workspaces.yml` that breaks its schema; the message names file, line, key and value."""


class InvalidSetting(PermanentError):
    """An app setting that is missing or malformed; the message names it, never its value."""


class InvalidManifest(PermanentError):
    """An uploader's manifest that breaks its rules; the message names blob, line and value."""


class DataRejected(PermanentError):
    """The trainer refused the dataset: too many unreadable files, only one class, or no data."""


class DataChanged(PermanentError):
    """A blob was overwritten after its manifest was frozen; the newer content gets its own run."""


class InitialModelMismatch(PermanentError):
    """The champion as the initial model does not fit the data or the job's network."""


class InvalidResults(PermanentError):
    """A job's `metrics.json` or `error.json` is invalid; another attempt would write the same."""


class QuotaExceeded(PermanentError):
    """No compute option fits into the subscription's quota."""


class JobRejected(PermanentError):
    """Azure ML refused the job or the asset as it was described."""


class NotReproducible(PermanentError):
    """What made a model is gone, such as its job, code or champion; the message names it."""


class DeploymentRejected(PermanentError):
    """A deployment failed its smoke test: a verdict on the model and its scoring code."""


class RolloutImpossible(PermanentError):
    """A rollout's endpoint, deployment or model is gone, or Azure ML refuses what it is asked."""


class PromotionRefused(PermanentError):
    """A version cannot go into another workspace: other bits than at its registration, or there."""


class OfAnotherRelease(TransientError):
    """A document with a field or a value that this release does not know; the message names it."""


class JobFailed(TransientError):
    """The training job ended in failure for a reason that may pass."""


class DeadlineExceeded(TransientError):
    """A state lasted longer than the pipeline's limits allow."""


_BY_NAME = {
    name: kind
    for name, kind in tuple(globals().items())
    if isinstance(kind, type) and issubclass(kind, PermanentError | TransientError)
}


def from_name(name: str, message: str, *, otherwise: type[LandfallError]) -> LandfallError:
    """The error of a failure document or a trainer's error.json, by its type's name."""
    return _BY_NAME.get(name, otherwise)(message)


def shorten(text: str, limit_characters: int = MESSAGE_LIMIT_CHARACTERS) -> str:
    """The text on one line, cut to the limit with an ellipsis at the end."""
    line = " ".join(text.split())
    return line if len(line) <= limit_characters else line[: limit_characters - 1] + "…"


def name_some(names: Sequence[str], limit: int = 3) -> str:
    """The first of some names, and how many more there are."""
    more = len(names) - limit
    return ", ".join(map(repr, names[:limit])) + (f" and {more} more" if more > 0 else "")
