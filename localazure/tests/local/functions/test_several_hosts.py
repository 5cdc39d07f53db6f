"""`localazure start --hosts 2`: one port, timers on one host, messages on both.

A dead host is replaced; another host takes over its timers and its messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import NamedTuple

import aiohttp
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from harness.child_process import ChildProcess
from harness.waiting import eventually
from localazure.runtime.environment import Environment
from localazure.servicebus.service import serve as serve_service_bus

DEADLINE_SECONDS = 60.0

LOCK_SECONDS = 5
# More messages than one host processes concurrently (maxConcurrentCalls).
MESSAGES = 8
HOST_JSON = '{"version": "2.0", "extensions": {"serviceBus": {"maxConcurrentCalls": 6}}}'

FUNCTION_APP = """
import asyncio
import os
from pathlib import Path

import azure.functions as func

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
HOST = f"{os.environ['WEBSITE_INSTANCE_ID']} {os.getpid()}"


@app.route("host")
def host(req: func.HttpRequest) -> func.HttpResponse:
    return func.HttpResponse(HOST)


@app.timer_trigger(arg_name="timer", schedule="* * * * * *")
def tick(timer: func.TimerRequest) -> None:
    with Path("ticks").open("a") as ticks:
        ticks.write(f"{HOST}\\n")


@app.service_bus_queue_trigger(arg_name="message", queue_name="work", connection="Bus")
async def work(message: func.ServiceBusMessage) -> None:
    with Path("deliveries").open("a") as deliveries:
        deliveries.write(f"{HOST} {message.message_id} {message.delivery_count}\\n")
    while not Path("may-end").exists():
        await asyncio.sleep(0.02)
"""


async def hosts_that_answer(url: str, count: int) -> set[str]:
    """Open new connections until `count` different hosts have responded."""
    found: set[str] = set()
    while len(found) < count:
        async with aiohttp.ClientSession() as client:  # a new connection
            with contextlib.suppress(aiohttp.ClientConnectionError):
                async with client.get(url) as response:
                    found.add(await response.text())
        await asyncio.sleep(0.02)
    return found


class Delivery(NamedTuple):
    """A delivery of a message to a host, with the number of the attempt."""

    message: str
    attempt: int
    host: str


def deliveries_in(file: Path) -> list[Delivery]:
    """The deliveries that the function has written, sorted by message."""
    lines = [line.rsplit(" ", 2) for line in file.read_text().splitlines()] if file.exists() else []
    return sorted(Delivery(message, int(attempt), host) for host, message, attempt in lines)


async def test_a_dead_host_is_replaced_and_its_work_goes_on(
    tmp_path: Path, environment: Environment, free_port: int
) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (app / "host.json").write_text(HOST_JSON)
    (app / "function_app.py").write_text(FUNCTION_APP)
    ticks, deliveries = app / "ticks", app / "deliveries"
    queue = {"Name": "work", "Properties": {"LockDuration": f"PT{LOCK_SECONDS}S"}}
    namespace = {"Name": "test", "Queues": [queue]}
    environment.service_bus_config.write_text(
        json.dumps({"UserConfig": {"Namespaces": [namespace]}})
    )
    bus = environment.service_bus_connection_string
    command = [
        *(sys.executable, "-m", "localazure", "start", app, "--hosts", "2"),
        *("--port", str(free_port), "--state", tmp_path / "state"),
    ]
    url = f"http://127.0.0.1:{free_port}/api/host"
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        serve_service_bus(environment),
        ServiceBusClient.from_connection_string(bus) as client,
        client.get_queue_sender("work") as sender,
        client.get_queue_receiver("work") as receiver,
    ):
        with ChildProcess(command, tmp_path / "log", variables={"AzureWebJobsBus": bus}) as hosts:
            first = await hosts_that_answer(url, 2)
            await eventually(ticks.exists)
            (owner,) = set(ticks.read_text().splitlines())
            names = [str(number) for number in range(MESSAGES)]
            await sender.send_messages([ServiceBusMessage(n, message_id=n) for n in names])
            await eventually(lambda: len(deliveries_in(deliveries)) == MESSAGES)
            given = deliveries_in(deliveries)
            assert [(each.message, each.attempt) for each in given] == [(n, 1) for n in names]
            lost = [each.message for each in given if each.host == owner]
            assert 0 < len(lost) < MESSAGES  # each host has some messages

            os.kill(int(owner.split()[1]), signal.SIGKILL)
            await eventually(lambda: ticks.read_text().splitlines()[-1] != owner)
            (other,) = first - {owner}
            (new,) = await hosts_that_answer(url, 2) - {other}
            assert new != owner
            assert len(set(ticks.read_text().splitlines())) == 2  # the dead host, and another
            # The dead host's locks expire; the other host renews its locks.
            await eventually(lambda: len(deliveries_in(deliveries)) == MESSAGES + len(lost))
            again = [each for each in deliveries_in(deliveries) if each.attempt == 2]
            assert [each.message for each in again] == lost
            assert {each.host for each in again} <= {other, new}

            (app / "may-end").touch()
            while await receiver.peek_messages(1, sequence_number=1):
                await asyncio.sleep(0.02)
            assert await asyncio.to_thread(hosts.end) == 0, hosts.output
    assert len(deliveries_in(deliveries)) == MESSAGES + len(lost)
