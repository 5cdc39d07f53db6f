"""Environment variables with which the unmodified SDKs find the local workspace.

`azure-ai-ml` reads AZUREML_CURRENT_CLOUD and looks that name up in what ARM_CLOUD_METADATA_URL
answers; `azure-identity` takes IDENTITY_ENDPOINT with IDENTITY_HEADER for App Service's managed
identity; `requests`, below both, trusts REQUESTS_CA_BUNDLE. Nothing in the program changes.
"""

from __future__ import annotations

from localazure.runtime.environment import LOOPBACK, Environment

CLOUD_NAME = "LocalCloud"
METADATA_PATH = "/metadata/endpoints"
METADATA_API_VERSION = "2019-05-01"
TOKEN_PATH = "/msi/token"  # noqa: S105 - a URL path, no secret


def app_settings(environment: Environment) -> dict[str, str]:
    """Process environment by which `MLClient(DefaultAzureCredential(), …)` reaches the workspace.

    IDENTITY_HEADER is a secret of this state folder: keep it out of logs.
    SSL_CERT_FILE is for programs that use Python's own TLS (aiohttp, urllib) instead of requests.
    """
    return {
        "AZUREML_CURRENT_CLOUD": CLOUD_NAME,
        "ARM_CLOUD_METADATA_URL": (
            f"{environment.azure_ml_url}{METADATA_PATH}?api-version={METADATA_API_VERSION}"
        ),
        "REQUESTS_CA_BUNDLE": str(environment.ca_bundle),
        "SSL_CERT_FILE": str(environment.ca_bundle),
        "IDENTITY_ENDPOINT": f"http://{LOOPBACK}:{environment.ports.identity}{TOKEN_PATH}",
        "IDENTITY_HEADER": environment.keys.identity_header,
    }
