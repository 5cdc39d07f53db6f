"""An Azure ML workspace in memory, as far as the handlers ask `azure.ai.ml` for it.

The SDK's package is stood in for as a whole: its import takes a second and loading a job file a
tenth of one, which ten thousand seeds cannot pay. `tests/unit/handlers/azure_ml` has the real one.
"""

from __future__ import annotations

import copy
import functools
import io
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

import yaml

from tests.simulation.network import Network
from tests.unit.handlers.azure_ml_fake import refusal

Result = TypeVar("Result")
Key = tuple[str, ...]

QUOTA_CORES = 100
QUOTAS = {
    "spot": "lowPriorityCores",
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

    def __init__(self, workspace: Workspace, network: Network) -> None:
        call = functools.partial(network.call_rest, "azure_ml")
        self.jobs = Jobs(workspace, call)
        self.data = Data(workspace, call)
        self.models = Models(workspace, call)
        self.compute = Computes(workspace, call)
        datastore = SimpleNamespace(name="workspaceblobstore", container_name="azureml")
        self.datastores = SimpleNamespace(
            get_default=lambda: call("get datastore", lambda: datastore)
        )


Call = Callable[[str, Callable[[], Any]], Any]


class Jobs:
    def __init__(self, workspace: Workspace, call: Call) -> None:
        self._workspace = workspace
        self._call = call
        self._runs_operations = SimpleNamespace(
            get_run_details=self._get_run_details, get_run_children=self._get_run_children
        )

    def get(self, name: str) -> Any:
        return self._call("get job", lambda: copy.copy(_get(self._workspace.jobs, name)))

    def create_or_update(self, job: Any) -> Any:
        def effect() -> Any:
            if job.name in self._workspace.jobs:
                raise refusal(409, f"job {job.name} exists")
            kept = SimpleNamespace(
                name=job.name,
                type=job.type,
                status="Queued",
                tags=dict(job.tags),
                studio_url=f"https://ml.azure.com/runs/{job.name}",
                id=f"/jobs/{job.name}",
                code=None,
                error=None,
                inputs=job.inputs,
                compute=job.compute.removeprefix("azureml:"),
                command=job.command,
                started_at=None,
                ended_at=None,
            )
            self._workspace.jobs[job.name] = kept
            self._workspace.on_submitted(kept)
            return copy.copy(kept)

        return self._call("submit job", effect)

    def begin_cancel(self, name: str, *, polling: bool) -> None:
        assert not polling, "nobody waits for the end here"

        def effect() -> None:
            _get(self._workspace.jobs, name)
            self._workspace.on_cancelled(name)

        self._call("cancel job", effect)

    def _get_run_children(self, _name: str) -> list[Any]:
        return []  # the simulation has command jobs

    def _get_run_details(self, name: str) -> Any:
        def effect() -> Any:
            job = _get(self._workspace.jobs, name)
            error = SimpleNamespace(code="UserError", message=job.error) if job.error else None
            return SimpleNamespace(
                error=error and SimpleNamespace(error=error),
                log_files={},
                start_time_utc=job.started_at,
                end_time_utc=job.ended_at,
            )

        return self._call("get run details", effect)


class Data:
    def __init__(self, workspace: Workspace, call: Call) -> None:
        self._assets = workspace.data
        self._call = call

    def get(self, name: str, version: str) -> Any:
        return self._call("get data", lambda: _get(self._assets, (name, version)))

    def create_or_update(self, asset: Any) -> Any:
        def effect() -> Any:
            if (asset.name, asset.version) in self._assets:
                raise refusal(409, "a data version is immutable")
            self._assets[asset.name, asset.version] = asset
            return asset

        return self._call("register data", effect)


class Models:
    def __init__(self, workspace: Workspace, call: Call) -> None:
        self._models = workspace.models
        self._call = call

    def get(self, name: str, version: str) -> Any:
        return self._call("get model", lambda: _get(self._models, (name, version)))

    def list(self, name: str, **_: Any) -> list[Any]:
        return self._call("list models", lambda: self._list(name))

    def create_or_update(self, model: Any) -> Any:
        def effect() -> Any:
            if (model.name, model.version) in self._models:
                raise refusal(409, "a model version is immutable")
            self._models[model.name, model.version] = model
            return model

        return self._call("register model", effect)

    def _list(self, name: str) -> list[Any]:
        found = [model for key, model in self._models.items() if key[0] == name]
        if not found:
            raise refusal(404, f"there is no model {name}")
        return found


class Computes:
    def __init__(self, workspace: Workspace, call: Call) -> None:
        self._workspace = workspace
        self._clusters = workspace.clusters
        self._call = call

    def get(self, name: str) -> Any:
        return self._call("get cluster", lambda: _get(self._clusters, name))

    def list_sizes(self) -> list[Any]:
        return self._call("list sizes", lambda: SIZES)

    def list_usage(self) -> list[Any]:
        """A quota is used up, by somebody else, while one of its clusters is short of nodes."""

        def effect() -> list[Any]:
            short = {QUOTAS[name] for name, lasting in self._workspace.short.items() if lasting > 0}
            return [
                SimpleNamespace(
                    name={"value": quota},
                    current_value=QUOTA_CORES if quota in short else 0,
                    limit=QUOTA_CORES,
                    type="Microsoft.MachineLearningServices/vmFamily/usages",
                )
                for quota in sorted(set(QUOTAS.values()))
            ]

        return self._call("list usage", effect)

    def list_nodes(self, name: str) -> list[Any]:
        """None of them is idle."""

        def effect() -> list[Any]:
            _get(self._clusters, name)
            return []

        return self._call("list nodes", effect)

    def begin_create_or_update(self, cluster: Any) -> Any:
        def effect() -> Any:
            if self._workspace.short[cluster.name] > 0:
                raise refusal(400, "its nodes exceed the quota")
            there = self._clusters.get(cluster.name)
            if there is not None and there.provisioning_state == "Updating":
                raise refusal(409, "the cluster is being changed")
            cluster.provisioning_state = "Succeeded"
            self._clusters[cluster.name] = cluster
            return SimpleNamespace(wait=_wait, done=lambda: True)

        return self._call("put cluster", effect)


def _wait(_seconds: float) -> None:
    """The operation has ended."""


def modules() -> dict[str, ModuleType]:
    """The stand-ins for the package: name → module."""
    root, entities, constants = (
        ModuleType(name)
        for name in ("azure.ai.ml", "azure.ai.ml.entities", "azure.ai.ml.constants")
    )
    vars(root).update(load_job=_load_job)
    vars(entities).update(
        AmlCompute=functools.partial(
            SimpleNamespace, type="amlcompute", network_settings=None, provisioning_state=None
        ),
        Data=SimpleNamespace,
        Model=SimpleNamespace,
        JobResourceConfiguration=SimpleNamespace,
    )
    vars(constants).update(ListViewType=SimpleNamespace(ALL="All"))
    return {module.__name__: module for module in (root, entities, constants)}


def _load_job(source: io.StringIO, *, relative_origin: str, params_override: Any) -> Any:
    del relative_origin
    document = dict(_parse_yaml(source.getvalue()))
    inputs: dict[str, Any] = dict(document.get("inputs") or {})
    for override in params_override:
        for key, value in override.items():
            if key.startswith("inputs."):
                inputs[key.removeprefix("inputs.")] = value
            else:
                document[key] = value
    return SimpleNamespace(
        type=document["type"],
        name=document["name"],
        inputs=inputs,
        compute=document["compute"],
        command=document["command"],
        resources=None,
        tags=document.get("tags"),
    )


@functools.cache
def _parse_yaml(text: str) -> dict[str, Any]:
    return yaml.safe_load(text)


def _get(store: dict[Any, Any], key: Any) -> Any:
    if key not in store:
        raise refusal(404, f"{key} was not found")
    return store[key]
