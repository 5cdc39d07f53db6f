from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError

from handlers.platform.settings import Settings
from handlers.training.compute_clusters import ensure_capacity
from orchestrations.configuration.pipeline import ComputeOption
from orchestrations.contracts.training import Capacity, EnsureCapacity
from orchestrations.errors import InvalidSetting, JobRejected, QuotaExceeded, TransientError
from tests.fakes.azure_ml import IDENTITY, World, make_world

SPOT = ComputeOption(cluster="spot", size="Standard_D4s_v5", priority="low_priority", nodes=2)
DEDICATED = ComputeOption(cluster="dedicated", size="Standard_D4s_v5", nodes=4)
OPTIONS = EnsureCapacity(options=[SPOT, DEDICATED])


def a_cluster(**changes: Any) -> Any:
    settings = {
        "name": "spot",
        "type": "amlcompute",
        "size": "STANDARD_D4S_V5",
        "tier": "low_priority",
        "max_instances": 2,
        "provisioning_state": "Succeeded",
        "network_settings": None,
        "identity": SimpleNamespace(type="user_assigned"),
    }
    return SimpleNamespace(**settings | changes)


NO_QUOTA = "The specified subscription has a total vCPU quota of 0"


def test_a_cluster_gets_the_identity_that_reads_and_writes_the_data_of_its_jobs(
    world: World,
) -> None:
    ensure_capacity(world.clients, OPTIONS)
    identity = world.workspace.compute.get("spot").identity
    assert identity.type == "user_assigned"
    assert [each.resource_id for each in identity.user_assigned_identities] == [IDENTITY]


def test_a_deployment_may_have_no_identity_for_clusters_but_says_so() -> None:
    world = make_world({"CLUSTER_IDENTITY": ""})
    world.workspace.compute.store["dedicated",] = a_cluster(
        name="dedicated", tier="dedicated", identity=None, max_instances=4
    )
    for option in OPTIONS.options:
        assert ensure_capacity(world.clients, EnsureCapacity(options=[option])).ready
    assert world.workspace.compute.get("spot").identity is None


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "CLUSTER_IDENTITY is missing"),
        ({"CLUSTER_IDENTITY": "cluster"}, "CLUSTER_IDENTITY: .*id"),
    ],
)
def test_a_setting_that_names_no_identity_is_an_error(values: dict[str, str], said: str) -> None:
    world = make_world()
    vars(world.clients).update(settings=Settings(values))
    with pytest.raises(InvalidSetting, match=said):
        ensure_capacity(world.clients, OPTIONS)


@pytest.mark.parametrize("identity", [None, SimpleNamespace(type="None")])
def test_a_cluster_without_identity_is_named_with_the_command_that_gives_it_one(
    world: World, identity: Any
) -> None:
    """Its jobs could read nothing: each would fail, and be retried."""
    world.workspace.compute.store["spot",] = a_cluster(identity=identity, max_instances=1)
    with pytest.raises(
        JobRejected,
        match=f"spot has no managed identity.* az ml compute update --name spot --identity-type "
        f"user_assigned --user-assigned-identities {IDENTITY}",
    ):
        ensure_capacity(world.clients, OPTIONS)
    assert world.workspace.compute.created == 0


def test_a_cluster_keeps_the_identity_that_people_gave_it(world: World) -> None:
    theirs = SimpleNamespace(type="system_assigned")
    world.workspace.compute.store["spot",] = a_cluster(identity=theirs, max_instances=1)
    ensure_capacity(world.clients, OPTIONS)
    assert world.workspace.compute.get("spot").identity is theirs


def test_raises_a_maximum_that_is_too_small_and_nothing_else(world: World) -> None:
    world.workspace.compute.store["spot",] = a_cluster(max_instances=1, min_instances=1)
    ensure_capacity(world.clients, OPTIONS)
    cluster = world.workspace.compute.get("spot")
    assert (cluster.max_instances, cluster.min_instances) == (2, 1)


@pytest.mark.parametrize("subnet", [None, "/subscriptions/s/…/subnets/n"])
def test_a_cluster_that_grows_stays_in_its_subnet(world: World, subnet: str | None) -> None:
    settings = SimpleNamespace(subnet=subnet)
    world.workspace.compute.store["spot",] = a_cluster(max_instances=1, network_settings=settings)
    ensure_capacity(world.clients, OPTIONS)
    kept = world.workspace.compute.get("spot").network_settings
    assert (kept and kept.subnet) == subnet


def test_puts_a_failed_cluster_again(world: World) -> None:
    world.workspace.compute.store["spot",] = a_cluster(provisioning_state="Failed")
    ensure_capacity(world.clients, OPTIONS)
    assert world.workspace.compute.created == 1


def test_a_crash_after_the_creation_finds_the_cluster(world: World) -> None:
    world.workspace.compute.die_after_next()
    with pytest.raises(KeyboardInterrupt):
        ensure_capacity(world.clients, OPTIONS)
    assert ensure_capacity(world.clients, OPTIONS) == Capacity(cluster="spot", nodes=SPOT.nodes)
    assert world.workspace.compute.created == 0


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, NO_QUOTA),
        # The status of a failed long-running operation.
        (200, "Operation results in exceeding quota limits of Microsoft.BatchAI"),
    ],
)
def test_without_quota_the_next_option_is_taken(world: World, status: int, message: str) -> None:
    world.workspace.compute.refuse_next(status, message)
    assert ensure_capacity(world.clients, OPTIONS) == Capacity(
        cluster="dedicated", nodes=DEDICATED.nodes
    )


