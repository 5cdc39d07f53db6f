"""Activity `ensure_capacity`: a cluster that can scale to the nodes of a compute option.

Quota does not guarantee capacity: a cluster within it may still wait for nodes. Runs therefore have
a deadline on `queued`, and the next attempt starts on the next option. A cluster larger than the
quota is accepted, but never gets all its nodes, so the quota is read first.
https://learn.microsoft.com/azure/machine-learning/how-to-manage-quotas
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, cast

from azure.core.exceptions import AzureError, ResourceExistsError, ResourceNotFoundError

from handlers.platform.activity_adapter import activity
from handlers.platform.azure_ml import is_refusal, reason
from handlers.platform.clients import Clients
from orchestrations.configuration.pipeline import ComputeOption
from orchestrations.contracts.training import Capacity, EnsureCapacity
from orchestrations.errors import JobRejected, QuotaExceeded, TransientError, shorten

if TYPE_CHECKING:
    from azure.ai.ml.entities import AmlCompute

logger = logging.getLogger(__name__)
# The quota that the low-priority nodes of all VM families share in a region. The pool of
# Microsoft.Compute is another one, lowPriorityCores.
LOW_PRIORITY_CORES = "TotalLowPriorityCores"
# The names are repeated for each workspace and cluster, with its own usage.
_OF_A_WORKSPACE = "/workspaces/"
OptionKey = tuple[str, int]
"""Cluster and nodes of a compute option. Several options may use one cluster."""
CLUSTER_TYPE = "amlcompute"
# The service's transient provisioning states.
# https://learn.microsoft.com/rest/api/azureml/compute/get#provisioningstate
SETTLING_STATES = frozenset({"creating", "updating", "deleting"})
# The activity waits for the creation of a cluster without nodes, which takes well under a minute;
# the orchestrator waits for longer changes.
CHANGE_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Shortage:
    """A compute option that exceeds the quota."""

    message: str
    is_lasting: bool
    """The option would not fit even if nothing else used the quota."""


@dataclass(frozen=True)
class _Quota:
    used: int
    limit: int


def key_of(option: ComputeOption) -> OptionKey:
    """The key of a compute option."""
    return option.cluster, option.nodes


def find_shortages(clients: Clients, options: Iterable[ComputeOption]) -> dict[OptionKey, Shortage]:
    """The options that do not fit into the quota now.

    If the quota cannot be read (this needs a role in the subscription), no option is returned:
    Azure ML itself refuses a cluster that exceeds the quota.
    """
    options = list(options)
    if not options:
        return {}
    try:
        quotas = _quotas(clients)
        sizes = {str(each.name).lower(): each for each in clients.ml.compute.list_sizes()}
    except AzureError as error:
        logger.warning("quota is not known: %s", reason(error))
        return {}
    shortages: dict[OptionKey, Shortage] = {}
    for option in options:
        shortage = _shortage(clients, option, sizes.get(option.size.lower()), quotas)
        if shortage is not None:
            shortages[key_of(option)] = shortage
    return shortages


def no_option_fits(shortages: Iterable[tuple[ComputeOption, str]]) -> QuotaExceeded:
    """The error of a run whose options all exceed the quota, with the reason for each option."""
    named = (f"{each.cluster} ({each.nodes} x {each.size}): {why}" for each, why in shortages)
    return QuotaExceeded(
        "no compute option fits into the quota; ask for more, or add an option with another size: "
        + "; ".join(named)
    )


def _quotas(clients: Clients) -> dict[str, _Quota]:
    quotas: dict[str, _Quota] = {}
    for usage in clients.ml.compute.list_usage():
        name: Any = usage.name  # a mapping: the SDK keeps the service's document
        if usage.limit is None or usage.limit < 0 or _OF_A_WORKSPACE in str(usage.type):
            continue
        used = _field(usage, "current_value", "currentValue") or 0
        quotas[str(name["value"]).lower()] = _Quota(used, usage.limit)
    return quotas


def _shortage(
    clients: Clients, option: ComputeOption, size: Any | None, quotas: Mapping[str, _Quota]
) -> Shortage | None:
    vcpus = None if size is None else _field(size, "v_cp_us", "vCPUs")
    if size is None or vcpus is None:
        return None
    family = LOW_PRIORITY_CORES if option.priority == "low_priority" else str(size.family)
    quota = quotas.get(family.lower())
    if quota is None:
        return None
    left, whole = quota.limit - quota.used, option.nodes * vcpus
    if whole <= left:
        return None
    new = max(0, option.nodes - _idle_nodes(clients, option.cluster))
    needed = new * vcpus
    if needed <= left:
        return None
    nodes = "1 new node needs" if new == 1 else f"{new} new nodes need"
    return Shortage(
        f"{quota.used} of {quota.limit} vCPUs of the quota {family} are in use, {nodes} {needed}",
        is_lasting=whole > quota.limit,
    )


def _idle_nodes(clients: Clients, cluster: str) -> int:
    """The number of idle nodes, which the quota counts as used."""
    try:
        nodes = list(clients.ml.compute.list_nodes(cluster))
    except ResourceNotFoundError:
        return 0
    except AzureError as error:
        logger.warning("the nodes of cluster %s are not known: %s", cluster, reason(error))
        return 0
    states = [_field(node, "node_state", "nodeState") for node in nodes]
    return sum(1 for state in states if str(state).lower() == "idle")


def _field(entity: Any, name: str, sent_as: str) -> Any:
    """A field of an entity; azure-ai-ml 1.35 may leave it empty and keep it under its REST name."""
    value = getattr(entity, name, None)
    return getattr(entity, sent_as, None) if value is None else value


class _QuotaShort(Exception):
    """An option exceeds the quota; the text is Azure's message."""


