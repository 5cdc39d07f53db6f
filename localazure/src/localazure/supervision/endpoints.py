"""`<state>/endpoints.json`: addresses, keys and connection strings of all services."""

from __future__ import annotations

from typing import Any

from localazure.eventgrid.configuration import SYSTEM_TOPICS, load
from localazure.runtime.environment import Environment, has_app
from localazure.runtime.identity import client_id_of
from localazure.runtime.roles import RoleAssignments
from localazure.storage.configuration import StorageConfiguration


def describe_endpoints(environment: Environment) -> dict[str, Any]:
    """Return the document, with keys. It has no `functions` if the folder has no app."""
    keys = environment.keys
    storage = environment.storage_connection_string()
    topics: dict[str, dict[str, str]] = {}
    for topic in (*(each.name for each in load(environment).topics), *SYSTEM_TOPICS):
        key, secondary_key = environment.event_grid_keys(topic)
        topics[topic] = {
            "endpoint": environment.topic_endpoint(topic),
            "key": key,
            "secondary_key": secondary_key,
        }
    functions = {
        "functions": {
            "base_url": environment.functions_url,
            "master_key": keys.functions_master,
            "function_key": keys.functions_host,
            "system_key": keys.functions_system,
        },
    }
    return {
        **(functions if has_app(environment.app) else {}),
        "storage_accounts": {
            account: environment.storage_connection_string(account)
            for account in StorageConfiguration.read(environment.storage_config).accounts
        },
        "blob": storage,
        "queue": storage,
        "table": storage,
        "identities": {
            principal: client_id_of(principal)
            for principal in sorted(RoleAssignments.from_environment(environment).principals)
        },
        "service_bus": environment.service_bus_connection_string,
        "event_grid": {
            **next(iter(topics.values())),
            "administration_key": keys.event_grid,
            "topics": topics,
        },
        "azure_ml": {
            "arm_metadata_url": environment.app_settings["ARM_CLOUD_METADATA_URL"],
            "ca_bundle": str(environment.ca_bundle),
            "subscription_id": environment.subscription_id,
            "resource_group": environment.resource_group,
            "workspace": environment.workspace,
        },
        "app_settings": environment.app_settings,
    }
