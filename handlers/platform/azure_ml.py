"""The import of azure.ai.ml, and which of Azure's errors are permanent refusals.

The import is slow and can fail during an outage of Azure: the SDK requests the cloud's endpoints
from Azure Resource Manager. If that fails, Python removes only the module that failed; the partly
initialised modules stay, and every later import in this process fails.

For a cloud whose name it does not know (Azure Stack, a laptop's), the SDK requests the endpoints
again, on a new connection, for each job that it reads or submits: it stores them under wrong keys.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Callable, Generator
from typing import Any, ParamSpec, TypeVar

from azure.core.exceptions import (
    AzureError,
    HttpResponseError,
    ResourceNotFoundError,
    ServiceRequestError,
    ServiceResponseError,
)

from orchestrations.errors import JobRejected, shorten

# Excludes 401 and 403, since a role assignment takes up to 30 min to propagate and can be fixed
# without a new request, and the transient 408, 429 and 5xx.
# https://learn.microsoft.com/azure/role-based-access-control/troubleshooting
REFUSED_STATUSES = frozenset({400, 404, 405, 409, 412, 413, 422})
# Storage's codes with 409: another submission, or a first try whose response was lost, has uploaded
# the same code file. The next try finds the file, or uploads all files again.
_UPLOADED_MEANWHILE = "BlobAlreadyExists"

Arguments = ParamSpec("Arguments")
Found = TypeVar("Found")
PACKAGE = "azure.ai.ml"
_import_lock = threading.Lock()


def if_found(
    get: Callable[Arguments, Found], *arguments: Arguments.args, **options: Arguments.kwargs
) -> Found | None:
    """The result of `get`, or None if the service has no such resource."""
    try:
        return get(*arguments, **options)
    except ResourceNotFoundError:
        return None


@contextlib.contextmanager
def refused_as_job_rejected(action: str) -> Generator[None]:
    """Turn a refusal of an action ("submit job x") into a permanent error.

    Raises:
        JobRejected: Azure ML refused, or its SDK did before sending a request.
        AzureError: the SDK's error, if it may be transient.
    """
    try:
        yield
    except AzureError as error:
        if not is_refusal(error):
            raise
        raise JobRejected(f"cannot {action}: {reason(error)}") from error


def is_refusal(error: AzureError) -> bool:
    """Whether the request itself is at fault, not the network or the service's state."""
    if isinstance(error, HttpResponseError):
        return _is_refused(error)
    # The module is looked up, not imported: an error during the import of azure.ai.ml is transient.
    exceptions: Any = sys.modules.get("azure.ai.ml.exceptions")
    is_from_sdk = exceptions is not None and isinstance(error, exceptions.MlException)
    return is_from_sdk and PACKAGE in sys.modules and not _came_from_a_fault(error)


def reason(error: AzureError) -> str:
    """The service's explanation, as `code: message` if it has both."""
    if isinstance(error, HttpResponseError) and error.error and error.error.message:
        return shorten(f"{error.error.code}: {error.error.message}")
    return shorten(str(error.message or type(error).__name__))


def _is_refused(error: HttpResponseError) -> bool:
    # The storage SDK adds the code to its errors.
    if getattr(error, "error_code", None) == _UPLOADED_MEANWHILE:
        return False
    return error.status_code in REFUSED_STATUSES


def _came_from_a_fault(error: BaseException) -> bool:
    """Whether a transient error is the cause; the SDK wraps errors of uploads in its own."""
    cause = error.__cause__ or error.__context__
    while cause is not None:
        if isinstance(cause, ServiceRequestError | ServiceResponseError):
            return True
        if isinstance(cause, HttpResponseError):
            return not _is_refused(cause)
        cause = cause.__cause__ or cause.__context__
    return False


def import_azure_ml() -> None:
    """Import azure.ai.ml; on failure, remove all of its modules.

    Raises:
        azure.ai.ml.exceptions.MlException: the cloud's endpoints cannot be read; call it again.
    """
    with _import_lock:
        if PACKAGE in sys.modules:
            return
        # tqdm reads this variable on import; there is no terminal for progress bars.
        os.environ.setdefault("TQDM_DISABLE", "1")
        try:
            importlib.import_module(PACKAGE)
            _keep_endpoints()
        except BaseException:
            for name in [each for each in sys.modules if _is_of_package(each)]:
                del sys.modules[name]
            raise


def _keep_endpoints() -> None:
    """Store the current cloud's endpoints under the keys that the SDK reads."""
    clouds: Any = importlib.import_module(f"{PACKAGE}._azure_environments")
    name = clouds._get_default_cloud_name()  # noqa: SLF001 - there is no public way
    clouds._environments[name] = clouds._get_cloud(name)  # noqa: SLF001 - likewise


def _is_of_package(name: str) -> bool:
    return name == PACKAGE or name.startswith(f"{PACKAGE}.")
