"""Forgetting of blobs: leave their contents out of every later manifest, and find who used them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from orchestrations.contracts.base import ActivityRequest, Contract

ForgetStep = Literal["find-contents", "find-versions", "erase-events", "done"]


class ForgetProgress(Contract):
    """How far a request to forget is: the next step, and where it goes on."""

    step: ForgetStep = "find-contents"
    marker: str | None = None
    """The last manifest or log that the step has read."""


class ForgetBlobs(ActivityRequest[ForgetProgress]):
    """Input of `forget_blobs`: do the next piece of a request's work."""

    request: str
    """The id of the request, whose record names the blobs."""
    progress: ForgetProgress = ForgetProgress()


class ForgetRequest(Contract):
    """The record of a request, `forgotten/<id>/request.json`."""

    id: str
    at: datetime
    by: str
    reason: str
    blobs: dict[str, list[str]]
    """Pipeline → names in its container. Empty when the work is done: a name can be personal."""
    asked_blobs: int
    """How many blobs were named."""
    done_at: datetime | None = None


class ForgottenVersion(Contract):
    """A dataset version that has forgotten contents."""

    pipeline: str
    version: str
    blobs: int
    """How many of its lines have such a content."""
    copies_deleted: int
