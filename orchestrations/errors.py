"""The errors that Landfall raises.

A `PermanentError` fails the same way however often it is tried: it is returned from activities as
data and ends in the dead-letter queue. A `TransientError` may pass: it is raised, so that the
durable retry policy sees it, and after that the run is retried as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence

# Failures travel in messages, whose headers are limited to 32 KB, and in custom statuses.
MESSAGE_LIMIT_CHARACTERS = 2_000


class LandfallError(Exception):
    """Base of all of them."""


class PermanentError(LandfallError):
    """Trying again cannot help; people have to remove the cause first."""


class TransientError(LandfallError):
    """Trying again may help."""


class InvalidEvent(PermanentError):
    """An event that is malformed, or is about a place that no pipeline watches.

    Attributes:
        cause: what is wrong, in words that all events with the same fault share.
    """

    def __init__(self, message: str, *, cause: str = "malformed") -> None:
        super().__init__(message)
        self.cause = cause


class InvalidRequest(PermanentError):
    """A caller's request that cannot be understood; the message says how to correct it."""


class InvalidPipeline(PermanentError):
    """A pipeline file that breaks the schema; the message names file, line, key and value."""


class InvalidQueues(PermanentError):
    """A `queues.yml` that breaks its schema; the message names file, line, key and value."""


class InvalidSetting(PermanentError):
    """An app setting that is missing or malformed; the message names it, never its value."""


class InvalidManifest(PermanentError):
    """An uploader's manifest that breaks its rules; the message names blob, line and value."""


class DataRejected(PermanentError):
    """The trainer refused the dataset: too many unreadable files, one class only, or nothing."""


class DataChanged(PermanentError):
    """A blob was overwritten after its manifest was frozen; the newer content gets its own run."""


class InitialModelMismatch(PermanentError):
    """The champion that training should start from does not fit the data or the job's network."""


class InvalidResults(PermanentError):
    """A job left a `metrics.json` or `error.json` that the next attempt would leave again."""


class QuotaExceeded(PermanentError):
    """No compute option fits into the subscription's quota."""


class JobRejected(PermanentError):
    """Azure ML refused the job or the asset as it was described."""


class DeploymentRejected(PermanentError):
    """Azure ML refused a deployment, or the deployment does not answer its smoke request."""


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
    """The error of a tagged outcome or a trainer's error.json, by its type's name."""
    return _BY_NAME.get(name, otherwise)(message)


def shorten(text: str, limit_characters: int = MESSAGE_LIMIT_CHARACTERS) -> str:
    """The text on one line, cut to the limit with an ellipsis at the end."""
    line = " ".join(text.split())
    return line if len(line) <= limit_characters else line[: limit_characters - 1] + "…"


def name_some(names: Sequence[str], limit: int = 3) -> str:
    """The first of some names, and how many more there are."""
    more = len(names) - limit
    return ", ".join(map(repr, names[:limit])) + (f" and {more} more" if more > 0 else "")
