"""The base classes of all contracts.

Each contract is frozen, refuses unknown fields, and carries the version of its schema, so
that a history written by an older release is either understood or refused by name.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Traceparent = Annotated[str | None, Field(exclude_if=lambda it: it is None)]
"""The span that something happens below, as `orchestrations.trace_context` has it; None where
nothing is traced."""


class Contract(BaseModel):
    """Base of all contracts: a frozen record with a schema version."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = Field(default=1, ge=1, le=1)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types only, as the durable boundary carries them."""
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
        error: of the parser.
        whole: what the document as a whole is called.
    """
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or whole}: {problem['msg']}"
        for problem in error.errors(include_input=False, include_url=False)
    )


class Failure(Contract):
    """A failure as data: what an activity returns for an expected, permanent one."""

    type: str
    message: str
    permanent: bool


class Done(Contract):
    """Result of an activity that returns nothing else."""


Result = TypeVar("Result", bound=Contract)


class ActivityRequest(Contract, Generic[Result]):
    """Base of the inputs of activities: `class GetJob(ActivityRequest[Job])` declares `get_job`.

    The class is all that is declared of an activity: its name, its result, how long it may run, and
    how a transient fault is retried.
    """

    ATTEMPTS: ClassVar[int] = 5
    """How often the activity is tried, the first time included."""
    RETRY_SECONDS: ClassVar[float] = 5.0
    """The pause between two attempts. The SDK clients inside the activities honour Retry-After;
    these retries are for faults that outlast them."""

    LIMIT_SECONDS: ClassVar[float] = 110.0
    """After this an attempt has failed, whatever hangs. Where `functionTimeout` ends a function, it
    ends the process, and with it all that runs beside."""

    @classmethod
    def activity_name(cls) -> str:
        """The registered name: the class's name in snake case."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    @classmethod
    def result_type(cls) -> type[Result]:
        """The contract that the activity returns."""
        declared = cls.__mro__[1].__pydantic_generic_metadata__  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        return declared["args"][0]
