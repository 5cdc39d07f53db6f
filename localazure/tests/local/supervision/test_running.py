"""A running runtime: its endpoints and sockets, a second one on the same state, parts that die,
and its shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import ipaddress
import json
import random
import signal
import socket
import ssl
import stat
import urllib.error
import urllib.request
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.storage.blob import BlobServiceClient

from harness.hostile_traffic import KINDS, Sent, Target, attack
from harness.runtime import Runtime, processes_of, still_running
from harness.small_app import make_app
from harness.waiting import until
from localazure.__main__ import main
from localazure.supervision.supervisor import FUNCTIONS, SERVICES

SERVICE_BUS = '{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "work"}]}]}}'
TLS = b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03"


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Generator[Runtime]:
    folder = tmp_path_factory.mktemp("up")
    app = make_app(folder / "app")
    (app / "infra" / "local" / "Config.json").write_text(SERVICE_BUS)
    with Runtime(app, folder / "state", "--port-base", "0") as runtime:
        runtime.endpoints()
        yield runtime


@pytest.fixture
def endpoints(runtime: Runtime) -> dict[str, Any]:
    return runtime.endpoints()


def ports_of(runtime: Runtime) -> dict[str, int]:
    return json.loads((runtime.state / "environment.json").read_text())["ports"]


def tls_of(runtime: Runtime, name: str) -> ssl.SSLContext | None:
    if name != "azure_ml" and not name.endswith("_tls"):
        return None
    return ssl.create_default_context(cafile=runtime.state / "ca" / "ca.pem")


def answer_of(
    runtime: Runtime, name: str, method: str, target: str, **headers: str
) -> tuple[int, str]:
    """The answer of a port to a request on a new connection."""
    port, tls = ports_of(runtime)[name], tls_of(runtime, name)
    if tls is not None:
        client = http.client.HTTPSConnection("localhost", port, timeout=20, context=tls)
    else:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(client):
        client.request(method, target, headers=headers)
        response = client.getresponse()
        return response.status, response.read().decode()


def hello(endpoints: dict[str, Any], key: str) -> tuple[int, bytes]:
    request = urllib.request.Request(
        f"{endpoints['functions']['base_url']}/api/hello", headers={"x-functions-key": key}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read()
    except urllib.error.URLError as error:
        return 0, str(error).encode()


def test_functions_in_error_are_named(runtime: Runtime) -> None:
    fault = (
        "The 'never' function is in error: schedule of timer: %NOT_SET% refers to an app setting"
    )
    assert runtime.output.count(fault) == 1


def test_endpoints_describe_every_part(endpoints: dict[str, Any]) -> None:
    assert endpoints.keys() == {
        *("functions", "blob", "queue", "table", "service_bus", "event_grid", "azure_ml"),
        *("storage_accounts", "identities", "app_settings"),
    }
    functions = endpoints["functions"]
    assert functions.keys() == {"base_url", "master_key", "function_key", "system_key"}
    assert len({functions[key] for key in ("master_key", "function_key", "system_key")}) == 3
    for service in ("Blob", "Queue", "Table"):
        assert f"{service}Endpoint=http://127.0.0.1:" in endpoints[service.lower()]
    assert endpoints["service_bus"].startswith("Endpoint=sb://127.0.0.1:")
    assert endpoints["event_grid"]["endpoint"].endswith("/topics/news/api/events")
    assert endpoints["event_grid"]["key"] == endpoints["app_settings"]["News__key"]
    assert endpoints["azure_ml"].keys() == {
        *("arm_metadata_url", "ca_bundle", "subscription_id", "resource_group", "workspace"),
    }
    assert endpoints["app_settings"]["News__endpoint"] == endpoints["event_grid"]["endpoint"]


def test_the_app_requires_its_key(endpoints: dict[str, Any]) -> None:
    assert hello(endpoints, endpoints["functions"]["function_key"]) == (200, b"hello")
    assert hello(endpoints, "no key")[0] == 401


def test_all_of_the_state_is_readable_by_its_owner_only(
    runtime: Runtime, endpoints: dict[str, Any]
) -> None:
    with BlobServiceClient.from_connection_string(endpoints["blob"]) as client:
        client.create_container("private").upload_blob("content", bytes(100_000))
    paths = [runtime.state, *runtime.state.rglob("*")]
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in paths}
    assert {runtime.state / "ca" / "ca-key.pem", runtime.state / "logs"} < modes.keys()
    assert {path for path, mode in modes.items() if mode & 0o077} == set()


def test_no_secret_is_logged(runtime: Runtime) -> None:
    keys = json.loads((runtime.state / "environment.json").read_text())["keys"]
    logs = [runtime.log, *(runtime.state / "logs").iterdir()]
    assert len(logs) == 1 + len((*SERVICES, FUNCTIONS))
    for log in logs:
        text = log.read_text("utf-8", "replace")
        assert not [name for name, key in keys.items() if key in text], log


def test_everything_listens_on_loopback_only(runtime: Runtime) -> None:
    processes = runtime.processes()
    assert {runtime.part(name) for name in (*SERVICES, FUNCTIONS)} < set(processes)
    listening = {
        socket.laddr.port: socket.laddr.ip
        for process in processes
        for socket in process.net_connections("inet")
        if socket.status == psutil.CONN_LISTEN
    }
    ports = ports_of(runtime)
    assert set(ports.values()) <= listening.keys()
    assert not [each for each in listening.items() if not ipaddress.ip_address(each[1]).is_loopback]


def test_every_port_refuses_web_pages_and_accepts_every_form_of_a_target(runtime: Runtime) -> None:
    ports, answer = ports_of(runtime), partial(answer_of, runtime)
    for name in ports.keys() - {"service_bus"}:
        own = {"Host": "account.blob.localhost"} if name == "blob_by_host" else {}
        for headers, why in (
            (own | {"Origin": "https://evil.example"}, "a web page of 'https://evil.example' sent"),
            ({"Host": "evil.example"}, "'evil.example' is no name of this machine"),
        ):
            status, text = answer(name, "POST", "/x/messages", **headers)
            assert (status, why in text) == (403, True), (name, text)
        if not name.startswith("azurite"):
            assert answer(name, "OPTIONS", "*") == (200, ""), name
            whole, _ = answer(name, "GET", f"http://localhost:{ports[name]}/x/y?z=1")
            assert whole == answer(name, "GET", "/x/y?z=1")[0], name
    for part in ("functions", "storage", "eventgrid", "machinelearning"):
        log = (runtime.state / "logs" / f"{part}.log").read_text()
        for why in ("'evil.example' is no name", "'https://evil.example' sent"):
            assert why in log, (part, why)


def send_and_receive(endpoints: dict[str, Any]) -> None:
    with BlobServiceClient.from_connection_string(endpoints["blob"], retry_total=0) as client:
        client.get_blob_client("landing", "whole").upload_blob(b"whole", overwrite=True)
        assert client.get_blob_client("landing", "whole").download_blob().readall() == b"whole"
    bus = endpoints["service_bus"]
    with ServiceBusClient.from_connection_string(bus, retry_total=0) as client:
        with client.get_queue_sender("work") as sender:
            sender.send_messages(ServiceBusMessage("whole"))
        with client.get_queue_receiver("work") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=20)
            receiver.complete_message(message)


async def test_hostile_traffic_ends_no_part_and_keeps_nobody_waiting(
    runtime: Runtime, endpoints: dict[str, Any]
) -> None:
    """Four kinds of it on every port, Azurite's too, while sound clients ask each port."""
    processes = runtime.processes()
    targets = [
        Target(name, port, is_amqp=name == "service_bus", tls=tls_of(runtime, name))
        for name, port in ports_of(runtime).items()
    ]
    for kind, script in KINDS.items():
        sent = Sent()
        hostile = [
            asyncio.create_task(attack(script, target, random.Random(f"{kind} {target}"), sent))
            for target in targets
            for _ in range(2)
        ]
        while sent.connections < 4 * len(targets):
            await asyncio.to_thread(send_and_receive, endpoints)
            for name in (each.name for each in targets if not each.is_amqp):
                if not name.startswith("azurite"):
                    answer = await asyncio.to_thread(answer_of, runtime, name, "OPTIONS", "*")
                    assert answer == (200, ""), (kind, name)
        for each in hostile:
            each.cancel()
        await asyncio.gather(*hostile, return_exceptions=True)
    assert still_running(processes) == processes