def test_with_no_option_left_every_option_and_reason_is_named(world: World) -> None:
    for _ in OPTIONS.options:
        world.workspace.compute.refuse_next(400, NO_QUOTA)
    with pytest.raises(
        QuotaExceeded,
        match=r"spot \(2 x Standard_D4s_v5\): The .* quota of 0; dedicated \(4 x .*quota of 0",
    ):
        ensure_capacity(world.clients, OPTIONS)


SPOT_QUOTA, DEDICATED_QUOTA = "TotalLowPriorityCores", "standardDSv5Family"


@pytest.mark.parametrize(
    ("quotas", "chosen"),
    [
        ({}, "spot"),
        ({SPOT_QUOTA: (0, 8)}, "spot"),
        ({SPOT_QUOTA: (0, 7)}, "dedicated"),  # never enough
        ({SPOT_QUOTA: (4, 8)}, "dedicated"),  # not enough now
        # Enough for none now: the job waits for the nodes of the first one that may have them.
        ({SPOT_QUOTA: (4, 8), DEDICATED_QUOTA: (1, 16)}, "spot"),
        ({SPOT_QUOTA: (0, 7), DEDICATED_QUOTA: (1, 16)}, "dedicated"),
    ],
)
def test_the_quota_is_asked_before_a_job_is_submitted(
    world: World, quotas: dict[str, tuple[int, int]], chosen: str
) -> None:
    world.workspace.compute.quotas = quotas
    assert ensure_capacity(world.clients, OPTIONS).cluster == chosen
    assert list(world.workspace.compute.store) == [(chosen,)]


def test_a_cluster_that_is_there_does_not_hide_that_the_quota_is_too_small(world: World) -> None:
    world.workspace.compute.store["spot",] = a_cluster(max_instances=8)
    world.workspace.compute.quotas = {SPOT_QUOTA: (0, 7)}
    with pytest.raises(
        QuotaExceeded, match=r"0 of 7 vCPUs of the quota TotalLow.* 2 new nodes need 8"
    ):
        ensure_capacity(world.clients, EnsureCapacity(options=[SPOT]))


def test_with_options_that_never_fit_and_one_that_is_refused_each_has_its_reason(
    world: World,
) -> None:
    world.workspace.compute.quotas = {SPOT_QUOTA: (0, 7)}
    world.workspace.compute.refuse_next(400, NO_QUOTA)
    with pytest.raises(QuotaExceeded, match=r"spot .* 0 of 7 vCPUs .*; dedicated .*quota of 0"):
        ensure_capacity(world.clients, OPTIONS)


def test_a_quota_that_cannot_be_read_decides_nothing(world: World) -> None:
    world.workspace.compute.is_quota_hidden = True
    world.workspace.compute.quotas = {SPOT_QUOTA: (0, 0)}
    assert ensure_capacity(world.clients, OPTIONS).cluster == "spot"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"size": "Standard_NC6"}, "its size is Standard_NC6, not Standard_D4s_v5"),
        ({"tier": "dedicated"}, "its priority is dedicated, not low_priority"),
        ({"tier": None}, "its priority is None, not low_priority"),
        ({"type": "computeinstance"}, "it is of type computeinstance"),
    ],
)
def test_a_cluster_that_is_not_what_the_option_says_is_an_error(
    world: World, changes: dict[str, Any], said: str
) -> None:
    world.workspace.compute.store["spot",] = a_cluster(**changes)
    with pytest.raises(JobRejected, match=said):
        ensure_capacity(world.clients, OPTIONS)


def test_another_refusal_is_permanent_and_a_fault_is_not(world: World) -> None:
    for status in (400, 503):
        world.workspace.compute.refuse_next(status, "no such VM size")
    with pytest.raises(JobRejected, match="cannot have cluster spot: no such VM size"):
        ensure_capacity(world.clients, OPTIONS)
    with pytest.raises(HttpResponseError):
        ensure_capacity(world.clients, OPTIONS)


NOT_READY = Capacity(cluster="spot", nodes=SPOT.nodes, ready=False)


def test_a_cluster_that_another_execution_changes_is_not_ready(world: World) -> None:
    world.workspace.compute.refuse_next(409, "not now")
    assert ensure_capacity(world.clients, OPTIONS) == NOT_READY


@pytest.mark.parametrize("state", ["Creating", "Updating", "Deleting"])
def test_a_cluster_that_is_being_changed_is_not_ready(world: World, state: str) -> None:
    cluster = a_cluster(provisioning_state=state)
    world.workspace.compute.store["spot",] = cluster
    assert ensure_capacity(world.clients, OPTIONS) == NOT_READY
    cluster.provisioning_state = "Succeeded"
    assert ensure_capacity(world.clients, OPTIONS).ready
    assert world.workspace.compute.created == 0


def test_a_change_that_takes_long_is_not_waited_for(world: World) -> None:
    world.workspace.compute.is_stuck = True
    assert ensure_capacity(world.clients, OPTIONS) == NOT_READY


@pytest.mark.parametrize(
    ("errors", "raised"),
    [("ClusterCoreQuotaReached: no quota", QuotaExceeded), ("Allocation failed", TransientError)],
)
def test_a_change_of_this_run_that_failed_later_says_why(
    world: World, errors: str, raised: type[Exception]
) -> None:
    """The cluster is not sent again, which would wait for the same failure each time."""
    cluster = a_cluster(provisioning_state="Failed", provisioning_errors=errors)
    world.workspace.compute.store["spot",] = cluster
    request = EnsureCapacity(options=[SPOT], requested="spot")
    with pytest.raises(raised, match=errors):
        ensure_capacity(world.clients, request)
    assert world.workspace.compute.created == 0
