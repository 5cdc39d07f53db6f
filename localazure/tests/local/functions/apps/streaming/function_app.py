"""HTTP functions for FastAPI, with streamed requests and responses, and blob client inputs."""

# pyright: basic, reportMissingImports=false
# The extensions are installed only to test this app.
# This app is written like a user's app, without strict types.

import asyncio
from collections.abc import AsyncGenerator

import azure.functions as func
from azurefunctions.extensions.bindings import blob
from azurefunctions.extensions.http.fastapi import JSONResponse, Request, StreamingResponse

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
may_go_on = asyncio.Event()


@app.route(route="count/{name}", methods=["POST"])
async def count(req: Request) -> JSONResponse:
    sizes = [len(chunk) async for chunk in req.stream()]
    body = {"name": req.path_params["name"], "pieces": len(sizes), "bytes": sum(sizes)}
    return JSONResponse(body, status_code=201, headers={"x-kind": req.query_params["kind"]})


@app.route(route="feed")
async def feed(req: Request) -> StreamingResponse:  # noqa: ARG001 - bound, not used
    async def pieces() -> AsyncGenerator[str]:
        yield "first\n"
        await may_go_on.wait()
        yield "second\n"

    return StreamingResponse(pieces(), media_type="text/event-stream")


@app.route(route="go-on", methods=["POST"])
async def go_on(req: Request) -> str:  # noqa: ARG001 - bound, not used
    may_go_on.set()
    return "on"


@app.route(route="fails")
async def fails(req: Request) -> str:  # noqa: ARG001 - bound, not used
    raise ValueError("as told")


@app.route(route="copy/{name}")
@app.blob_input(arg_name="source", path="from/{name}", connection="AzureWebJobsStorage")
@app.blob_input(arg_name="target", path="target", connection="AzureWebJobsStorage")
def copy(req: Request, source: blob.BlobClient, target: blob.ContainerClient) -> str:  # noqa: ARG001 - bound, not used
    target.upload_blob(source.blob_name, source.download_blob().readall())
    return source.container_name


@app.blob_trigger(arg_name="landed", path="from/{name}", connection="AzureWebJobsStorage")
@app.blob_output(arg_name="$return", path="sizes/{name}", connection="AzureWebJobsStorage")
def measure(landed: blob.StorageStreamDownloader) -> str:
    return str(len(landed.readall()))


@app.route(route="breaks")
async def breaks(req: Request) -> StreamingResponse:  # noqa: ARG001 - bound, not used
    async def pieces() -> AsyncGenerator[str]:
        yield "first"
        raise ValueError("as told")

    return StreamingResponse(pieces())


@app.route(route="none")
async def none(req: Request):  # noqa: ANN201, ARG001 - the worker takes no None; bound, not used
    return None


@app.route(route="more")
async def more(req: Request) -> str:  # noqa: ARG001 - bound, not used
    return "more"
