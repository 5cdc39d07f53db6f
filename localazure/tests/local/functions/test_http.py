from __future__ import annotations

import asyncio
import logging
import os
import sys
import uuid
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from localazure.functions.http.cors import CorsPolicy
from localazure.functions.triggers.http import trigger as http_trigger

MASTER = {"x-functions-key": "master-key"}


async def test_route_parameters_query_and_local_settings(running_app: Any) -> None:
    async with running_app("http") as (_, client):
        async with client.get("/api/hello/Ann") as response:
            assert response.status == 200
            assert await response.text() == "Hello, Ann!"
            assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
            assert response.headers["x-thread"].startswith("function-")
        async with client.post("/API/Hello?name=Bob&code=nonsense") as response:
            assert await response.text() == "Hello, Bob!"


async def test_the_whole_request_and_the_whole_response(running_app: Any) -> None:
    async with (
        running_app("http") as (host, client),
        client.put(
            "/api/items/7?a=1&a=2", json={"x": [1]}, headers={"User-Agent": "me"}
        ) as response,
    ):
        assert response.status == 201
        assert await response.json() == {
            "id": "7",
            "method": "PUT",
            "url": f"{host.base_url}/api/items/7?a=1&a=2",
            "params": {"a": "1,2"},
            "agent": "me",
            "json": {"x": [1]},
        }
        assert response.headers["Content-Type"] == "application/json"
        assert set(response.headers.getall("Set-Cookie")) == {"a=1; Path=/", "b=2; HttpOnly"}


async def test_statuses(running_app: Any) -> None:
    async with running_app("http", **{"AzureWebJobs.off.Disabled": "true"}) as (_, client):
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


async def test_keys(running_app: Any) -> None:
    async with running_app("http") as (host, client):
        function_key = host.keys.function_key("guarded")
        other_key = host.keys.function_key("owners")
        for path, key, status in (
            ("/api/guarded", None, 401),
            ("/api/guarded", "wrong", 401),
            ("/api/guarded", other_key, 401),
            ("/api/guarded", "system-key", 401),
            ("/api/guarded", function_key, 200),
            ("/api/guarded", "host-key", 200),
            ("/api/guarded", "master-key", 200),
            ("/api/owners", "host-key", 401),
            ("/api/owners", "master-key", 200),
        ):
            headers = {"x-functions-key": key} if key else {}
            async with client.get(path, headers=headers) as response:
                assert response.status == status, (path, key)
            async with client.get(path, params={"code": key} if key else {}) as response:
                assert response.status == status, (path, key)


async def test_blueprints_and_the_context(running_app: Any) -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with running_app("http") as (_, client):
        async with client.get("/api/about", headers={"traceparent": parent}) as response:
            about = await response.json(content_type=None)
        assert about["function"] == "about"
        assert about["parent"] == parent
        assert about["thread"] == about["invocation"] == str(uuid.UUID(about["invocation"]))
        async with client.get("/api/files/a/b%20c.txt") as response:
            assert await response.text() == "a/b c.txt"


async def test_the_admin_api(running_app: Any) -> None:
    async with running_app("http") as (host, client):
        async with client.get("/admin/host/status") as response:
            assert response.status == 401
        async with client.get("/admin/host/status", headers=MASTER) as response:
            assert (await response.json())["state"] == "Running"
        async with client.get("/admin/functions", headers=MASTER) as response:
            described = {one["name"]: one for one in await response.json()}
        assert described["hello"]["invoke_url_template"] == (
            f"{host.base_url}/api/hello/{{name:alpha?}}"
        )
        assert described["item"]["config"]["bindings"][0]["route"] == "items/{id:int}"
        async with client.get("/admin/functions/Guarded/keys", headers=MASTER) as response:
            (key,) = (await response.json())["keys"]
        async with client.get("/api/guarded", params={"code": key["value"]}) as response:
            assert response.status == 200
        for path in ("/admin/host/keys", "/admin/host/functionkeys"):
            async with client.get(path, headers=MASTER) as response:
                (key,) = (await response.json())["keys"]
            assert key == {"name": "default", "value": host.keys.host}
        async with client.get("/admin/functions/nothing", headers=MASTER) as response:
            assert response.status == 404


