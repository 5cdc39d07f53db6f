"""ARM ids and URIs of one workspace: built, parsed, and resolved to blobs. Pure.

URI forms that inputs, outputs and assets may hold:
https://learn.microsoft.com/azure/machine-learning/reference-yaml-core-syntax
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from localazure.machinelearning.errors import invalid
from localazure.runtime.environment import STORAGE_ACCOUNT, Environment

PROVIDER = "Microsoft.MachineLearningServices"
DEFAULT_ARTIFACTS = "artifacts"
"""The output that every job has: `./outputs`, what it logged through MLflow, and its own logs."""

_ARM_WORKSPACE = re.compile(
    r"^(?:azureml:)?/subscriptions/[^/]+/resourceGroups/[^/]+/providers/"
    r"Microsoft\.MachineLearningServices/workspaces/[^/]+(?P<rest>/.*)?$",
    re.IGNORECASE,
)
_LONG_FORM = re.compile(
    r"^azureml://subscriptions/[^/]+/resource[gG]roups/[^/]+/(?:providers/"
    r"Microsoft\.MachineLearningServices/)?workspaces/[^/]+/",
    re.IGNORECASE,
)
_DATASTORE = re.compile(r"^azureml://datastores/(?P<name>[^/]+)/paths/(?P<path>.*)$")
_JOB_OUTPUT = re.compile(
    r"^azureml://jobs/(?P<job>[^/]+)/outputs/(?P<output>[^/]+)(?:/paths/?(?P<path>.*))?$"
)
_RUN = re.compile(r"^runs:/+(?P<run>[^/]+)(?:/(?P<path>.*))?$")
_WASBS = re.compile(r"^wasbs?://(?P<container>[^@/]+)@(?P<host>[^/]+)/(?P<path>.*)$")
_SHORT_COMPUTE = re.compile(r"^azureml:(?P<name>[A-Za-z][A-Za-z0-9-]*)$")
_SHORT_ASSET = re.compile(r"^azureml:(?P<name>[^:/@]+):(?P<version>[^:/@]+)$")
_VERSIONED = re.compile(r"^/(?P<kind>[A-Za-z]+)/(?P<name>[^/]+)/versions/(?P<version>[^/]+)$")


@dataclass(frozen=True)
class AssetVersion:
    """A named, versioned asset of the workspace; kind is its ARM collection, such as `data`."""

    kind: str
    name: str
    version: str


@dataclass(frozen=True)
class DatastorePath:
    """A path below a datastore's root."""

    datastore: str
    path: str


@dataclass(frozen=True)
class JobOutputPath:
    """A path below a named output of another job."""

    job: str
    output: str
    path: str


@dataclass(frozen=True)
class BlobPath:
    """A blob, or a folder of blobs, in a storage account."""

    container: str
    path: str
    account: str = STORAGE_ACCOUNT

    def child(self, name: str) -> BlobPath:
        """The path of an entry below this one."""
        return BlobPath(self.container, f"{self.path.rstrip('/')}/{name}".lstrip("/"), self.account)


@dataclass(frozen=True)
class WebUrl:
    """A public file, or a folder of a public container, outside the local storage accounts."""

    url: str


Address = AssetVersion | DatastorePath | JobOutputPath | BlobPath | WebUrl


def workspace_id(environment: Environment) -> str:
    """ARM id of the one workspace."""
    return environment.resource_id(f"{PROVIDER}/workspaces/{environment.workspace}")


def child_of_workspace(identifier: str) -> str:
    """The part of an ARM id after the workspace: `/computes/gpu` for example.

    Raises:
        ArmError: 400, the id is not below a workspace.
    """
    match = _ARM_WORKSPACE.match(identifier)
    if match is None or not match["rest"]:
        raise invalid(f"{identifier!r} is not the ARM id of something in a workspace")
    return match["rest"]


