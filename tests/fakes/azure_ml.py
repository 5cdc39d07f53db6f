"""A fake in memory of the parts of an Azure ML workspace that activities use; clients of it."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError

from handlers.platform.clients import Clients
from handlers.platform.settings import Settings
from tests.fakes.blob_storage import BlobServiceClient, ContainerClient
from tests.fakes.storage_account import StorageAccount

FIRST_WRITE = datetime(2026, 11, 21, tzinfo=UTC)
IDENTITY = (
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity"
    "/userAssignedIdentities/cluster"
)


def refusal(status: int, message: str) -> HttpResponseError:
    """The SDK's error for a response with this status."""
    kind = {404: ResourceNotFoundError, 409: ResourceExistsError}.get(status, HttpResponseError)
    error = kind(message)
    error.status_code = status
    return error


@dataclass
class Resources:
    """One kind of resource; the next calls that create one can fail in chosen ways."""

    key: Callable[[Any], tuple[str, ...]]
    store: dict[tuple[str, ...], Any] = field(default_factory=dict[tuple[str, ...], Any])
    faults: list[Callable[[Any], None]] = field(default_factory=list[Callable[[Any], None]])
    puts: list[Any] = field(default_factory=list[Any])

    @property
    def created(self) -> int:
        return len(self.puts)

    def refuse_next(self, status: int, message: str) -> None:
        """Refuse the next call after those that have a fault already."""

        def refuse(_: Any) -> None:
            raise refusal(status, message)

        self.faults.append(refuse)

    def create_before_next(self, other: Any) -> None:
        """Create a resource of the same name just before the next call, like another process."""

        def conflict(_: Any) -> None:
            self.store[self.key(other)] = other
            raise refusal(409, "it exists")

        self.faults.append(conflict)

    def die_after_next(self) -> None:
        """Raise KeyboardInterrupt after the next resource is created, as if the process died."""

        def die(resource: Any) -> None:
            self.store[self.key(resource)] = resource
            raise KeyboardInterrupt

        self.faults.append(die)

    def get(self, *key: str) -> Any:
        if key not in self.store:
            raise refusal(404, f"{key} was not found")
        return self.store[key]

    def create_or_update(self, resource: Any) -> Any:
        if self.faults:
            self.faults.pop(0)(resource)
        self.store[self.key(resource)] = resource
        self.puts.append(resource)
        return resource


class Versions(Resources):
    def __init__(self) -> None:
        super().__init__(key=lambda asset: (asset.name, str(asset.version)))
        self.archived: set[tuple[str, str]] = set()

    def list(self, name: str, *, list_view_type: str = "ActiveOnly") -> Any:
        hidden = set() if list_view_type == "All" else self.archived
        found = [asset for key, asset in self.store.items() if key[0] == name and key not in hidden]
        if not found:
            raise refusal(404, f"{name} was not found")
        return iter([copy.copy(asset) for asset in found])


class Jobs(Resources):
    def __init__(self) -> None:
        super().__init__(key=lambda job: (job.name,))
        self.cancelled: list[str] = []
        self.cancel_faults: list[Callable[[str], None]] = []
        self.run_error: Any = None
        self.log_files: dict[str, str] = {}
        self.children: dict[str, list[Any]] = {}
        self.histories_read: list[str] = []
        self.histories: dict[str, Any] = {}
        self._runs_operations = SimpleNamespace(
            get_run_details=self._get_run_details,
            get_run_children=self._get_run_children,
        )

    def create_or_update(self, resource: Any) -> Any:
        super().create_or_update(resource)
        return vary(resource, "Queued")

    def get(self, *key: str) -> Any:
        job = super().get(*key)
        return job if isinstance(job, SimpleNamespace) else vary(job, "Queued")

    def list(self, *, parent_job_name: str) -> Any:
        return iter(self.children.get(parent_job_name, []))

    def begin_cancel(self, name: str, *, polling: bool) -> None:
        assert not polling, "nobody waits for the end here"
        if self.cancel_faults:
            self.cancel_faults.pop(0)(name)
        self.cancelled.append(name)

    # Any, because `list` is a method in this class.
    def _get_run_children(self, name: str) -> Any:
        return self.children.get(name, [])

    def _get_run_details(self, name: str) -> Any:
        self.histories_read.append(name)
        if isinstance(self.run_error, Exception):
            raise self.run_error
        if name in self.histories:
            return self.histories[name]
        return SimpleNamespace(error=self.run_error, run=name, log_files=self.log_files)


