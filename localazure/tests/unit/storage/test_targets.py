from __future__ import annotations

from collections.abc import Callable

from localazure import limits
from localazure.storage.configuration import Account, AccountKind
from localazure.storage.targets import Targets
from localazure.storage_client.endpoint import Service

STANDARD = Account(name="standard")
PREMIUM = Account(name="premium", kind=AccountKind.PREMIUM_BLOCK_BLOB)
SMALL = Account(name="small", operations_per_second=2)


def targets(clock: Callable[[], float] = lambda: 0.0) -> Targets:
    return Targets({each.name: each for each in (STANDARD, PREMIUM, SMALL)}, clock)


def served(rates: Targets, account: str, service: Service, target: str, most: int) -> int:
    """Number of requests before the first refusal."""
    for number in range(most):
        if rates.refusal_of(account, service, target) is not None:
            return number
    return most


def test_a_single_blob_is_busy_and_the_others_are_not() -> None:
    now_seconds = 0.0
    rates = targets(lambda: now_seconds)
    limit = limits.STORAGE_BLOB_REQUESTS.value
    assert served(rates, "standard", Service.BLOB, "/standard/c/hot?comp=block", 1000) == limit
    assert served(rates, "standard", Service.BLOB, "/standard/c/cold", 100) == 100
    assert served(rates, "standard", Service.BLOB, "/standard/c?restype=container", 1000) == 1000
    assert served(rates, "premium", Service.BLOB, "/premium/c/hot", 1000) == 1000
    now_seconds += 0.1
    assert served(rates, "standard", Service.BLOB, "/standard/c/hot", 1000) == limit / 10


def test_a_single_queue_is_busy() -> None:
    limit = limits.STORAGE_QUEUE_MESSAGES.value
    rates = targets()
    assert served(rates, "standard", Service.QUEUE, "/standard/q/messages", 3000) == limit
    assert served(rates, "standard", Service.QUEUE, "/standard/other/messages/id", 100) == 100
    assert served(rates, "standard", Service.QUEUE, "/standard/q?comp=metadata", 100) == 100


def test_a_whole_account_is_busy() -> None:
    limit = limits.STORAGE_ACCOUNT_REQUESTS.value
    assert served(targets(), "standard", Service.TABLE, "/standard/Tables", 30_000) == limit
    rates = targets()
    assert served(rates, "small", Service.TABLE, "/small/Tables", 10) == 2
    refusal = rates.refusal_of("small", Service.BLOB, "/small/c/b")
    assert refusal is not None
    assert (refusal.status, refusal.code) == (503, "ServerBusy")
