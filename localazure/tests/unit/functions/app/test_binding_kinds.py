"""The tables of binding kinds are consistent with each other and with the SDK."""

from __future__ import annotations

import azure.functions
import pytest

from localazure.functions.app import binding_kinds
from localazure.functions.triggers.registry import BY_HAND, LISTENERS

CALLED_OVER_HTTP = {
    binding_kinds.HTTP_TRIGGER,
    binding_kinds.EVENT_GRID_TRIGGER,
    binding_kinds.BLOB_TRIGGER,
}
# The SDK has no converters for these kinds: their values are text or bytes.
GENERIC = {binding_kinds.TABLE, binding_kinds.TWILIO_SMS, binding_kinds.SEND_GRID}


def test_every_trigger_has_something_that_makes_it_run() -> None:
    assert LISTENERS.keys() | CALLED_OVER_HTTP | binding_kinds.DURABLE_TRIGGERS.keys() == (
        binding_kinds.TRIGGERS - {binding_kinds.WARMUP_TRIGGER}
    )


def test_what_is_run_by_hand_is_a_trigger() -> None:
    assert BY_HAND.keys() <= binding_kinds.TRIGGERS


@pytest.mark.parametrize(
    "kind", sorted(binding_kinds.TRIGGERS | binding_kinds.INPUTS | binding_kinds.OUTPUTS)
)
def test_the_sdk_converts_every_kind(kind: str) -> None:
    assert (azure.functions.get_binding_registry().get(kind) is None) == (kind in GENERIC)
