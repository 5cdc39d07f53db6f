"""The tables of bindings agree with each other and with the SDK."""

from __future__ import annotations

import azure.functions
import pytest

from localazure.functions import bindings
from localazure.functions.listeners import BY_HAND, LISTENERS

CALLED_OVER_HTTP = {bindings.HTTP_TRIGGER, bindings.EVENT_GRID_TRIGGER, bindings.BLOB_TRIGGER}
# The SDK has no converter of its own for these: they are text or bytes.
GENERIC = {bindings.TABLE, bindings.TWILIO_SMS, bindings.SEND_GRID}


def test_every_trigger_has_something_that_makes_it_run() -> None:
    assert LISTENERS.keys() | CALLED_OVER_HTTP | bindings.DURABLE_TRIGGERS.keys() == (
        bindings.TRIGGERS - {bindings.WARMUP_TRIGGER}
    )


def test_what_is_run_by_hand_is_a_trigger() -> None:
    assert BY_HAND.keys() <= bindings.TRIGGERS


@pytest.mark.parametrize("kind", sorted(bindings.TRIGGERS | bindings.INPUTS | bindings.OUTPUTS))
def test_the_sdk_converts_every_kind(kind: str) -> None:
    assert (azure.functions.get_binding_registry().get(kind) is None) == (kind in GENERIC)
