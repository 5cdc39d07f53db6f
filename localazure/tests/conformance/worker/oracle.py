"""Microsoft's worker: `azure-functions-runtime`, which Azure's Python worker calls from 3.13 on.

It takes and gives objects of protobuf. Objects with the same attributes take their place.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import azure_functions_runtime as worker  # pyright: ignore[reportMissingImports]
from azure_functions_runtime.utils import threadpool  # pyright: ignore[reportMissingImports]

from conformance.worker.exchange import Result, failure, http, message, send, serve


class TypedData:
    """A value of the protocol, of one kind."""

    def __init__(self, **fields: Any) -> None:
        self.kind, self.value = next(iter(fields.items()), (None, None))
        if self.kind == "int" and not -(2**63) <= fields["int"] < 2**63:
            raise ValueError("Value out of range")

    def __getattr__(self, name: str) -> Any:
        if name != self.kind:
            raise AttributeError(name)
        return self.value

    def WhichOneof(self, _: str) -> str | None:  # noqa: N802 - protobuf's name
        return self.kind


def _message(name: str, **constants: object) -> type:
    return type(name, (SimpleNamespace,), constants)


PROTOS = SimpleNamespace(
    TypedData=TypedData,
    BindingInfo=_message("BindingInfo", out=1, inout=2, undefined=0),
    StatusResult=_message("StatusResult", Failure=0, Success=1),
    RpcHttpCookie=_message(
        "RpcHttpCookie",
        SameSite=SimpleNamespace(None_=0, Lax="Lax", Strict="Strict", ExplicitNone="None"),
    ),
    **{
        name: _message(name)
        for name in (
            *("FunctionMetadataResponse", "InvocationResponse", "ParameterBinding", "RpcHttp"),
            *("NullableBool", "NullableDouble", "NullableString", "NullableTimestamp", "Timestamp"),
            *("RpcException", "RpcFunctionMetadata", "RpcRetryOptions", "WorkerInitResponse"),
            "WorkerMetadata",
        )
    },
)
setattr(PROTOS.RpcHttpCookie.SameSite, "None", "")


def _request(**fields: Any) -> Any:
    return SimpleNamespace(
        request=SimpleNamespace(**fields), properties={"host": "127.0.0.1", "protos": PROTOS}
    )


def _typed(value: list[Any] | None) -> TypedData:
    match value:
        case None:
            return TypedData()
        case ["bytes", content]:
            return TypedData(bytes=content.encode("latin-1"))
        case ["http", fields]:
            return TypedData(http=SimpleNamespace(**{**fields, "body": _typed(fields["body"])}))
        case ["collection_bytes", items]:
            items = [item.encode("latin-1") for item in items]
            return TypedData(collection_bytes=SimpleNamespace(bytes=items))
        case [("collection_string" | "collection_sint64") as kind, items]:
            return TypedData(**{kind: SimpleNamespace(**{kind.partition("_")[2]: items})})
        case ["message", body]:
            return TypedData(model_binding_data=_received(body))
        case ["messages", bodies]:
            messages = SimpleNamespace(model_binding_data=[_received(body) for body in bodies])
            return TypedData(collection_model_binding_data=messages)
        case [kind, content]:
            return TypedData(**{kind: content})
        case _:
            raise ValueError(value)


def _received(body: str) -> SimpleNamespace:
    return SimpleNamespace(
        content=message(body),
        version="1.0",
        source="AzureServiceBusReceivedMessage",
        content_type="application/octet-stream",
    )


def _plain(data: Any) -> Any:
    if data is None or data.kind is None:
        return None
    if data.kind == "http":
        one = data.value
        cookies = [
            {key: getattr(value, "value", value) for key, value in vars(cookie).items()}
            for cookie in one.cookies or ()
        ]
        for cookie in cookies:
            cookie["expires"] = getattr(cookie["expires"], "seconds", None)
        return http(one.status_code, one.headers, cookies, _plain(one.body)[1])
    return [data.kind, data.value.decode("latin-1") if data.kind == "bytes" else data.value]


async def examine(app: dict[str, Any], folder: Path) -> Result:
    sys.path.insert(0, str(folder))
    init = SimpleNamespace(capabilities={}, function_app_directory=str(folder))
    loaded = await worker.worker_init_request(_request(worker_init_request=init))
    if loaded.result.status == PROTOS.StatusResult.Failure:
        return {"load": failure(loaded.result.exception.message)}
    worker.start_threadpool_executor()
    answer = await worker.functions_metadata_request(None)
    result: Result = {
        "load": sorted(one.name for one in answer.function_metadata_results or ()),
        "threads": threadpool.get_threadpool_executor()._max_workers,
    }
    uri = loaded.capabilities.get("HttpUri", "")
    if uri:
        await asyncio.sleep(1)  # until it listens
    result["calls"] = [await _call(call, uri) for call in app["calls"] if result["load"]]
    return result


async def _call(call: dict[str, Any], uri: str) -> Result:
    if "web" not in call:
        return await _invoke(str(uuid.uuid4()), call)
    answers = list[Any]()
    for one in call["web"]:
        invocation = str(uuid.uuid4())
        fields = {"method": one["method"], "url": one["path"], "body": ["bytes", ""]}
        given = ["http", {**fields, "headers": {}, "query": {}, "params": {}}]
        invoking = asyncio.create_task(_invoke(invocation, {**call, "inputs": {"req": given}}))
        forwarded = {**one, "headers": {"x-ms-invocation-id": invocation}}
        answers += await asyncio.to_thread(send, uri, [forwarded])
        await asyncio.wait([invoking], timeout=1)
        invoking.cancel()  # the framework has refused the request, and the function waits for it
    return {"answers": answers}


async def _invoke(invocation: str, call: dict[str, Any]) -> Result:
    inputs = [
        SimpleNamespace(name=name, data=_typed(value), WhichOneof={"rpc_data": "data"}.get)
        for name, value in call["inputs"].items()
    ]
    request = SimpleNamespace(
        invocation_id=invocation,
        function_id=str(uuid.uuid5(uuid.NAMESPACE_OID, call["function"])),
        input_data=inputs,
        trigger_metadata={name: _typed(value) for name, value in call["metadata"].items()},
        trace_context=SimpleNamespace(**call["trace"]),
        retry_context=SimpleNamespace(retry_count=0, max_retry_count=0, exception=None),
    )
    try:
        answer = await worker.invocation_request(_request(invocation_request=request))
    except BaseException as error:  # noqa: BLE001 - it would end the worker
        return failure(f"the worker ends: {error!r}")
    if answer.result.status == PROTOS.StatusResult.Failure:
        return failure(answer.result.exception.message)
    outputs = {one.name: _plain(one.data) for one in answer.output_data}
    return {"return": _plain(answer.return_value), "outputs": outputs}


if __name__ == "__main__":
    serve(examine)
