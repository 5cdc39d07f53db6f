"""What Azure ML has left for a compute option: quota, vCPUs in use, idle nodes.

https://learn.microsoft.com/azure/machine-learning/how-to-manage-quotas
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from azure.core.exceptions import AzureError, ResourceNotFoundError

from handlers.platform.azure_ml import reason
from handlers.platform.clients import Clients
from orchestrations.configuration.pipeline import ComputeOption
from orchestrations.errors import QuotaExceeded

logger = logging.getLogger(__name__)

# The quota that the low-priority nodes of all VM families share in a region. The pool of
# Microsoft.Compute is another one, lowPriorityCores.
LOW_PRIORITY_CORES = "TotalLowPriorityCores"
# The names are repeated for each workspace and cluster, with its own usage.
_OF_A_WORKSPACE = "/workspaces/"


OptionKey = tuple[str, int]
"""Cluster and nodes of a compute option. Several options may use one cluster."""


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
    found: dict[OptionKey, Shortage] = {}
    for option in options:
        shortage = _shortage(clients, option, sizes.get(option.size.lower()), quotas)
        if shortage is not None:
            found[key_of(option)] = shortage
    return found


def no_option_fits(shortages: Iterable[tuple[ComputeOption, str]]) -> QuotaExceeded:
    """The error of a run whose options all exceed the quota, with the reason for each option."""
    named = (f"{each.cluster} ({each.nodes} x {each.size}): {why}" for each, why in shortages)
    return QuotaExceeded(
        "no compute option fits into the quota; ask for more, or add an option with another size: "
        + "; ".join(named)
    )


def _quotas(clients: Clients) -> dict[str, _Quota]:
    found: dict[str, _Quota] = {}
    for usage in clients.ml.compute.list_usage():
        name: Any = usage.name  # a mapping: the SDK keeps the service's document
        if usage.limit is None or usage.limit < 0 or _OF_A_WORKSPACE in str(usage.type):
            continue
        used = _field(usage, "current_value", "currentValue") or 0
        found[str(name["value"]).lower()] = _Quota(used, usage.limit)
    return found


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
