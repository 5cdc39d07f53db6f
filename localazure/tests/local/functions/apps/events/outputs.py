"""Event Grid outputs."""

# ruff: noqa: ARG001 - as an app's author would write it

import datetime as dt

import azure.functions as func

out = func.Blueprint()


@out.route(route="publish", auth_level=func.AuthLevel.ANONYMOUS)
@out.event_grid_output(
    arg_name="events", topic_endpoint_uri="TopicEndpoint", topic_key_setting="TopicKey"
)
def publish(req: func.HttpRequest, events: func.Out[func.EventGridOutputEvent]) -> str:
    events.set(
        func.EventGridOutputEvent(
            id="from-output",
            data={"n": 1},
            subject="s",
            event_type="Published",
            event_time=dt.datetime.now(dt.UTC),
            data_version="1",
        )
    )
    return "published"
