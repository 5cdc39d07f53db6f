"""The base classes of all contracts.

Each contract is frozen, refuses unknown fields, and carries the version of its schema, so
that a history of an older release is either read or refused with the field's name.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Traceparent = Annotated[str | None, Field(exclude_if=lambda it: it is None)]
"""The parent span, in the form of `orchestrations.trace_context`; None if nothing is
traced."""


class Contract(BaseModel):
    """Base of all contracts: a frozen record with a schema version."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
    """List a document's errors without its values: a callback URL can hold a token.

    Args:
        error: the parser's.
        whole: the name of the document itself, for errors without a field.
    """
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or whole}: {problem['msg']}"
        for problem in error.errors(include_input=False, include_url=False)
    )


class Failure(Contract):
    """A failure as data: an activity returns it for an expected, permanent failure."""

    type: str
    message: str
    permanent: bool


class Done(Contract):
    """The result of an activity that has nothing to return."""


# A step of a landing, a run or a rollout outlasts an outage of half an hour, as a run's supervision
# does (`orchestrations.waiting`). Eleven attempts are at most 88 history events.
PATIENT = (5.0, 15.0, 45.0, 135.0, 300.0, 300.0, 300.0, 300.0, 300.0, 300.0)
# For what is asked again anyway, or what is done without.
QUICK = (5.0,)

Result = TypeVar("Result", bound=Contract)


class ActivityRequest(Contract, Generic[Result]):
    """Base of the inputs of activities: `class GetJob(ActivityRequest[Job])` declares `get_job`.

    The class declares all of an activity: its name, its result, its time limit and its retries of
    transient faults.
    """

    PAUSES_SECONDS: ClassVar[tuple[float, ...]] = PATIENT
    """The pauses after failed attempts; after the last pause follows the last attempt. The SDK
    clients in activities retry first and honor Retry-After; these retries are for longer faults."""

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
