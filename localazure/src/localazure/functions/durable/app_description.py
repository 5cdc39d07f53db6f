"""What an engine knows of the app whose functions it runs, in this process or in others."""

from __future__ import annotations

from localazure.configuration_file import ConfigurationModel
from localazure.functions.durable.options import DurableOptions


class AppDescription(ConfigurationModel):
    """One app with a task hub, as its host describes it.

    Attributes:
        base_url: the base URL of the management API, without a trailing slash.
        system_key: the key in the management URLs of instances.
        options: those of host.json.
        functions: the names of its functions by kind: `orchestrator`, `activity`, `entity`.
        runs_activities_twice: whether each activity that succeeded runs again.
        speaks_protocol: whether it speaks the protocol of the Durable Task SDKs.
    """

    base_url: str
    system_key: str
    options: DurableOptions
    functions: dict[str, list[str]]
    runs_activities_twice: bool = False
    speaks_protocol: bool = False
