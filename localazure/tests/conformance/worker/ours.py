"""The worker of this host: `load` and `Invoker`; for web frameworks, the whole host."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from email.utils import mktime_tz, parsedate_tz
from http.cookies import Morsel, SimpleCookie
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from azure.functions.meta import Datum
from multidict import CIMultiDict

from conformance.worker.exchange import Result, failure, http, message, send, serve
from localazure.functions.app.loader import LoadedFunction, importable, load
from localazure.functions.app.sdk_types import message_reference
from localazure.functions.app.signature import Binding
from localazure.functions.http.authorization import OpenDoor
from localazure.functions.service import run_app
from localazure.functions.triggers.http.trigger import http_response
from localazure.functions.worker.context import TraceContext
from localazure.functions.worker.invocation import Invoker, Setting, TriggerData
from localazure.functions.worker.span_parent import span_parent_by
from localazure.functions.worker.thread_pool import thread_count
from localazure.processes.ports import free_ports


def _datum(value: list[Any] | None) -> Datum:
    match value:
        case None:
            return Datum(None, None)
        case ["bytes", content]:
            return Datum(content.encode("latin-1"), "bytes")
        case ["http", fields]:
            texts = {
                part: {name: Datum(text, "string") for name, text in fields[part].items()}
                for part in ("headers", "query", "params")
            }
            body = _datum(fields["body"])
            url, method = (Datum(fields[part], "string") for part in ("url", "method"))
            return Datum({**texts, "url": url, "method": method, "body": body}, "http")
        case ["collection_bytes", items]:
            return Datum(
                SimpleNamespace(bytes=[item.encode("latin-1") for item in items]),
                "collection_bytes",
            )
        case [("collection_string" | "collection_sint64") as kind, items]:
            return Datum(SimpleNamespace(**{kind.partition("_")[2]: items}), kind)
        case ["message", body]:
            return message_reference([message(body)], is_batch=False)
        case ["messages", bodies]:
            return message_reference([message(body) for body in bodies], is_batch=True)
        case [kind, content]:
            return Datum(content, kind)
        case _:
            raise ValueError(value)


def _plain(datum: Datum | None) -> Any:
    if datum is None or datum.type is None:
        return None
    if datum.type == "http":
        answer = http_response(datum.value)
        headers = {name: text for name, text in answer.headers.items() if name != "Set-Cookie"}
        cookies = [
            _cookie(morsel)
            for text in answer.headers.getall("Set-Cookie", ())
            for morsel in SimpleCookie(text).values()
        ]
        body = answer.body if isinstance(answer.body, bytes) else b""
        return http(answer.status, headers, cookies, body.decode("latin-1"))
    value = datum.value
    return [datum.type, value.decode("latin-1") if isinstance(value, bytes) else value]


def _cookie(morsel: Morsel[str]) -> dict[str, Any]:
    """A cookie's fields, named as in the protocol."""
    expires, age = parsedate_tz(morsel["expires"]), morsel["max-age"]
    return {
        "name": morsel.key,
        "value": morsel.value,
        "domain": morsel["domain"],
        "path": morsel["path"],
        "expires": mktime_tz(expires) if expires else None,
        "secure": bool(morsel["secure"]),
        "http_only": bool(morsel["httponly"]),
        "same_site": morsel["samesite"],
        "max_age": float(age) if age.isdecimal() else None,
    }


async def examine(app: dict[str, Any], folder: Path) -> Result:
    settings: Mapping[str, str] = CIMultiDict(os.environ)
    if any("web" in call for call in app["calls"]):
        return await _over_http(app, folder)
    with importable(folder):
        try:
            functions = {one.name: one for one in load(folder, settings)}
        except Exception as error:  # noqa: BLE001 - a result
            return {"load": failure(error)}
        given: dict[str, Any] = {}

        async def fetch(binding: Binding, _: Setting) -> Datum:
            return _datum(given["inputs"].get(binding.name))

        async def send_output(_: Binding, value: Datum, __: Setting) -> None:
            _plain(value)

        invoker = Invoker(
            timeout=None,
            client_binding=lambda: given["inputs"]["client"][1],
            fetch_input=fetch,
            send_output=send_output,
            threads=thread_count(settings),
            span_parent=span_parent_by(settings),
        )
        result: Result = {
            "load": sorted(functions),
            "threads": thread_count(settings),
            "calls": [],
        }
        for call in app["calls"] if functions else ():
            given.update(call)
            result["calls"].append(await _call(invoker, functions[call["function"]], call))
        return result


async def _call(invoker: Invoker, function: LoadedFunction, call: dict[str, Any]) -> Result:
    data = TriggerData(
        _datum(call["inputs"].get(function.trigger.name)),
        {name: _datum(value) for name, value in call["metadata"].items()},
        trace=TraceContext(**call["trace"]),
    )
    try:
        answer = await invoker.invoke(function, data)
        outputs = {name: _plain(value) for name, value in answer.outputs.items()}
        return {"return": _plain(answer.result), "outputs": outputs}
    except BaseException as error:  # noqa: BLE001 - a result
        return failure(error)


async def _over_http(app: dict[str, Any], folder: Path) -> Result:
    (port,) = free_ports(1)
    state = folder / "state"
    try:
        async with run_app(
            folder, port=port, state=state, keys=OpenDoor("", "", ""), app_settings={}
        ) as host:
            names = sorted(one.name for one in host.functions)
            sending = [
                await asyncio.to_thread(send, host.base_url, call["web"]) for call in app["calls"]
            ]
            return {"load": names, "calls": [{"answers": answers} for answers in sending]}
    except Exception as error:  # noqa: BLE001 - a result
        return {"load": failure(error)}


if __name__ == "__main__":
    serve(examine)
