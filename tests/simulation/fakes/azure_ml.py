"""An Azure ML workspace in memory, as far as the handlers ask `azure.ai.ml` for it.

The SDK's package is stood in for as a whole: its import takes a second and loading a job file a
tenth of one, which ten thousand seeds cannot pay. `tests/unit/handlers/training` has the real one.
"""

from __future__ import annotations

import copy
import functools
import io
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from types import ModuleType, SimpleNamespace
from typing import Any

import yaml

from tests.fakes.azure_ml import refusal
from tests.fakes.blob_storage import remote
from tests.simulation.fakes.endpoint_clients import Deployments, Endpoints
from tests.simulation.fakes.serving import Serving
from tests.simulation.network import Network
from tests.simulation.scheduler import START

Key = tuple[str, ...]

QUOTA_CORES = 100
QUOTAS = {
    "spot": "TotalLowPriorityCores",
    "dedicated": "standardDSv5Family",
    "large": "standardDSv5Family",
}
"""Cluster → the quota that its nodes count against."""
SIZES = [
    SimpleNamespace(name="Standard_D4s_v5", family="standardDSv5Family", v_cp_us=4),
    SimpleNamespace(name="Standard_D16s_v5", family="standardDSv5Family", v_cp_us=16),
]


@dataclass
class Workspace:
    """The stored jobs, data assets, models and clusters."""

    jobs: dict[str, Any] = field(default_factory=dict[str, Any])
    data: dict[Key, Any] = field(default_factory=dict[Key, Any])
    models: dict[Key, Any] = field(default_factory=dict[Key, Any])
    clusters: dict[str, Any] = field(default_factory=dict[str, Any])
    short: Counter[str] = field(default_factory=Counter[str])
    """Cluster → how many shortages of its quota last."""
    clock: Callable[[], datetime] = lambda: START
    on_submitted: Callable[[Any], None] = lambda _: None
    on_cancelled: Callable[[str], None] = lambda _: None

    def begin_shortage(self, clusters: Iterable[str]) -> None:
        self.short.update(clusters)
        for cluster in clusters:
            self.clusters.pop(cluster, None)

    def end_shortage(self, clusters: Iterable[str]) -> None:
        self.short.subtract(clusters)


class MLClient:
    """The client; its calls go over the network."""

    def __init__(self, workspace: Workspace, serving: Serving, network: Network) -> None:
        call = functools.partial(network.call_rest, "azure_ml")
        self.online_endpoints = Endpoints(serving, "online", call)
        self.online_deployments = Deployments(serving, "online", call)
        self.batch_endpoints = Endpoints(serving, "batch", call)
        self.batch_deployments = Deployments(serving, "batch", call)
        self.jobs = Jobs(workspace, call)
        self.data = Data(workspace, call)
        self.models = Models(workspace, call)
        self.compute = Computes(workspace, call)
        datastore = SimpleNamespace(name="workspaceblobstore", container_name="azureml")
        self.datastores = SimpleNamespace(
            get_default=lambda: call("get datastore", lambda: datastore)
        )


class Part:
    """A part of the client, with what it calls the network by."""

    def __init__(self, workspace: Workspace, call: Callable[[str, Callable[[], Any]], Any]) -> None:
        self.workspace = workspace
        self.call = call


class Jobs(Part):
    @property
    def _runs_operations(self) -> Any:
        return SimpleNamespace(
            get_run_details=self._get_run_details, get_run_children=self._get_run_children
        )

    def _get_run_children(self, _name: str) -> list[Any]:
        return []  # the simulation has command jobs

    @remote("get job")
    def get(self, name: str) -> Any:
        return copy.copy(_get(self.workspace.jobs, name))

    @remote("submit job")
    def create_or_update(self, job: Any) -> Any:
        if job.name in self.workspace.jobs:
            raise refusal(409, f"job {job.name} exists")
        kept = SimpleNamespace(
            name=job.name,
            type=job.type,
            status="Queued",
            tags=dict(job.tags),
            studio_url=f"https://ml.azure.com/runs/{job.name}",
            id=f"/jobs/{job.name}",
            code=job.code,
            environment=job.environment,
            error=None,
            inputs=job.inputs,
            outputs=job.outputs,
            compute=job.compute.removeprefix("azureml:"),
            command=job.command,
            started_at=None,
            ended_at=None,
        )
        self.workspace.jobs[job.name] = kept
        self.workspace.on_submitted(kept)
        return copy.copy(kept)

    @remote("cancel job")
    def begin_cancel(self, name: str, *, polling: bool) -> None:
        assert not polling, "nobody waits for the end here"
        _get(self.workspace.jobs, name)
        self.workspace.on_cancelled(name)

    @remote("get run details")
    def _get_run_details(self, name: str) -> Any:
        job = _get(self.workspace.jobs, name)
        error = SimpleNamespace(code="UserError", message=job.error) if job.error else None
        return SimpleNamespace(
            error=error and SimpleNamespace(error=error),
            log_files={},
            start_time_utc=job.started_at,
            end_time_utc=job.ended_at,
        )


class Data(Part):
    @remote("get data")
    def get(self, name: str, version: str) -> Any:
        return _get(self.workspace.data, (name, version))

    @remote("register data")
    def create_or_update(self, asset: Any) -> Any:
        return _add_version(self.workspace.data, asset)


