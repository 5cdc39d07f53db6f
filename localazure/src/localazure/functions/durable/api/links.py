"""Management URLs and the client binding.

https://learn.microsoft.com/azure/azure-functions/durable/durable-functions-http-api
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import quote

RPC_PATH = "/durabletask"
WEBHOOK_PATH = "/runtime/webhooks/durabletask"
CONNECTION_NAME = "Storage"

# The SDK replaces it with the instance id in the binding's URLs.
INSTANCE_ID_PLACEHOLDER = "INSTANCEID"


@dataclass(frozen=True, kw_only=True)
class Links:
    """URLs of one task hub; `base_url` has no trailing slash.

    `grpc` is what the binding of a client that speaks gRPC has in place of the others' RPC address.
    """

    base_url: str
    hub_name: str
    system_key: str
    grpc: Mapping[str, object] = field(default_factory=dict[str, object])

    @cached_property
    def _query(self) -> str:
        return (
            f"taskHub={quote(self.hub_name)}&connection={CONNECTION_NAME}"
            f"&code={quote(self.system_key, safe='')}"
        )

    def management(self, instance_id: str) -> dict[str, str]:
        """The management URLs of an instance, which are the body of the response to a start."""
        instance = f"{self.base_url}{WEBHOOK_PATH}/instances/{quote(instance_id, safe='')}"
        query = self._query
        return {
            "id": instance_id,
            "statusQueryGetUri": f"{instance}?{query}",
            "sendEventPostUri": f"{instance}/raiseEvent/{{eventName}}?{query}",
            "terminatePostUri": f"{instance}/terminate?reason={{text}}&{query}",
            "rewindPostUri": f"{instance}/rewind?reason={{text}}&{query}",
            "purgeHistoryDeleteUri": f"{instance}?{query}",
            "restartPostUri": f"{instance}/restart?{query}",
            "suspendPostUri": f"{instance}/suspend?reason={{text}}&{query}",
            "resumePostUri": f"{instance}/resume?reason={{text}}&{query}",
        }

    @cached_property
    def client_binding(self) -> str:
        """The JSON of a durableClient input binding."""
        code = f"code={quote(self.system_key, safe='')}"
        create = f"{self.base_url}{WEBHOOK_PATH}/orchestrators/{{functionName}}[/{{instanceId}}]"
        wait = "timeout={timeoutInSeconds}&pollingInterval={intervalInSeconds}"
        return json.dumps(
            {
                "taskHubName": self.hub_name,
                "creationUrls": {
                    "createNewInstancePostUri": f"{create}?{code}",
                    "createAndWaitOnNewInstancePostUri": f"{create}?{wait}&{code}",
                },
                "managementUrls": self.management(INSTANCE_ID_PLACEHOLDER),
                "baseUrl": f"{self.base_url}{WEBHOOK_PATH}",
                "requiredQueryStringParameters": code,
                "rpcBaseUrl": f"{self.base_url}{RPC_PATH}/",
                **self.grpc,
            }
        )
