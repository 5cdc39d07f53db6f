"""The operations of each part that a rule of a plan can be about. Pure: no I/O.

`/*` at the end stands for a name. Those of entities, topics and subscriptions are known from files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Final

from localazure.faults.plan import (
    CLOCK,
    OF_ACTIVITIES,
    OF_ALLOCATIONS,
    OF_CLOCKS,
    OF_DELIVERIES,
    OF_MESSAGES,
    OF_NODES,
    OF_REQUESTS,
    OF_SIGNALS,
    Fault,
    Part,
    Rule,
)


def _each(kind: str, *actions: str) -> list[str]:
    return [f"{kind}/{action}" for action in actions]


_ALL: Final = ("read", "write", "delete")
_STORAGE: Final = [
    *_each("blob/blobServices", "getInfo/action", "generateUserDelegationKey/action"),
    *_each("blob/containers", *_ALL, "getAcl/action", "setAcl/action"),
    *_each("blob/containers/blobs", *_ALL, "tags/read", "tags/write"),
    *_each("queue/queues", *_ALL),
    *_each("queue/queues/messages", *_ALL, "add", "process"),
    *_each("table/tables", *_ALL),
    *_each("table/tables/entities", *_ALL),
]
_ASSETS: Final = ("data", "models", "environments", "components", "codes")
_AZURE_ML: Final = [
    *(name for asset in _ASSETS for name in _each(asset, "read", "write")),
    *(name for asset in _ASSETS for name in _each(f"{asset}/versions", *_ALL)),
    "codes/versions/startpendingupload/action",
    *_each("jobs", *_ALL, "cancel/action"),
    *_each("computes", *_ALL, "listnodes/action"),
    *_each("datastores", *_ALL, "listsecrets/action"),
    *_each("onlineendpoints", *_ALL, "listkeys/action", "regeneratekeys/action", "token/action"),
    *_each("onlineendpoints/deployments", *_ALL, "getlogs/action"),
    *_each("batchendpoints", *_ALL, "jobs/read", "jobs/action"),
    *_each("batchendpoints/deployments", *_ALL, "jobs/read"),
    *_each("runs", "read", "children/read", "details/read"),
    *_each("dataversion", "action", "versions/read"),
    *("experiments/runs/write", "rundata/action"),
]
_CLOCK: Final = {CLOCK: OF_CLOCKS}

OPERATIONS: Final[Mapping[Part, Mapping[str, Collection[Fault]]]] = {
    Part.STORAGE: dict.fromkeys(_STORAGE, OF_REQUESTS) | _CLOCK,
    Part.SERVICE_BUS: dict.fromkeys(("send/*", "settle/*"), OF_MESSAGES) | _CLOCK,
    Part.EVENT_GRID: {"publish/*": OF_REQUESTS, "deliver/*": OF_DELIVERIES} | _CLOCK,
    Part.AZURE_ML: dict.fromkeys(_AZURE_ML, OF_REQUESTS)
    | {"nodes/*": OF_NODES}
    | dict.fromkeys(("allocation/*", "deployment/*"), OF_ALLOCATIONS)
    | _CLOCK,
    Part.FUNCTIONS: {"activity/*": OF_ACTIVITIES, "signal/*": OF_SIGNALS},
}


def why_unmatched(rule: Rule, names: Mapping[str, Collection[str]]) -> str | None:
    """Return why a rule never applies, with the operations that exist; None if it may apply.

    Args:
        rule: the rule.
        names: what is known to exist, by the beginning of the operation, such as `send`.
    """
    operations = sorted(_operations(rule, names))
    if any(_may_match(rule.operation, operation) for operation in operations):
        return None
    near = get_close_matches(rule.operation, operations, n=3)
    perhaps = f"perhaps {' or '.join(near)}; " if near else ""
    return (
        f"nothing of {rule.part} that can have the fault {rule.fault} matches {rule.operation!r}: "
        f"{perhaps}there is {', '.join(operations)}"
    )


def _operations(rule: Rule, names: Mapping[str, Collection[str]]) -> Iterator[str]:
    for operation, faults in OPERATIONS[rule.part].items():
        kind = operation.removesuffix("/*")
        if rule.fault in faults and kind != operation and kind in names:
            yield from (f"{kind}/{name}" for name in names[kind])
        elif rule.fault in faults:
            yield operation


def _may_match(pattern: str, operation: str) -> bool:
    begins = operation.removesuffix("*")
    if begins == operation:
        return fnmatchcase(operation, pattern)
    # Any name may follow, so the beginning of the pattern decides.
    return any(fnmatchcase(begins, pattern[:end]) for end in range(len(pattern) + 1))