class Models(Part):
    @remote("get model")
    def get(self, name: str, version: str) -> Any:
        return copy.copy(_get(self.workspace.models, (name, version)))

    @remote("list models")
    def list(self, name: str, **_: Any) -> list[Any]:
        found = [model for key, model in self.workspace.models.items() if key[0] == name]
        if not found:
            raise refusal(404, f"there is no model {name}")
        return [copy.copy(model) for model in found]

    @remote("register model")
    def create_or_update(self, model: Any) -> Any:
        """Add a version, or change the tags of one; nothing else of it can change."""
        kept = self.workspace.models.get((model.name, model.version))
        if kept is None or kept.path != model.path:
            model.creation_context = SimpleNamespace(created_at=self.workspace.clock())
            model.id = f"/models/{model.name}/versions/{model.version}"
            return copy.copy(_add_version(self.workspace.models, model))
        kept.tags = dict(model.tags)
        return copy.copy(kept)


class Computes(Part):
    @remote("get cluster")
    def get(self, name: str) -> Any:
        return _get(self.workspace.clusters, name)

    @remote("list sizes")
    def list_sizes(self) -> list[Any]:
        return SIZES

    @remote("list usage")
    def list_usage(self) -> list[Any]:
        """A quota is exhausted while one of its clusters lacks nodes."""
        short = {QUOTAS[name] for name, lasting in self.workspace.short.items() if lasting > 0}
        return [
            SimpleNamespace(
                name={"value": quota},
                current_value=QUOTA_CORES if quota in short else 0,
                limit=QUOTA_CORES,
                type="Microsoft.MachineLearningServices/vmFamily/usages",
            )
            for quota in sorted(set(QUOTAS.values()))
        ]

    @remote("list nodes")
    def list_nodes(self, name: str) -> list[Any]:
        """Return no nodes: none is idle."""
        _get(self.workspace.clusters, name)
        return []

    @remote("put cluster")
    def begin_create_or_update(self, cluster: Any) -> Any:
        if self.workspace.short[cluster.name] > 0:
            raise refusal(400, "its nodes exceed the quota")
        there = self.workspace.clusters.get(cluster.name)
        if there is not None and there.provisioning_state == "Updating":
            raise refusal(409, "the cluster is being changed")
        cluster.provisioning_state = "Succeeded"
        self.workspace.clusters[cluster.name] = cluster
        return SimpleNamespace(wait=_wait, done=lambda: True)


def _add_version(assets: dict[Key, Any], asset: Any) -> Any:
    if (asset.name, asset.version) in assets:
        raise refusal(409, "a version is immutable")
    assets[asset.name, asset.version] = asset
    return asset


def _wait(_seconds: float) -> None:
    """The operation has ended."""


def modules() -> dict[str, ModuleType]:
    """The stand-ins for the package: name → module."""
    root, entities, constants, loading = (
        ModuleType(name)
        for name in (
            "azure.ai.ml",
            "azure.ai.ml.entities",
            "azure.ai.ml.constants",
            "azure.ai.ml.entities._load_functions",
        )
    )
    vars(root).update(load_job=_load_job, load_online_deployment=_load_deployment)
    vars(loading).update(load_model_batch_deployment=_load_deployment)
    vars(entities).update(
        AmlCompute=functools.partial(
            SimpleNamespace, type="amlcompute", network_settings=None, provisioning_state=None
        ),
        IdentityConfiguration=SimpleNamespace,
        ManagedIdentityConfiguration=SimpleNamespace,
        BatchEndpoint=functools.partial(SimpleNamespace, defaults=None),
        ManagedOnlineEndpoint=functools.partial(SimpleNamespace, traffic={}, mirror_traffic={}),
        Data=SimpleNamespace,
        Model=SimpleNamespace,
        JobResourceConfiguration=SimpleNamespace,
    )
    vars(constants).update(ListViewType=SimpleNamespace(ALL="All"))
    return {module.__name__: module for module in (root, entities, constants, loading)}


def _load_job(source: io.StringIO, *, relative_origin: str, params_override: Any) -> Any:
    del relative_origin
    document = dict(_parse_yaml(source.getvalue()))
    inputs: dict[str, Any] = dict(document.get("inputs") or {})
    outputs: dict[str, Any] = dict(document.get("outputs") or {})
    for override in params_override:
        for key, value in override.items():
            if key.startswith("inputs."):
                inputs[key.removeprefix("inputs.")] = value
            elif key.startswith("outputs."):
                outputs[key.removeprefix("outputs.")] = value
            else:
                document[key] = value
    return SimpleNamespace(
        type=document["type"],
        name=document["name"],
        inputs=inputs,
        outputs=outputs,
        compute=document["compute"],
        command=document["command"],
        code=None,
        environment=None,
        resources=None,
        tags=document.get("tags"),
    )


def _load_deployment(_file: Any, *, params_override: list[dict[str, Any]]) -> Any:
    given = {key: value for override in params_override for key, value in override.items()}
    return SimpleNamespace(**given)


@functools.cache
def _parse_yaml(text: str) -> dict[str, Any]:
    return yaml.safe_load(text)


def _get(store: dict[Any, Any], key: Any) -> Any:
    if key not in store:
        raise refusal(404, f"{key} was not found")
    return store[key]
