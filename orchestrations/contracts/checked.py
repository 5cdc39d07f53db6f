"""What a check before the training found, and what follows if it ends the run."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from orchestrations.configuration.checks import CheckStage
from orchestrations.contracts.base import ActivityRequest, Contract, Done
from orchestrations.contracts.runs import RunCost, RunRequest

RULES_LIMIT = 100
_Text = Annotated[str, StringConstraints(max_length=300)]
_Value = float | int | bool | _Text | None


class CheckedRule(BaseModel):
    """One rule of a check: its verdict with the numbers, as `checks.json` has it."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", allow_inf_nan=False, hide_input_in_errors=True
    )

    name: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    passed: bool
    value: _Value = None
    limit: _Value = None
    message: _Text = ""

    def __str__(self) -> str:
        numbers = "" if self.value is None else f" is {_shown(self.value)}"
        limit = "" if self.limit is None else f" (limit {_shown(self.limit)})"
        return f"{self.name}{numbers}{limit}" + (f": {self.message}" if self.message else "")


class ChecksFile(BaseModel):
    """`checks.json`, which a data check writes into its output `results`; other keys are ignored.

    `passed` is the verdict. A rule that failed in a check that has passed is a warning.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    passed: bool
    checks: Annotated[tuple[CheckedRule, ...], Field(max_length=RULES_LIMIT)] = ()
    report: Annotated[
        str | None, StringConstraints(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}\.html$")
    ] = None
    """A file beside `checks.json`, for people."""


class Checked(Contract):
    """A verdict on a batch before its training."""

    passed: bool
    message: str
    """A sentence with the numbers that decided."""
    rules: tuple[CheckedRule, ...] = ()
    report: str | None = None
    """The HTML report of the job: container and blob in the storage account of the workspace."""
    job: str | None = None
    job_url: str | None = None
    """The job in Azure ML studio."""
    cost: RunCost | None = None
    """The cost of its job's nodes, if the run was in a queue."""
    saved: str | None = None
    """A sentence: what the training that was not needed would have cost."""


class EndedByCheck(Contract):
    """The record of a check that ended a round of training: it does not count as trained on."""

    run: str
    stage: CheckStage
    message: str
    at: datetime
    configuration: str | None
    batch: str
    """The batch that claimed the round."""
    saved: str | None = None
    """As in `Checked`."""


class EndByCheck(ActivityRequest[EndedByCheck]):
    """Input of `end_by_check`."""

    request: RunRequest
    message: str
    at: datetime


class ListNewFiles(ActivityRequest[Done]):
    """Input of `list_new_files`: write the manifest of the files that `base` has not.

    Its folder is `names.new_files_folder`.
    """

    pipeline: str
    version: str
    base: str


def _shown(value: float | str) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
