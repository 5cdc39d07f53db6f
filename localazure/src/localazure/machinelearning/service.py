"""Composes the part: certificates, tables, the control loop, the event publisher, listeners."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from collections.abc import AsyncGenerator
from dataclasses import replace

import aiohttp

from localazure.faults.injector import Injector
from localazure.faults.plan import Part
from localazure.machinelearning.configuration import Configuration, OtherWorkspace
from localazure.machinelearning.control_loop import ControlLoop
from localazure.machinelearning.events import EventOutbox
from localazure.machinelearning.jobs.tracking_server import tracking_server
from localazure.machinelearning.resources import datastores
from localazure.machinelearning.resources.online_endpoints import Online
from localazure.machinelearning.server import (
    applications,
    one_endpoint,
    workspace_without_compute,
)
from localazure.machinelearning.serving import store as online_store
from localazure.machinelearning.serving.data_collector import DataCollector
from localazure.machinelearning.serving.deployments import Deployments
from localazure.machinelearning.serving.scoring import Scoring
from localazure.machinelearning.store import MIGRATIONS
from localazure.machinelearning.workspace import Workspace
from localazure.outbox.publisher import publishing
from localazure.runtime.certificates import ensure_certificates, server_context
from localazure.runtime.environment import AZURE_ML_TOPIC, Environment
from localazure.runtime.http_server import listening, runner_of
from localazure.runtime.identity import TokenIssuer
from localazure.runtime.roles import RoleAssignments
from localazure.sqlite.database import Database

# The audience of tokens for Azure ML's own services, which the ARM endpoint serves here.
ML_AUDIENCE = "https://ml.azure.com"
# For batch requests, the SDK appends the part of the portal's URL after "portal.azure.": none here.
SDK_ML_AUDIENCE = "https://ml.azure."


@contextlib.asynccontextmanager
async def serve(environment: Environment) -> AsyncGenerator[None]:
    """Serve ARM over TLS on `ports.azure_ml` and tokens on `ports.identity`, and run jobs.

    Raises:
        ConfigurationError: `azure-ml.json` is not valid.
        OSError: a port is taken.
    """
    # At level INFO, this logger writes every header of every storage request.
    logging.getLogger("azure.core.pipeline.policies.http_logging_policy").setLevel(logging.WARNING)
    configuration = Configuration.read(environment.azure_ml_config)
    certificates = ensure_certificates(environment)
    async with contextlib.AsyncExitStack() as stack:
        folder = environment.part_folder("machinelearning")
        database = Database(folder / "workspace.db", MIGRATIONS)
        stack.callback(database.close)
        state = Workspace(
            environment=environment,
            configuration=configuration,
            database=database,
            events=EventOutbox(database),
            clock=time.time,
            faults=Injector(environment.state, Part.AZURE_ML),
        )
        await database.write(lambda connection: _put_datastores(connection, state))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        topic = environment.topic_endpoint(AZURE_ML_TOPIC)
        key, _ = environment.event_grid_keys(AZURE_ML_TOPIC)
        await stack.enter_async_context(publishing(state.events, topic, key))
        assignments = RoleAssignments.from_environment(environment)
        await stack.enter_async_context(tracking_server(state))
        control_loop = await stack.enter_async_context(ControlLoop(state, assignments))
        tokens = TokenIssuer(
            environment.keys.identity_header,
            frozenset({environment.azure_ml_url, ML_AUDIENCE, SDK_ML_AUDIENCE}),
        )
        online_database = Database(folder / "online.db", online_store.MIGRATIONS)
        stack.callback(online_database.close)
        collector = await stack.enter_async_context(DataCollector(state))
        deployments = await stack.enter_async_context(
            Deployments(state, collector, online_database, session)
        )
        scoring = await stack.enter_async_context(
            Scoring(online_database, deployments, collector, session, tokens, clock=state.clock)
        )
        online = Online(online_database, deployments, scoring)
        arm, identity = applications(state, tokens, assignments, control_loop, online)
        others = [_further(state, each) for each in configuration.other_workspaces]
        for other in others:
            stack.callback(other.database.close)
            await other.database.write(lambda connection, it=other: _put_datastores(connection, it))
        arm = one_endpoint(
            arm, [workspace_without_compute(other, tokens, assignments) for other in others]
        )
        for workspace in (state, *others):
            await datastores.create_built_in_containers(workspace)
        ports, context = environment.ports, server_context(certificates)
        await stack.enter_async_context(listening(runner_of(identity), {ports.identity: None}))
        await stack.enter_async_context(listening(runner_of(arm), {ports.azure_ml: context}))
        yield


def _further(first: Workspace, declared: OtherWorkspace) -> Workspace:
    """A further workspace of the part, whose events nobody gets."""
    environment = replace(
        first.environment,
        workspace=declared.name,
        subscription_id=declared.subscription_id or first.environment.subscription_id,
        resource_group=declared.resource_group or first.environment.resource_group,
    )
    folder = environment.part_folder("machinelearning")
    database = Database(folder / f"workspace-{declared.name.lower()}.db", MIGRATIONS)
    return replace(
        first,
        environment=environment,
        configuration=Configuration(storage_account=declared.storage_account),
        database=database,
        events=EventOutbox(database),
        scope=f"workspaces/{declared.name}",
    )


def _put_datastores(connection: sqlite3.Connection, workspace: Workspace) -> None:
    datastores.put_configured(connection, workspace.configuration, workspace.clock())