class _NotReady(Exception):
    """The cluster is being created or changed."""


@activity
def ensure_capacity(clients: Clients, request: EnsureCapacity) -> Capacity:
    """Find the first option within the quota, and create its cluster or raise its maximum.

    1. Read the quota of all options. Those that would never fit are out; those that do not fit now
       are tried after the others, since their jobs wait. If it cannot be read, it decides nothing.
    2. No cluster of that name: create it with a minimum of 0 nodes and the option's maximum.
    3. Its maximum is below the option's nodes: raise it. Others may use it, so never lower it.
    4. Azure ML refuses it because of the quota: try the next option.
    5. The cluster is being changed and this takes long: return "not ready"; the caller tries again.

    A cluster of that name with another VM size or priority is an error, not a reason to try the
    next option. Options are for temporary shortages; a cluster that differs from the pipeline's
    file would silently change the cost of every run. So is a cluster without managed identity,
    whose jobs can read no datastore without credentials; people give it one, not the app.

    Raises:
        QuotaExceeded: no option fits; the message has the reason for each option.
        JobRejected: a cluster differs from its option or has no identity, or Azure ML refuses its
            definition.
        InvalidSetting: `CLUSTER_IDENTITY` is missing, and it is needed.
    """
    known_shortages = find_shortages(clients, request.options)
    lasting = {key: short.message for key, short in known_shortages.items() if short.is_lasting}
    shortages = [
        (each, lasting[key_of(each)]) for each in request.options if key_of(each) in lasting
    ]
    open_options = [each for each in request.options if key_of(each) not in lasting]
    for option in sorted(open_options, key=lambda each: key_of(each) in known_shortages):
        try:
            _ensure(clients, option, requested=request.requested == option.cluster)
        except _QuotaShort as shortage:
            shortages.append((option, str(shortage)))
        except _NotReady:
            return Capacity(cluster=option.cluster, nodes=option.nodes, ready=False)
        else:
            return Capacity(cluster=option.cluster, nodes=option.nodes)
    raise no_option_fits(shortages)


def ensure_option(clients: Clients, option: ComputeOption) -> None:
    """Create the cluster of one option, or raise its maximum, and wait until it is ready.

    Raises:
        QuotaExceeded: the option exceeds the quota.
        TransientError: it is still being created or changed.
        JobRejected: see `ensure_capacity`.
    """
    request = EnsureCapacity(options=[option])
    if not ensure_capacity(clients, request).ready:
        raise TransientError(f"cluster {option.cluster} is being created or changed")


def is_quota_error(error: AzureError) -> bool:
    """Whether Azure refuses because of the quota.

    Only the message says which: the code is `BadRequest`, `OK` or missing, and a failed
    long-running operation has status 200, but every message contains "quota"
    (Azure/MachineLearningNotebooks#613, Azure/mlops-v2#81, MicrosoftDocs/azure-docs#121466).
    """
    return "quota" in str(error.message).lower()


