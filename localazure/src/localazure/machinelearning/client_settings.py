"""Environment variables with which the unmodified SDKs find the local workspace.

`azure-ai-ml` looks up the cloud AZUREML_CURRENT_CLOUD in the document at ARM_CLOUD_METADATA_URL;
`azure-identity` uses IDENTITY_ENDPOINT with IDENTITY_HEADER as App Service's managed identity;
`requests`, which both use, trusts REQUESTS_CA_BUNDLE. The program needs no change.
"""

from __future__ import annotations

from localazure.runtime.environment import LOOPBACK, Environment

CLOUD_NAME = "LocalCloud"
METADATA_PATH = "/metadata/endpoints"
METADATA_API_VERSION = "2019-05-01"
TOKEN_PATH = "/msi/token"  # noqa: S105 - a URL path, no secret


def app_settings(environment: Environment) -> dict[str, str]:
    """Environment variables for `MLClient(DefaultAzureCredential(), …)` to reach the workspace.

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