@pytest.mark.parametrize(
    ("name", "part", "first", "words", "remedy"),
    [
        ("event_grid", "eventgrid", TLS, "speaks TLS", "use http://"),
        ("service_bus", "servicebus", TLS, "speaks TLS", "UseDevelopmentEmulator=true"),
        ("service_bus", "servicebus", b"GET / HTTP/1.1\r\n", "speaks HTTP", "AmqpOverWebsocket"),
    ],
)
def test_a_client_of_another_protocol_is_told_once(
    runtime: Runtime, name: str, part: str, first: bytes, words: str, remedy: str
) -> None:
    port = ports_of(runtime)[name]
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(first)
            while client.recv(1024):
                pass
    lines = (runtime.state / "logs" / f"{part}.log").read_text().splitlines()
    (line,) = [line for line in lines if words in line]
    assert remedy in line


def test_a_second_up_is_refused_with_the_process_id_of_the_first(runtime: Runtime) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["up", "--state", str(runtime.state)])
    assert refused.value.code == (
        f"localazure: state folder {runtime.state} is in use by process {runtime.pid}: "
        "stop that one, or give another folder with --state"
    )
    assert (runtime.state / "endpoints.json").is_file()


@pytest.mark.parametrize("name", ["functions", "storage"])
def test_a_part_that_dies_is_started_again(
    runtime: Runtime, endpoints: dict[str, Any], name: str
) -> None:
    before = until(lambda: runtime.part(name), 30, name)
    known = runtime.output.count(f"{name} is ready")
    before.kill()
    until(lambda: runtime.output.count(f"{name} is ready") > known, 60, f"{name} once more")
    after = runtime.part(name)
    assert after is not None
    assert after.pid != before.pid
    assert f"{name} ended (SIGKILL): starting it again" in runtime.output
    assert hello(endpoints, endpoints["functions"]["function_key"]) == (200, b"hello")


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as response:
        return response.read()


