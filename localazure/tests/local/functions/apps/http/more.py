"""A blueprint with HTTP triggers."""

# pyright: basic
# This app is written like a user's app, without strict types.
# ruff: noqa: ARG001 - the same

import json

import azure.functions as func

more = func.Blueprint()


@more.route(route="about", auth_level=func.AuthLevel.ANONYMOUS)
def about(req: func.HttpRequest, context: func.Context) -> func.HttpResponse:
    return func.HttpResponse(
        json.dumps(
            {
                "function": context.function_name,
                "invocation": context.invocation_id,
                "thread": context.thread_local_storage.invocation_id,  # pyright: ignore[reportAttributeAccessIssue] - the SDK types it as a class
                "parent": context.trace_context.Traceparent,  # pyright: ignore[reportAttributeAccessIssue] - documented, not typed
                "retries": context.retry_context.max_retry_count,
            }
        )
    )


@more.route(route="files/{*path}", auth_level=func.AuthLevel.ANONYMOUS)
def files(req: func.HttpRequest) -> str:
    return req.route_params.get("path", "")


@more.function_name("out_param")
@more.route(route="out", auth_level=func.AuthLevel.ANONYMOUS, binding_arg_name="answer")
def out(req: func.HttpRequest, answer: func.Out[func.HttpResponse]) -> None:
    answer.set(func.HttpResponse("set", status_code=202))


@more.function_name("unset_param")
@more.route(route="unset", auth_level=func.AuthLevel.ANONYMOUS, binding_arg_name="answer")
def unset(req: func.HttpRequest, answer: func.Out[func.HttpResponse]) -> None:
    pass