def difference(option: ComputeOption, cluster: AmlCompute) -> str | None:
    """Properties of a cluster that contradict its option and cannot be changed, or None."""
    if cluster.type != CLUSTER_TYPE:
        return f"it is of type {cluster.type}, not {CLUSTER_TYPE}"
    if (cluster.size or "").lower() != option.size.lower():
        return f"its size is {cluster.size}, not {option.size}"
    if (cluster.tier or "dedicated").lower() != option.priority:
        return f"its priority is {cluster.tier}, not {option.priority}"
    return None


def _ensure(clients: Clients, option: ComputeOption, *, requested: bool) -> None:
    try:
        cluster = cast("AmlCompute", clients.ml.compute.get(option.cluster))
    except ResourceNotFoundError:
        _put(clients, _describe(option, clients.settings.cluster_identity))
        return
    state = (cluster.provisioning_state or "").lower()
    if state in SETTLING_STATES:
        raise _NotReady
    contradiction = difference(option, cluster)
    if contradiction is not None:
        raise JobRejected(
            f"cluster {option.cluster} exists, but {contradiction}: name another cluster in the "
            "pipeline's compute, or delete this one"
        )
    if not _has_identity(cluster) and (identity := clients.settings.cluster_identity) is not None:
        raise JobRejected(
            f"cluster {option.cluster} has no managed identity, so that its jobs can read no data: "
            f"az ml compute update --name {option.cluster} --identity-type user_assigned "
            f"--user-assigned-identities {identity} (and --resource-group, --workspace-name)"
        )
    failed = state == "failed"
    if failed and requested:
        _raise_provisioning_errors(cluster)
    too_small = (cluster.max_instances or 0) < option.nodes
    # Send a failed cluster again: this repairs it, or returns the reason again.
    if failed or too_small:
        cluster.max_instances = max(cluster.max_instances or 0, option.nodes)
        _put(clients, cluster)


def _raise_provisioning_errors(cluster: AmlCompute) -> NoReturn:
    """Raise the error of a change that failed after the activity had stopped waiting for it."""
    errors = shorten(str(getattr(cluster, "provisioning_errors", None) or "no reason is given"))
    if "quota" in errors.lower():
        raise _QuotaShort(errors)
    raise TransientError(f"cluster {cluster.name} could not be changed: {errors}")


def _put(clients: Clients, cluster: AmlCompute) -> None:
    """Create or change a cluster, and wait up to `CHANGE_WAIT_SECONDS`.

    Changes use it too, because the SDK's `begin_update` drops the cluster's subnet. It cannot send
    network settings without a subnet, which `get` invents, so they are removed first.
    """
    if cluster.network_settings is not None and cluster.network_settings.subnet is None:
        cluster.network_settings = None
    try:
        operation = clients.ml.compute.begin_create_or_update(cluster)
        operation.wait(CHANGE_WAIT_SECONDS)
    except ResourceExistsError as error:  # 409: another execution is changing it
        raise _NotReady from error
    except AzureError as error:
        if is_quota_error(error):
            raise _QuotaShort(reason(error)) from error
        if is_refusal(error):
            raise JobRejected(f"cannot have cluster {cluster.name}: {reason(error)}") from error
        raise
    if not operation.done():
        raise _NotReady


def _has_identity(cluster: AmlCompute) -> bool:
    return cluster.identity is not None and cluster.identity.type.lower() != "none"


def _describe(option: ComputeOption, identity: str | None) -> AmlCompute:
    from azure.ai.ml.entities import (  # noqa: PLC0415 - see handlers.platform.clients
        AmlCompute,
        IdentityConfiguration,
        ManagedIdentityConfiguration,
    )

    return AmlCompute(
        name=option.cluster,
        size=option.size,
        tier=option.priority,
        min_instances=0,
        max_instances=option.nodes,
        idle_time_before_scale_down=option.idle_seconds_before_scale_down,
        identity=None
        if identity is None
        else IdentityConfiguration(
            type="user_assigned",
            user_assigned_identities=[ManagedIdentityConfiguration(resource_id=identity)],
        ),
    )
