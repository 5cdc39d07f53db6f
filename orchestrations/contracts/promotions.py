"""Promotions of a version of a model into another workspace: their records and activities.

All activities are `QUICK`: `orchestrations.training.promotion` repeats them itself, with growing
pauses, and shows meanwhile what it waits for.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from orchestrations.configuration.approve import Approval
from orchestrations.contracts.base import Contract, Done, QuickRequest
from orchestrations.contracts.runs import Model
from orchestrations.names import promotion_id

PromotionState = Literal[
    "checking", "awaiting_approval", "copying", "registering", "promoted", "rejected", "refused"
]
ENDED: frozenset[PromotionState] = frozenset({"promoted", "rejected", "refused"})


class ModelFiles(Contract):
    """The files of a version: what is promoted, and what people agree to."""

    hash: str
    """Of the workspaces, and of path, size and MD5 (or else ETag) of every file."""
    files: int
    bytes: int
    destination: str
    """The ARM id of the workspace."""
    dataset_version: str | None = None


class PromotionStatus(Contract):
    """A promotion: the record `promotions/<id>/status.json`, and the custom status."""

    pipeline: str
    model: str
    version: str
    run: str
    """The run that trained it."""
    to: str
    """The name of the workspace in `workspaces.yml`."""
    attempt: int = 0
    """Counts the promotions of this version to this workspace: one that was refused or rejected
    may be asked for again."""
    by: str
    reason: str
    asked_at: datetime
    state: PromotionState = "checking"
    since: datetime
    why: str | None = None
    """Why it waits, or has ended so."""
    listed: ModelFiles | None = None
    approval: str | None = None
    """The question to people, if they were asked."""
    approved: str | None = None
    """Who approved it, and why."""
    copied: int = 0
    """How many files are there, and were read back."""
    registered: Model | None = None

    @property
    def id(self) -> str:
        """Its id, also the name of its instance."""
        return promotion_id(self.pipeline, self.version, self.to, self.attempt)


class CopyProgress(Contract):
    """How far the copying is: a large file is copied, and read back, in several parts."""

    files: int = 0
    """How many are there, and were read back."""
    reads_back: bool = False
    """Whether the next file is there, and is being read back."""
    offset: int = 0
    """How many bytes of it were copied, or read back."""
    link: str = ""
    """The SHA-256 up to there; that of a further part begins with it."""


class PromotionInput(Contract):
    """Input of the orchestrator `promotion`."""

    status: PromotionStatus
    rule: Approval | None = None
    """The question to people, as it was declared when the promotion was asked for."""
    progress: CopyProgress = CopyProgress()
    unknown_since: datetime | None = None
    """Since when it waits in an outage."""
    alerted: bool = False


class ListModelFiles(QuickRequest[ModelFiles]):
    """Input of `list_model_files`: list a version's files once, and keep the list."""

    promotion: PromotionStatus


class CopyModelFiles(QuickRequest[CopyProgress]):
    """Input of `copy_model_files`: copy and read back the next parts of files."""

    promotion: PromotionStatus
    progress: CopyProgress


class RegisterPromotedModel(QuickRequest[Model]):
    """Input of `register_promoted_model`: register the version in the other workspace."""

    promotion: PromotionStatus


class RecordPromotion(QuickRequest[Done]):
    """Input of `record_promotion`: keep the status, and tell operators of an end or a long wait."""

    promotion: PromotionStatus
    waits_since: datetime | None = Field(default=None, exclude_if=lambda it: it is None)
