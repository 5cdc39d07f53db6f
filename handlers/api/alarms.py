"""GET /api/alarms: the silence alarms that are on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from handlers.alarms.raising import read_alarms
from handlers.api.documents.alarms import AlarmList, AlarmSummary
from handlers.api.parameters import NoParameters, parse_parameters
from handlers.configuration.clients import Clients
from handlers.triggers.problem_details import Answer, Problem


async def list_alarms(clients: Clients, parameters: Mapping[str, str]) -> Answer:
    """Every silence alarm that has begun and is not over, the oldest silence first."""
    try:
        parse_parameters(NoParameters, parameters)
    except Problem as problem:
        return problem.to_answer()
    alarms = await asyncio.to_thread(read_alarms, clients)
    shown = [
        AlarmSummary(
            kind=alarm.kind,
            pipeline=alarm.pipeline,
            about=alarm.about,
            since=alarm.since,
            message=alarm.message,
        )
        for alarm in alarms
    ]
    return Answer(200, AlarmList(alarms=shown).model_dump(mode="json"))