def vary(job: Any, status: str) -> Any:
    return a_job(job.name, status, job.tags)


def a_job(name: str, status: str, tags: Mapping[str, str] | None = None, **more: Any) -> Any:
    """A job with the attributes of the result of `jobs.get`."""
    usual = {"type": "command", "studio_url": f"https://ml/{name}", "code": "/codes/c"}
    more = {"id": f"/jobs/{name}", **usual} | more
    return SimpleNamespace(name=name, status=status, tags=tags, **more)


class Operation:
    """A long-running operation that ends in `wait`; without `end`, it never ends."""

    def __init__(self, end: Callable[[], Any] | None) -> None:
        self._end = end

    def wait(self, timeout: float) -> None:
        assert timeout > 0
        if self._end is not None:
            self._end()

    def done(self) -> bool:
        return self._end is not None


class Computes(Resources):
    def __init__(self) -> None:
        super().__init__(key=lambda cluster: (cluster.name,))
        self.is_stuck = False
        self.quotas: dict[str, tuple[int, int]] = {}
        """Name → vCPUs in use, and the most that are allowed."""
        self.is_quota_hidden = False

    def list_usage(self) -> list[Any]:
        if self.is_quota_hidden:
            raise refusal(403, "AuthorizationFailed")
        return [
            SimpleNamespace(name={"value": name}, type="usages", current_value=used, limit=limit)
            for name, (used, limit) in self.quotas.items()
        ]

    def list_sizes(self) -> list[Any]:
        return [SimpleNamespace(name="Standard_D4s_v5", family="standardDSv5Family", v_cp_us=4)]

    def list_nodes(self, _: str) -> list[Any]:
        return []

    def begin_create_or_update(self, cluster: Any) -> Operation:
        return Operation(None if self.is_stuck else lambda: self.create_or_update(cluster))


def a_deployment(name: str, endpoint: str, model: str, state: str = "Succeeded") -> Any:
    """A deployment that a rollout made for a model."""
    tags = {"landfall.rollout": f"rollout-{endpoint}", "landfall.model": model}
    return SimpleNamespace(
        name=name,
        endpoint_name=endpoint,
        provisioning_state=state,
        tags=tags,
        model=f"/workspaces/w/models/{model.replace(':', '/versions/')}",
    )


def an_endpoint(name: str, **traffic: int) -> Any:
    shares = {key.replace("_", "-"): share for key, share in traffic.items()}
    return SimpleNamespace(name=name, traffic=shares, mirror_traffic={})


class Deployments(Resources):
    def __init__(self) -> None:
        super().__init__(key=lambda it: (it.name, it.endpoint_name))

    def list(self, endpoint: str) -> Any:
        return iter([it for key, it in self.store.items() if key[1] == endpoint])


class Workspace:
    def __init__(self) -> None:
        self.jobs = Jobs()
        self.data = Versions()
        self.models = Versions()
        self.compute = Computes()
        self.online_endpoints = Resources(key=lambda endpoint: (endpoint.name,))
        self.online_deployments = Deployments()
        self.asked_for_default = itertools.count()
        self.datastores = SimpleNamespace(get_default=self._default)

    def _default(self) -> Any:
        assert next(self.asked_for_default) == 0, "asked for once, then kept"
        return SimpleNamespace(name="workspaceblobstore", container_name="azureml-blobstore")


class Background:
    """Background work that is done at once."""

    def submit(self, work: Callable[[], None]) -> bool:
        work()
        return True


@dataclass
class World:
    """Clients of the handlers, and the fakes that they use."""

    clients: Clients
    workspace: Workspace
    records: ContainerClient
    results: ContainerClient
    account: StorageAccount


def make_world(settings: Mapping[str, str] | None = None) -> World:
    values = {"CLUSTER_IDENTITY": IDENTITY, **(settings or {})}
    # In the order of the writes, as a listing shows them.
    account = StorageAccount(lambda: FIRST_WRITE + timedelta(seconds=next(seconds)))
    seconds, blobs = itertools.count(), BlobServiceClient(account, lambda _, effect: effect())
    clients, workspace = Clients(Settings(values)), Workspace()
    # functools.cached_property keeps its values here.
    vars(clients).update(ml=workspace, blobs=blobs, workspace_blobs=blobs)
    results = blobs.get_container_client("azureml-blobstore")
    records: Any = clients.records
    return World(clients, workspace, records, results, account)
