from __future__ import annotations

import signal

from trainers.signals import StopRequest


def test_sigterm_is_noted_inside_the_block_and_ends_the_process_outside() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest() as stop:
        assert not stop.requested
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # impatient
        assert stop.requested
    assert signal.getsignal(signal.SIGTERM) is before
