"""Activity `ensure_capacity`: a cluster that may grow to the nodes of one rung of the ladder.

Quota is a credit limit and no capacity: a cluster that exists may still wait for nodes. For that,
runs have a deadline on `queued`, and the next attempt starts on the next rung.
https://learn.microsoft.com/azure/machine-learning/how-to-manage-quotas
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from azure.core.exceptions import AzureError, ResourceExistsError, ResourceNotFoundError

from handlers.azure_ml.errors import is_refusal, reason
from handlers.configuration.clients import Clients
from handlers.durable.activity_adapter import activity
from orchestrations.contracts.jobs import Capacity, EnsureCapacity
from orchestrations.errors import JobRejected, QuotaExceeded, TransientError
from orchestrations.pipeline import Rung

if TYPE_CHECKING:
    from azure.ai.ml.entities import AmlCompute

CLUSTER_TYPE = "amlcompute"
# The service's own provisioning states that end by themselves.
# https://learn.microsoft.com/rest/api/azureml/compute/get#provisioningstate
SETTLING_STATES = frozenset({"creating", "updating", "deleting"})
# A cluster without nodes is made in well under a minute; an activity may last five on the
# Consumption plan.
SETTLE_SECONDS = 120.0
SETTLE_POLL_SECONDS = 3.0


class _QuotaShort(Exception):
    """A rung does not fit into the quota; the text is what Azure said."""


@activity
def ensure_capacity(clients: Clients, request: EnsureCapacity) -> Capacity:
    """Find the first rung that fits into the quota; make its cluster, or let it grow.

    1. No cluster of that name: create it, from no nodes up to the rung's.
    2. Its maximum is below the rung's nodes: raise it. It is never lowered, others may use it.
    3. Quota stands in the way: the next rung.

    A cluster of that name that has another VM size or priority is an error and not a reason for
    the next rung: the ladder answers to a shortage, which passes, and a cluster that is not what
    the pipeline says would cost other money, silently, on every run.

    Raises:
        QuotaExceeded: no rung fits; names each and what Azure said.
        JobRejected: a cluster is not what its rung says, or Azure ML refuses it as described.
        TransientError: a cluster is still being changed by somebody else.
    """
    shortages: list[str] = []
    for rung in request.rungs:
        try:
            _ensure(clients, rung)
        except _QuotaShort as shortage:
            shortages.append(f"{rung.cluster} ({rung.nodes} x {rung.size}): {shortage}")
        else:
            return Capacity(cluster=rung.cluster, nodes=rung.nodes)
    raise QuotaExceeded(_no_rung_left(shortages))


def is_quota_error(error: AzureError) -> bool:
    """Whether Azure refuses for want of quota.

    By its words: the code is `BadRequest`, `OK` or none at all, and a failed long-running
    operation has status 200, but every message speaks of quota
    (Azure/MachineLearningNotebooks#613, Azure/mlops-v2#81, MicrosoftDocs/azure-docs#121466).
    """
    return "quota" in str(error.message).lower()


def difference(rung: Rung, cluster: AmlCompute) -> str | None:
    """What of an existing cluster contradicts its rung, and cannot be changed; None if nothing."""
    if cluster.type != CLUSTER_TYPE:
        return f"it is of type {cluster.type}, not {CLUSTER_TYPE}"
    if (cluster.size or "").lower() != rung.size.lower():
        return f"its size is {cluster.size}, not {rung.size}"
    if (cluster.tier or "dedicated").lower() != rung.priority:
        return f"its priority is {cluster.tier}, not {rung.priority}"
    return None


def _ensure(clients: Clients, rung: Rung) -> None:
    cluster = _find_settled(clients, rung.cluster)
    if cluster is None:
        _put(clients, _describe(rung))
        return
    contradiction = difference(rung, cluster)
    if contradiction is not None:
        raise JobRejected(
            f"cluster {rung.cluster} exists, but {contradiction}: name another cluster in the "
            "pipeline's compute, or delete this one"
        )
    # A failed cluster is put again: that mends it, or says once more why not.
    failed = (cluster.provisioning_state or "").lower() == "failed"
    too_small = (cluster.max_instances or 0) < rung.nodes
    if failed or too_small:
        cluster.max_instances = max(cluster.max_instances or 0, rung.nodes)
        _put(clients, cluster)


def _find_settled(clients: Clients, name: str) -> AmlCompute | None:
    """The cluster once nobody is changing it (an execution of this activity that was cut off)."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        try:
            cluster = cast("AmlCompute", clients.ml.compute.get(name))
        except ResourceNotFoundError:
            return None
        state = (cluster.provisioning_state or "").lower()
        if state not in SETTLING_STATES:
            return cluster
        if time.monotonic() >= deadline:
            raise TransientError(f"cluster {name} has been {state} for {SETTLE_SECONDS:.0f} s")
        time.sleep(SETTLE_POLL_SECONDS)


def _put(clients: Clients, cluster: AmlCompute) -> None:
    """Create or change a cluster, and wait until the service has.

    For a change too: the SDK's `begin_update` would forget the cluster's subnet. But this one
    cannot send back the network settings without a subnet that `get` makes up.
    """
    if cluster.network_settings is not None and cluster.network_settings.subnet is None:
        cluster.network_settings = None
    try:
        operation = clients.ml.compute.begin_create_or_update(cluster)
        operation.wait(SETTLE_SECONDS)
    except ResourceExistsError:
        raise  # 409: an execution beside this one is changing it; the next look will tell
    except AzureError as error:
        if is_quota_error(error):
            raise _QuotaShort(reason(error)) from error
        if is_refusal(error):
            raise JobRejected(f"cannot have cluster {cluster.name}: {reason(error)}") from error
        raise

    if not operation.done():
        raise TransientError(f"cluster {cluster.name} is not ready after {SETTLE_SECONDS:.0f} s")


def _describe(rung: Rung) -> AmlCompute:
    from azure.ai.ml.entities import AmlCompute  # noqa: PLC0415 - see handlers.configuration.clients

    return AmlCompute(
        name=rung.cluster,
        size=rung.size,
        tier=rung.priority,
        min_instances=0,
        max_instances=rung.nodes,
        idle_time_before_scale_down=rung.idle_seconds_before_scale_down,
    )


def _no_rung_left(shortages: Sequence[str]) -> str:
    return (
        "no rung of the compute ladder fits into the quota; ask for more, or add a rung with "
        "another size: " + "; ".join(shortages)
    )