# The last test: it stops the runtime that the others share.
def test_parts_end_soon_after_their_supervisor_and_the_next_up_waits_for_them(
    runtime: Runtime, endpoints: dict[str, Any], tmp_path: Path
) -> None:
    processes = runtime.processes()
    assert any("azurite" in " ".join(process.cmdline()) for process in processes)
    release = tmp_path / "release"
    url = f"{endpoints['functions']['base_url']}/api/slow?until={release}"
    with ThreadPoolExecutor() as executor:
        answer = executor.submit(get, url)
        log = runtime.state / "logs" / "functions.log"
        until(lambda: "slow has begun" in log.read_text(), 30, "begin of the invocation")
        runtime.kill()
        runtime.wait()
        # Start the next one while a part drains: it must wait for the ports and databases.
        with Runtime(runtime.app, runtime.state) as successor:
            # On a slow machine, the old parts end before the next runtime checks the lock.
            waiting = f"process {runtime.pid} was killed; waiting"
            until(lambda: waiting in successor.output or "is ready" in successor.output, 60, "line")
            release.touch()
            again = successor.endpoints()
            assert not still_running(processes)
            assert again == endpoints
            assert answer.result() == b"done"
            processes = successor.processes()
            successor.send_signal(signal.SIGINT)  # Ctrl-C ends every process
            assert successor.wait() == 0
            assert not still_running(processes)
            assert not processes_of(successor.state)
            assert not (successor.state / "endpoints.json").exists()
            assert "Traceback" not in successor.output
