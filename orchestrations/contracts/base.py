"""The base classes of all contracts.

Each contract is frozen, refuses unknown fields, and carries the version of its schema, so
that a document of another release is either read or refused with the field's name: a field could be
one that a decision depends on. What is refused is malformed, or of a newer release (`unreadable`).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrations.errors import InvalidRequest, LandfallError, OfAnotherRelease

Traceparent = Annotated[str | None, Field(exclude_if=lambda it: it is None)]
"""The parent span, in the form of `orchestrations.platform.trace_context`; None if nothing is
traced."""


class Contract(BaseModel):
    """Base of all contracts: a frozen record with a schema version."""

    # The errors of an orchestrator's input are shown: a URL in it can hold a token.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    schema_version: int = Field(default=1, ge=1, le=1)

    def to_dict(self) -> dict[str, Any]:
        """The contract in plain JSON types, for the durable boundary."""
        return self.model_dump(mode="json")

    @classmethod
    def from_dict(cls, document: Any) -> Self:
        """Parse what `to_dict` wrote.

        Raises:
            pydantic.ValidationError: a field is missing, unknown or of the wrong type.
        """
        return cls.model_validate(document)


def problems_of(error: ValidationError, *, whole: str) -> str:
    """List a document's errors without its values: a URL can hold a token.

    Args:
        error: the parser's.
        whole: the name of the document itself, for errors without a field.
    """
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or whole}: {problem['msg']}"
        for problem in error.errors(include_input=False, include_url=False)
    )


# The kinds of pydantic's errors that a valid document of a newer release causes: a field, a value
# or a kind that this release does not have.
_NEWER = frozenset({"extra_forbidden", "literal_error", "union_tag_invalid", "deploy_kind"})


def unreadable(error: ValidationError, what: str, *, whole: str) -> LandfallError:
    """The error for a document that is not its contract.

    While a release is deployed, workers of two releases share the queues and the task hub. A
    document of the newer one is read by a worker that knows it, so its error is transient.

    Args:
        error: the parser's.
        what: says what the document is, for the message.
        whole: as for `problems_of`.
    """
    is_newer = any(
        problem["type"] in _NEWER or problem["loc"][-1:] == ("schema_version",)
        for problem in error.errors(include_input=False, include_url=False)
    )
    problems = problems_of(error, whole=whole)
    if is_newer:
        return OfAnotherRelease(f"{what}: this release does not know all of it: {problems}")
    return InvalidRequest(f"{what}: {problems}")


class Failure(Contract):
    """A failure as data: an activity returns it for an expected, permanent failure."""

    type: str
    message: str
    permanent: bool


class Done(Contract):
    """The result of an activity that has nothing to return."""


# A step of a landing, a run or a rollout outlasts an outage of half an hour, as a run's supervision
# does (`orchestrations.platform.waiting`). Eleven attempts are at most 88 history events.
PATIENT = (5.0, 15.0, 45.0, 135.0, 300.0, 300.0, 300.0, 300.0, 300.0, 300.0)
QUICK = (5.0,)

Result = TypeVar("Result", bound=Contract)


class ActivityRequest(Contract, Generic[Result]):
    """Base of the inputs of activities: `class GetJob(ActivityRequest[Job])` declares `get_job`.

    The class declares all of an activity: its name, its result, its time limit and its retries of
    transient faults.
    """

    PAUSES_SECONDS: ClassVar[tuple[float, ...]] = PATIENT
    """The pauses after failed attempts; the last attempt follows the last pause. The SDK clients in
    activities retry first and honour Retry-After; these retries are for longer faults."""

    LIMIT_SECONDS: ClassVar[float] = 110.0
    """The time limit of an attempt. It avoids `functionTimeout`, which would end the whole process
    and everything else that runs in it."""

    @classmethod
    def activity_name(cls) -> str:
        """The registered name: the class's name in snake case."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    @classmethod
    def result_type(cls) -> type[Result]:
        """The contract that the activity returns."""
        declared = cls.__mro__[1].__pydantic_generic_metadata__  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        return declared["args"][0]


class QuickRequest(ActivityRequest[Result], Generic[Result]):
    """Base of inputs of activities whose callers repeat the call, or continue without a result."""

    PAUSES_SECONDS: ClassVar[tuple[float, ...]] = QUICK
