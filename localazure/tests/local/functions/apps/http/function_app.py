"""HTTP triggers of all kinds."""

# pyright: basic
# This app is written like a user's app, without strict types.
# ruff: noqa: ARG001 - the same

import asyncio
import json
import os
import sys
import threading
import time

import azure.functions as func
from more import more

app = func.FunctionApp()
app.register_functions(more)

meeting = threading.Barrier(3)


@app.route(
    route="hello/{name:alpha?}", methods=["GET", "POST"], auth_level=func.AuthLevel.ANONYMOUS
)
def hello(req: func.HttpRequest) -> func.HttpResponse:
    time.sleep(float(req.params.get("wait", "0")))
    name = req.route_params.get("name") or req.params.get("name", "you")
    return func.HttpResponse(
        f"{os.environ['GREETING']}, {name}!", headers={"x-thread": threading.current_thread().name}
    )


@app.route(route="%ITEMS_ROUTE%/{id:int}", auth_level=func.AuthLevel.ANONYMOUS)
async def item(req: func.HttpRequest) -> func.HttpResponse:
    await asyncio.sleep(0)
    body = {
        "id": req.route_params["id"],
        "method": req.method,
        "url": req.url,
        "params": dict(req.params),
        "agent": req.headers.get("User-Agent"),
        "json": req.get_json() if req.get_body() else None,
    }
    response = func.HttpResponse(json.dumps(body), status_code=201, mimetype="application/json")
    response.headers.add("Set-Cookie", "a=1; Path=/")
    response.headers.add("Set-Cookie", "b=2; HttpOnly")
    return response


@app.route(route="guarded")
def guarded(req: func.HttpRequest) -> str:
    return "in"


@app.route(route="owners", auth_level=func.AuthLevel.ADMIN)
def owners(req: func.HttpRequest) -> str:
    return "in"


@app.route(route="fails", auth_level=func.AuthLevel.ANONYMOUS)
def fails(req: func.HttpRequest) -> str:
    raise ValueError("as told")


@app.route(route="exits", auth_level=func.AuthLevel.ANONYMOUS)
def exits(req: func.HttpRequest) -> str:
    sys.exit("enough")


@app.route(route="exits_async", auth_level=func.AuthLevel.ANONYMOUS)
async def exits_async(req: func.HttpRequest) -> str:
    sys.exit(3)


@app.route(route="returns_none", auth_level=func.AuthLevel.ANONYMOUS)
def returns_none(req: func.HttpRequest) -> func.HttpResponse:
    return None  # pyright: ignore[reportReturnType] - a mistake, on purpose


@app.route(route="slow", auth_level=func.AuthLevel.ANONYMOUS)
def slow(req: func.HttpRequest) -> str:
    time.sleep(1.5)
    return "too late"


@app.route(route="slow_async", auth_level=func.AuthLevel.ANONYMOUS)
async def slow_async(req: func.HttpRequest) -> str:
    await asyncio.sleep(60)
    return "too late"


@app.route(route="rendezvous", auth_level=func.AuthLevel.ANONYMOUS)
def rendezvous(req: func.HttpRequest) -> str:
    meeting.wait(0.9)
    return "met"


@app.route(route="off", auth_level=func.AuthLevel.ANONYMOUS)
def off(req: func.HttpRequest) -> str:
    return "on"
