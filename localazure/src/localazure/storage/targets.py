"""Refuses requests beyond the scalability targets of accounts, blobs and queues. Pure.

Sources: https://learn.microsoft.com/azure/storage/common/scalability-targets-standard-account,
https://learn.microsoft.com/azure/storage/blobs/scalability-targets and
https://learn.microsoft.com/azure/storage/queues/scalability-targets. No numbers are published for
premium accounts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from localazure import limits
from localazure.storage.configuration import Account, AccountKind
from localazure.storage.refusal import SERVER_BUSY, Refusal
from localazure.storage_client.endpoint import Service
from localazure.token_buckets import TokenBuckets

_ACCOUNT_IS_BUSY: Final = replace(
    SERVER_BUSY, message="Operations per second is over the account limit."
)


class Targets:
    """The rates of all accounts.

    Args:
        accounts: the accounts by name.
        clock: returns seconds, from any origin.
    """

    def __init__(
        self, accounts: Mapping[str, Account], clock: Callable[[], float] = time.monotonic
    ) -> None:
        def buckets(per_second: int) -> TokenBuckets:
            return TokenBuckets(per_second, per_second, clock)

        self._kinds = {account.name: account.kind for account in accounts.values()}
        self._accounts = {
            account.name: buckets(rate)
            for account in accounts.values()
            if (rate := _operations_per_second(account)) is not None
        }
        self._items = {
            Service.BLOB: buckets(limits.STORAGE_BLOB_REQUESTS.value),
            Service.QUEUE: buckets(limits.STORAGE_QUEUE_MESSAGES.value),
        }

    def refusal_of(self, account: str, service: Service, target: str) -> Refusal | None:
        """Return why a request is refused. An accepted request (None) is counted.

        Args:
            account: the account's name.
            service: the service of the request.
            target: path and query as sent, the account first.
        """
        of_account = self._accounts.get(account)
        if of_account is not None and of_account.take(account):
            return _ACCOUNT_IS_BUSY
        items = self._items.get(service)
        item = _item(service, target)
        is_standard = self._kinds.get(account) is AccountKind.STANDARD
        if items is not None and item and is_standard and items.take((account, item)):
            return SERVER_BUSY
        return None


def _operations_per_second(account: Account) -> int | None:
    if account.operations_per_second is not None:
        return account.operations_per_second
    is_standard = account.kind is AccountKind.STANDARD
    return limits.STORAGE_ACCOUNT_REQUESTS.value if is_standard else None


def _item(service: Service, target: str) -> str:
    """The blob or the queue of a request; empty for other requests."""
    _, _, rest = target.partition("?")[0].removeprefix("/").partition("/")
    container, _, blob = rest.partition("/")
    if service is Service.QUEUE:
        return container if blob.startswith("messages") else ""
    return rest if blob else ""
