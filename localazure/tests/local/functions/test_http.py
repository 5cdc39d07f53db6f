from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from localazure.functions.host import Host
from localazure.functions.http.cors import CorsPolicy
from localazure.functions.triggers.http import trigger as http_trigger

pytestmark = pytest.mark.asyncio(loop_scope="module")
MASTER = {"x-functions-key": "master-key"}
HTTP = "AzureFunctionsJobHost__extensions__http__"
SETTINGS = {
    "AzureWebJobs.off.Disabled": "true",
    "FUNCTIONS_REQUEST_BODY_SIZE_LIMIT": "1000",
    f"{HTTP}customHeaders__X-Content-Type-Options": "nosniff",
    f"{HTTP}customHeaders__x-thread": "not over the function's own",
}
CORS = CorsPolicy.parse("https://page.example", allows_credentials=False)
Running = tuple[Host, aiohttp.ClientSession]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(shared: Any) -> AsyncGenerator[Running]:
    """The host of the running app, and a client."""
    async with shared.running_app("http", cors=CORS, **SETTINGS) as running:
        yield running


@pytest.fixture
def client(running: Running) -> aiohttp.ClientSession:
    return running[1]


async def get(client: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    """The status and the body."""
    async with client.get(url) as response:
        return response.status, await response.text()


async def test_route_parameters_query_and_local_settings(client: aiohttp.ClientSession) -> None:
    async with client.get("/api/hello/Ann") as response:
        assert response.status == 200
        assert await response.text() == "Hello, Ann!"
        assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    async with client.post("/API/Hello?name=Bob&code=nonsense") as response:
        assert await response.text() == "Hello, Bob!"
    assert await get(client, "/api/files/a/b%20c.txt") == (200, "a/b c.txt")


async def test_the_whole_request_and_the_whole_response(running: Running) -> None:
    host, client = running
    url = "/api/items/7?a=1&a=2"
    async with client.put(url, json={"x": [1]}, headers={"User-Agent": "me"}) as response:
        assert response.status == 201
        assert await response.json() == {
            "id": "7",
            "method": "PUT",
            "url": f"{host.base_url}{url}",
            "params": {"a": "1,2"},
            "agent": "me",
            "json": {"x": [1]},
        }
        assert response.headers["Content-Type"] == "application/json"
        assert set(response.headers.getall("Set-Cookie")) == {"a=1; Path=/", "b=2; HttpOnly"}


async def test_statuses(client: aiohttp.ClientSession) -> None:
    for method, path, status in (
        ("GET", "/", 200),
        ("GET", "/api/nothing", 404),
        ("DELETE", "/api/hello", 404),
        ("GET", "/api/items/seven", 404),
        ("GET", "/api/fails", 500),
        ("GET", "/api/exits", 500),
        ("GET", "/api/exits_async", 500),
        ("GET", "/api/returns_none", 500),
        ("GET", "/api/slow_async", 500),
        ("GET", "/api/slow", 500),
        ("GET", "/api/off", 404),
        ("GET", "/api/out", 202),
        ("GET", "/api/unset", 204),
    ):
        async with client.request(method, path) as response:
            assert response.status == status, path
            assert (await response.text()) == ("set" if path == "/api/out" else "")


async def test_keys(running: Running) -> None:
    host, client = running
    for path, key, status in (
        ("/api/guarded", "", 401),
        ("/api/guarded", host.keys.function_key("owners"), 401),
        ("/api/guarded", host.keys.function_key("guarded"), 200),
        ("/api/owners", "host-key", 401),
        ("/api/owners", "master-key", 200),
    ):
        async with client.get(path, headers={"x-functions-key": key}) as response:
            assert response.status == status, (path, key)
        async with client.get(path, params={"code": key}) as response:
            assert response.status == status, (path, key)


async def test_blueprints_and_the_context(client: aiohttp.ClientSession) -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with client.get("/api/about", headers={"traceparent": parent}) as response:
        about = await response.json(content_type=None)
    assert about["function"] == "about"
    assert about["parent"] == parent
    assert about["thread"] == about["invocation"] == str(uuid.UUID(about["invocation"]))


async def test_the_admin_api(running: Running) -> None:
    host, client = running

    async def ask(path: str) -> Any:
        async with client.get(f"/admin/{path}", headers=MASTER) as response:
            return await response.json() if response.status == 200 else response.status

    assert await get(client, "/admin/host/status") == (401, "")
    assert (await ask("host/status"))["state"] == "Running"
    described = {one["name"]: one for one in await ask("functions")}
    assert described["hello"]["invoke_url_template"] == (
        f"{host.base_url}/api/hello/{{name:alpha?}}"
    )
    assert described["item"]["config"]["bindings"][0]["route"] == "items/{id:int}"
    for path, value in (
        ("functions/Guarded/keys", host.keys.function_key("guarded")),
        ("host/keys", host.keys.host),
        ("host/functionkeys", host.keys.host),
    ):
        assert (await ask(path))["keys"] == [{"name": "default", "value": value}]
    assert await ask("functions/nothing") == 404


async def test_requests_run_side_by_side(running_app: Any) -> None:
    async with running_app("http", PYTHON_THREADPOOL_THREAD_COUNT="3") as (_, client):
        # Each function waits until all three are running.
        calls = (get(client, "/api/rendezvous") for _ in range(3))
        assert await asyncio.gather(*calls) == [(200, "met")] * 3


async def test_a_body_over_the_limit_is_refused(client: aiohttp.ClientSession) -> None:
    for size, status in ((1000, 201), (1001, 413)):
        async with client.put("/api/items/7", data=b"1".rjust(size)) as response:
            assert response.status == status


async def test_pages_of_other_origins(client: aiohttp.ClientSession) -> None:
    page = {"Origin": "https://page.example"}
    asks = {**page, "Access-Control-Request-Method": "PUT"}
    async with client.options("/api/items/7", headers=asks) as response:
        assert response.status == 204
        assert response.headers["Access-Control-Allow-Methods"] == "PUT"
    for path, status in (("/api/hello", 200), ("/api/nothing", 404), ("/api/fails", 500)):
        async with client.get(path, headers=page) as response:
            assert response.status == status
            assert response.headers["Access-Control-Allow-Origin"] == "https://page.example"
    async with client.get("/api/hello", headers={"Origin": "https://other"}) as response:
        assert response.status == 403
        assert "'https://other' sent this request: name its origin in Host.CORS" in (
            await response.text()
        )


async def test_the_hosts_own_headers(client: aiohttp.ClientSession) -> None:
    async with client.get("/api/hello") as response:
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        (thread,) = response.headers.getall("x-thread")
        assert thread.startswith("function-")


async def test_a_drain_lets_requests_finish(running_app: Any) -> None:
    async with aiohttp.ClientSession() as client:
        async with running_app("http") as (host, _):
            url = f"{host.base_url}/api/hello/slowly?wait=0.3"
            answer = asyncio.create_task(get(client, url))
            while not host.invoker.in_flight:
                await asyncio.sleep(0.01)
        assert await answer == (200, "Hello, slowly!")


async def test_an_answer_that_takes_too_long(
    running_app: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_trigger, "ANSWER_SECONDS", 0.05)
    async with running_app("http") as (host, client):
        # The function waits for two more requests, up to a timeout.
        assert (await get(client, "/api/rendezvous"))[0] == 504
        assert host.invoker.running == ["rendezvous"]
    assert "'rendezvous' has not answered within 0.05 s" in caplog.text


async def test_addresses_and_headers_over_the_limit(client: aiohttp.ClientSession) -> None:
    for path, headers, status in (
        ("/" + "x" * 8191, {}, 404),
        ("/" + "x" * 8192, {}, 414),
        (f"/{'x' * 4095}?{'y' * 4095}", {}, 404),
        (f"/{'x' * 4096}?{'y' * 4095}", {}, 414),
        ("/?" + "x" * 4096, {}, 200),
        ("/?" + "x" * 4097, {}, 414),
        ("/", {"x-large": "x" * 31_000}, 200),
        ("/", {"x-large": "x" * 33_000}, 431),
    ):
        async with client.get(path, headers=headers) as response:
            assert response.status == status, path[:10]