async def test_no_key_and_no_other_query_reaches_the_log(
    running_app: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with (
        running_app("http") as (_, client),
        client.get("/api/guarded", params={"code": "host-key"}) as response,
    ):
        assert response.status == 200
    assert "Executed 'guarded' (Succeeded" in caplog.text
    assert "host-key" not in caplog.text
    assert "master-key" not in caplog.text


async def test_a_failure_is_logged_once_with_the_users_frames_only(
    running_app: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_app("http") as (_, client), client.get("/api/fails"):
        pass
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "ValueError: as told" in record.getMessage()
    assert "function_app.py" in record.getMessage()
    assert "localazure" not in record.getMessage().replace(str(Path(__file__).parent), "")


async def test_requests_run_side_by_side(running_app: Any) -> None:
    async with running_app("http", PYTHON_THREADPOOL_THREAD_COUNT="3") as (_, client):

        async def call() -> str:
            async with client.get("/api/rendezvous") as response:
                return await response.text()

        # Each waits until all three are there.
        assert await asyncio.gather(call(), call(), call()) == ["met"] * 3


async def test_too_many_requests_are_refused(running_app: Any) -> None:
    limits = {
        "AzureFunctionsJobHost__extensions__http__maxOutstandingRequests": "2",
        "AzureFunctionsJobHost__extensions__http__maxConcurrentRequests": "1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in limits.items():
            patch.setenv(name, value)
        async with running_app("http") as (host, client):

            async def call() -> int:
                async with client.get("/api/hello/Ann?wait=0.5") as response:
                    return response.status

            calls = [asyncio.create_task(call()) for _ in range(3)]
            while sum(call.done() for call in calls) < 1:
                assert host.invoker.in_flight <= 1
                await asyncio.sleep(0.01)
            assert sorted(await asyncio.gather(*calls)) == [200, 200, 429]
            # The host's administrators are not kept out.
            async with client.get("/admin/host/status", headers=MASTER) as response:
                assert response.status == 200


async def test_a_body_over_the_limit_is_refused(running_app: Any) -> None:
    settings = {"FUNCTIONS_REQUEST_BODY_SIZE_LIMIT": "1000"}
    async with running_app("http", **settings) as (_, client):
        for size, status in ((1000, 201), (1001, 413)):
            body = b"1".rjust(size)
            async with client.put("/api/items/7", data=body) as response:
                assert response.status == status


async def test_pages_of_other_origins(running_app: Any) -> None:
    policy = CorsPolicy.parse("https://page.example", allows_credentials=False)
    page = {"Origin": "https://page.example"}
    async with running_app("http", cors=policy) as (_, client):
        asks = {**page, "Access-Control-Request-Method": "PUT"}
        async with client.options("/api/items/7", headers=asks) as response:
            assert response.status == 204
            assert response.headers["Access-Control-Allow-Methods"] == "PUT"
        for path, status in (("/api/hello", 200), ("/api/nothing", 404), ("/api/fails", 500)):
            async with client.get(path, headers=page) as response:
                assert response.status == status
                assert response.headers["Access-Control-Allow-Origin"] == "https://page.example"
        async with client.get("/api/hello", headers={"Origin": "https://other"}) as response:
            assert response.status == 200
            assert "Access-Control-Allow-Origin" not in response.headers


async def test_the_hosts_own_headers(running_app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = "AzureFunctionsJobHost__extensions__http__customHeaders__"
    monkeypatch.setenv(f"{prefix}X-Content-Type-Options", "nosniff")
    monkeypatch.setenv(f"{prefix}x-thread", "not over the function's own")
    async with running_app("http") as (_, client), client.get("/api/hello") as response:
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers.getall("x-thread")[0].startswith("function-")
        assert len(response.headers.getall("x-thread")) == 1


async def test_the_process_is_as_before_afterwards(running_app: Any) -> None:
    before = dict(os.environ), list(sys.path), Path.cwd(), set(sys.modules)
    async with running_app("http", ONLY_MEANWHILE="1"):
        assert os.environ["ONLY_MEANWHILE"] == "1"
        assert os.environ["GREETING"] == "Hello"
        assert Path.cwd().name == "http"
    assert (dict(os.environ), list(sys.path), Path.cwd()) == before[:3]
    assert not {"function_app", "more"} & (set(sys.modules) - before[3])


async def test_the_process_environment_wins_over_local_settings(
    running_app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GREETING", "Good day")
    async with running_app("http") as (_, client), client.get("/api/hello/Ann") as response:
        assert await response.text() == "Good day, Ann!"


async def test_a_drain_lets_requests_finish(running_app: Any) -> None:
    async with aiohttp.ClientSession() as client:
        async with running_app("http") as (host, _):
            url = f"{host.base_url}/api/hello/slowly?wait=0.3"
            call = asyncio.create_task(_text(client, url))
            while not host.invoker.in_flight:
                await asyncio.sleep(0.01)
        assert await call == "Hello, slowly!"


async def _text(client: aiohttp.ClientSession, url: str) -> str:
    async with client.get(url) as response:
        return await response.text()


async def test_an_answer_that_takes_too_long(
    running_app: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_trigger, "ANSWER_SECONDS", 0.05)
    async with running_app("http") as (host, client):
        # It waits for two more, but not for ever.
        async with client.get("/api/rendezvous") as response:
            assert response.status == 504
        assert host.invoker.running == ["rendezvous"]
    assert "'rendezvous' has not answered within 0.05 s" in caplog.text


async def test_addresses_and_headers_over_the_limit(running_app: Any) -> None:
    async with running_app("http") as (_, client):
        for path, headers, status in (
            ("/" + "x" * 8191, {}, 404),
            ("/" + "x" * 8192, {}, 414),
            ("/?" + "x" * 4096, {}, 200),
            ("/?" + "x" * 4097, {}, 414),
            ("/", {"x-large": "x" * 31_000}, 200),
            ("/", {"x-large": "x" * 33_000}, 431),
        ):
            async with client.get(path, headers=headers) as response:
                assert response.status == status, path[:10]