def parse_compute(identifier: str) -> str:
    """Name of the cluster that a job's `computeId` names, by ARM id or as `azureml:name`.

    Raises:
        ArmError: 400, the value does not name a cluster of a workspace (`local` is not covered).
    """
    short = _SHORT_COMPUTE.match(identifier)
    if short is not None:
        return short["name"]
    kind, _, name = child_of_workspace(identifier).strip("/").partition("/")
    if kind.lower() != "computes" or not name:
        raise invalid(f"computeId {identifier!r} does not name a compute of the workspace")
    return name


def parse_asset(identifier: str, *, kind: str) -> AssetVersion:
    """An asset by ARM id or by `azureml:name:version`.

    Args:
        identifier: either form.
        kind: ARM collection that the short form belongs to.

    Raises:
        ArmError: 400, the identifier has another form.
    """
    short = _SHORT_ASSET.match(identifier)
    if short is not None:
        return AssetVersion(kind, short["name"], short["version"])
    versioned = _VERSIONED.match(child_of_workspace(identifier))
    if versioned is None:
        raise invalid(f"{identifier!r} names no version of an asset")
    return AssetVersion(versioned["kind"].lower(), versioned["name"], versioned["version"])


def parse_uri(uri: str, *, asset_kind: str = "data") -> Address:
    """Parse the `uri` of an input, an output, a data asset or a model.

    Args:
        uri: in any form that Azure ML documents.
        asset_kind: ARM collection that `azureml:name:version` belongs to.

    Raises:
        ArmError: 400, the form is unknown.
    """
    short = _LONG_FORM.sub("azureml://", uri)
    if match := _DATASTORE.match(short):
        return DatastorePath(match["name"], _safe_path(match["path"], uri))
    if match := _JOB_OUTPUT.match(short):
        return JobOutputPath(match["job"], match["output"], _safe_path(match["path"] or "", uri))
    if match := _RUN.match(uri):
        path = _safe_path(match["path"] or "", uri)
        return JobOutputPath(match["run"], DEFAULT_ARTIFACTS, path)
    if match := _WASBS.match(uri):
        path = f"{match['container']}/{match['path']}"
        return _parse_web_url(f"https://{match['host']}/{path}")
    if uri.startswith(("http://", "https://")):
        return _parse_web_url(uri)
    if uri.startswith(("azureml:", "/subscriptions/")) and not uri.startswith("azureml://"):
        return parse_asset(uri, kind=asset_kind)
    raise invalid(
        f"{uri!r} is not a URI that the local workspace can read; use azureml:name:version, "
        "azureml://datastores/…/paths/…, azureml://jobs/…/outputs/…/paths/…, runs:/RUN/PATH, "
        "an http(s) URL or wasbs://container@account.blob.core.windows.net/…"
    )


def local_blob(url: str, accounts: Collection[str]) -> BlobPath | None:
    """Return the blob that a URL names; None if it is not in a local account.

    URLs are `http://127.0.0.1:…/account/container/…` or `https://account.blob.…/container/…`. In
    the URLs that the SDK builds, `account.blob.…` is the user name: see `storage_suffix`.

    Raises:
        ArmError: 400, a local URL names no container, or its path is not allowed.
    """
    parts = urlsplit(url)
    path = unquote(parts.path).lstrip("/")
    first, _, rest = path.partition("/")
    account = (parts.username or parts.hostname or "").partition(".blob.")[0]
    if first in accounts:
        account, path = first, rest
    elif account not in accounts:
        return None
    container, _, blob = path.partition("/")
    if not container:
        raise invalid(f"{url!r} names no container")
    return BlobPath(container, _safe_path(blob, url), account)


def _parse_web_url(url: str) -> BlobPath | WebUrl:
    """A blob of the built-in account, or a URL, which may be in another local account."""
    blob = local_blob(url, (STORAGE_ACCOUNT,))
    if blob is None:
        _safe_path(unquote(urlsplit(url).path).lstrip("/"), url)
        return WebUrl(url)
    return blob


def _safe_path(path: str, uri: str) -> str:
    """Return the path without a trailing slash; refuse a path that leaves its folder."""
    parts = path.strip("/").split("/")
    if any(part in {".", ".."} or "\\" in part or "\0" in part for part in parts):
        raise invalid(f"{uri!r} holds a path segment that is not allowed")
    return "/".join(parts)
