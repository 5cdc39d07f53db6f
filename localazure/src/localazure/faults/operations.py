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

_STORAGE: Final = """
    blob/blobServices/getInfo/action blob/blobServices/generateUserDelegationKey/action
    blob/containers/read blob/containers/write blob/containers/delete
    blob/containers/getAcl/action blob/containers/setAcl/action
    blob/containers/blobs/read blob/containers/blobs/write blob/containers/blobs/delete
    blob/containers/blobs/tags/read blob/containers/blobs/tags/write
    queue/queues/read queue/queues/write queue/queues/delete
    queue/queues/messages/add queue/queues/messages/process queue/queues/messages/read
    queue/queues/messages/write queue/queues/messages/delete
    table/tables/read table/tables/write table/tables/delete
    table/tables/entities/read table/tables/entities/write table/tables/entities/delete
""".split()
_ASSETS: Final = ("data", "models", "environments", "components", "codes")
_AZURE_ML: Final = [
    *(
        f"{kind}/{verb}"
        for kind in (
            *("jobs", "computes", "datastores", "schedules", "onlineendpoints", "batchendpoints"),
            *("onlineendpoints/deployments", "batchendpoints/deployments"),
            *(f"{asset}/versions" for asset in _ASSETS),
        )
        for verb in ("read", "write", "delete")
    ),
    *(f"{asset}/{verb}" for asset in _ASSETS for verb in ("read", "write")),
    *"""
    jobs/cancel/action schedules/trigger/action computes/listnodes/action
    datastores/listsecrets/action codes/versions/startpendingupload/action
    onlineendpoints/listkeys/action onlineendpoints/regeneratekeys/action
    onlineendpoints/token/action onlineendpoints/deployments/getlogs/action
    batchendpoints/jobs/read batchendpoints/jobs/action batchendpoints/deployments/jobs/read
    runs/read runs/children/read runs/details/read experiments/runs/write rundata/action
    dataversion/action dataversion/versions/read
    """.split(),
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
    known = sorted(_operations(rule, names))
    if any(_may_match(rule.operation, operation) for operation in known):
        return None
    near = get_close_matches(rule.operation, known, n=3)
    perhaps = f"perhaps {' or '.join(near)}; " if near else ""
    return (
        f"nothing of {rule.part} that can have the fault {rule.fault} matches {rule.operation!r}: "
        f"{perhaps}there is {', '.join(known)}"
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
