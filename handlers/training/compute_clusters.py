"""Activity `ensure_capacity`: a cluster that can scale to the nodes of a compute option.

Quota does not guarantee capacity: a cluster within it may still wait for nodes. Runs therefore have
a deadline on `queued`, and the next attempt starts on the next option. A cluster larger than the
quota is accepted, but never gets all its nodes, so the quota is read first.
https://learn.microsoft.com/azure/machine-learning/how-to-manage-quotas
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, cast

from azure.core.exceptions import AzureError, ResourceExistsError, ResourceNotFoundError

from handlers.platform.activity_adapter import activity
from handlers.platform.azure_ml import is_refusal, reason
from handlers.platform.clients import Clients
from handlers.training.quotas import find_shortages, key_of, no_option_fits
from orchestrations.configuration.pipeline import ComputeOption
from orchestrations.contracts.jobs import Capacity, EnsureCapacity
from orchestrations.errors import JobRejected, TransientError, shorten

if TYPE_CHECKING:
    from azure.ai.ml.entities import AmlCompute

CLUSTER_TYPE = "amlcompute"
# The service's transient provisioning states.
# https://learn.microsoft.com/rest/api/azureml/compute/get#provisioningstate
SETTLING_STATES = frozenset({"creating", "updating", "deleting"})
# The activity waits for the creation of a cluster without nodes, which takes well under a minute;
# the orchestrator waits for longer changes.
CHANGE_WAIT_SECONDS = 60.0


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
    known = find_shortages(clients, request.options)
    lasting = {key: short.message for key, short in known.items() if short.is_lasting}
    shortages = [
        (each, lasting[key_of(each)]) for each in request.options if key_of(each) in lasting
    ]
    open_options = [each for each in request.options if key_of(each) not in lasting]
    for option in sorted(open_options, key=lambda each: key_of(each) in known):
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
