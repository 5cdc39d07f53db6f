"""Reads `event-grid.json`: topics, and event subscriptions as ARM words their properties.

Source of the properties:
https://learn.microsoft.com/azure/templates/microsoft.eventgrid/eventsubscriptions.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from localazure.eventgrid.filters import (
    MAX_ADVANCED_FILTERS,
    MAX_VALUES,
    OPERATORS,
    AdvancedFilter,
    Filter,
    Operand,
)
from localazure.eventgrid.place import EventGridConfigurationError, Place
from localazure.eventgrid.retry import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_TIME_TO_LIVE_MIN,
    MAX_TIME_TO_LIVE_MIN,
    SCHEDULE_S,
    RetryPolicy,
)
from localazure.eventgrid.schemas import Schema
from localazure.runtime.environment import AZURE_ML_TOPIC, STORAGE_TOPIC, Environment

SYSTEM_TOPICS = (STORAGE_TOPIC, AZURE_ML_TOPIC)
_NAME = re.compile(r"[A-Za-z0-9-]{3,64}")
_QUEUE_NAME = re.compile(r"(?=.{3,63}$)[a-z0-9]+(-[a-z0-9]+)*")
# ARM's limits of batched delivery.
MAX_EVENTS_PER_BATCH = 5000
MAX_BATCH_KB = 1024
DEFAULT_BATCH_KB = 64


@dataclass(frozen=True)
class Topic:
    """A topic that events are published to.

    Attributes:
        resource_id: what its events carry as `topic`; empty for system topics, whose publishers
            set it to the resource that the event comes from.
    """

    name: str
    input_schema: Schema
    resource_id: str


@dataclass(frozen=True)
class WebHook:
    """Delivery by POST to any URL, after a handshake."""

    url: str


@dataclass(frozen=True)
class AzureFunction:
    """Delivery to a function of the local Functions host; no handshake, as on Azure."""

    url: str


@dataclass(frozen=True)
class ServiceBusEntity:
    """Delivery as a message to a queue or topic of the local Service Bus."""

    name: str
    is_topic: bool


@dataclass(frozen=True)
class StorageQueueEntity:
    """Delivery as a message to a queue of the local storage.

    Attributes:
        time_to_live_s: of a message; -1 is without limit, None the service's default, a week.
    """

    name: str
    time_to_live_s: int | None


Destination = WebHook | AzureFunction | ServiceBusEntity | StorageQueueEntity


@dataclass(frozen=True, kw_only=True)
class Subscription:
    """One event subscription.

    Attributes:
        max_events_per_batch: 1 delivers each event by itself.
        dead_letter_container: None drops what cannot be delivered.
    """

    name: str
    topic: str
    destination: Destination
    schema: Schema
    filter: Filter
    retry: RetryPolicy
    max_events_per_batch: int = 1
    preferred_batch_bytes: int = DEFAULT_BATCH_KB * 1024
    dead_letter_container: str | None = None


@dataclass(frozen=True)
class Configuration:
    """Everything that `event-grid.json` says."""

    topics: dict[str, Topic]
    subscriptions: dict[str, Subscription]
    schedule_s: tuple[float, ...] | None


def load(environment: Environment) -> Configuration:
    """Read the environment's file; without one there are the system topics only.

    Raises:
        EventGridConfigurationError: not the documented form.
    """
    path = environment.event_grid_config
    try:
        document = json.loads(path.read_text()) if path.exists() else {}
    except ValueError as error:
        raise EventGridConfigurationError(f"{path}: not JSON: {error}") from error
    return parse(Place(str(path), "", document), environment)


def parse(document: Place, environment: Environment) -> Configuration:
    """Check and read the document; see `load`."""
    members = document.members(("topics", "eventSubscriptions", "retryScheduleSeconds"))
    topics = {name: Topic(name, Schema.EVENT_GRID, "") for name in SYSTEM_TOPICS}
    for item in members["topics"].items() if "topics" in members else ():
        topic = _parse_topic(item, environment)
        if topic.name in topics:
            raise item.error("a topic of this name exists already")
        topics[topic.name] = topic
    schedule_s = None
    if "retryScheduleSeconds" in members:
        place = members["retryScheduleSeconds"]
        schedule_s = tuple(item.number() for item in place.items())
        if not schedule_s or min(schedule_s) < 0:
            raise place.error("expected a list of delays in seconds")
    empty = Configuration(topics, {}, schedule_s)
    subscriptions: dict[str, Subscription] = {}
    for item in members["eventSubscriptions"].items() if "eventSubscriptions" in members else ():
        subscription = parse_subscription(item, empty, environment)
        if subscription.name in subscriptions:
            raise item.error("a subscription of this name exists already")
        subscriptions[subscription.name] = subscription
    return Configuration(topics, subscriptions, schedule_s)


def _parse_topic(place: Place, environment: Environment) -> Topic:
    members = place.members(("name", "inputSchema"))
    name = _parse_name(place.require(members, "name"))
    schema = Schema.EVENT_GRID
    if "inputSchema" in members:
        schema = Schema(members["inputSchema"].one_of(Schema))
    resource_id = (
        f"/subscriptions/{environment.subscription_id}/resourceGroups/{environment.resource_group}"
        f"/providers/Microsoft.EventGrid/topics/{name}"
    )
    return Topic(name, schema, resource_id)


def parse_subscription(
    place: Place, configuration: Configuration, environment: Environment
) -> Subscription:
    """Read one subscription: `{"name", "topic", "properties"}`.

    Raises:
        EventGridConfigurationError: not the documented form, or an unknown topic.
    """
    members = place.members(("name", "topic", "properties"))
    name = _parse_name(place.require(members, "name"))
    topic = configuration.topics[place.require(members, "topic").one_of(configuration.topics)]
    body = place.require(members, "properties")
    properties = body.members(
        (
            "destination",
            "filter",
            "retryPolicy",
            "deadLetterDestination",
            "eventDeliverySchema",
            "labels",
        )
    )
    destination, max_events, batch_kb = _parse_destination(
        body.require(properties, "destination"), environment
    )
    schema = topic.input_schema
    if "eventDeliverySchema" in properties:
        schema = Schema(properties["eventDeliverySchema"].one_of(Schema))
    container = None
    if "deadLetterDestination" in properties:
        container = _parse_dead_letter(properties["deadLetterDestination"])
    return Subscription(
        name=name,
        topic=topic.name,
        destination=destination,
        schema=schema,
        filter=_parse_filter(properties["filter"]) if "filter" in properties else Filter(),
        retry=_parse_retry(properties.get("retryPolicy"), configuration.schedule_s),
        max_events_per_batch=max_events,
        preferred_batch_bytes=batch_kb * 1024,
        dead_letter_container=container,
    )


def _parse_name(place: Place) -> str:
    name = place.string()
    if not _NAME.fullmatch(name):
        raise place.error("expected 3 to 64 letters, digits and hyphens")
    return name


def _parse_destination(place: Place, environment: Environment) -> tuple[Destination, int, int]:
    members = place.members(("endpointType", "properties"))
    kind = place.require(members, "endpointType").one_of(
        ("WebHook", "AzureFunction", "ServiceBusQueue", "ServiceBusTopic", "StorageQueue")
    )
    body = place.require(members, "properties")
    if kind == "StorageQueue":
        return _parse_storage_queue(body), 1, DEFAULT_BATCH_KB
    target = "endpointUrl" if kind == "WebHook" else "resourceId"
    batching = ("maxEventsPerBatch", "preferredBatchSizeInKilobytes")
    known = (target,) if kind.startswith("ServiceBus") else (target, *batching)
    properties = body.members(known)
    value = body.require(properties, target)
    max_events, batch_kb = 1, DEFAULT_BATCH_KB
    if batching[0] in properties:
        max_events = properties[batching[0]].integer(1, MAX_EVENTS_PER_BATCH)
    if batching[1] in properties:
        batch_kb = properties[batching[1]].integer(1, MAX_BATCH_KB)
    return _parse_target(kind, value, environment), max_events, batch_kb


def _parse_target(kind: str, place: Place, environment: Environment) -> Destination:
    if kind == "WebHook":
        url = place.string().replace("{functions_url}", environment.functions_url)
        url = url.replace("{functions_system_key}", quote(environment.keys.functions_system))
        if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
            raise place.error(
                "expected an http or https URL (with {functions_url} and "
                "{functions_system_key}, if you like)"
            )
        return WebHook(url)
    segments = place.string().strip("/").split("/")
    if kind == "AzureFunction":
        if len(segments) < 2 or segments[-2] != "functions":  # noqa: PLR2004 - type and name
            raise place.error("expected a resource id that ends in /functions/NAME")
        return AzureFunction(
            f"{environment.functions_url}/runtime/webhooks/EventGrid"
            f"?functionName={quote(segments[-1])}"
            f"&code={quote(environment.keys.functions_system)}"
        )
    collection = "queues" if kind == "ServiceBusQueue" else "topics"
    if len(segments) < 2 or segments[-2] != collection:  # noqa: PLR2004 - type and name
        raise place.error(f"expected a resource id that ends in /{collection}/NAME")
    return ServiceBusEntity(segments[-1], is_topic=kind == "ServiceBusTopic")


def _parse_storage_queue(place: Place) -> StorageQueueEntity:
    # resourceId names the storage account: locally there is one.
    members = place.members(("resourceId", "queueName", "queueMessageTimeToLiveInSeconds"))
    name = place.require(members, "queueName")
    if not _QUEUE_NAME.fullmatch(name.string()):
        raise name.error("expected 3 to 63 lower-case letters, digits and single hyphens")
    time_to_live_s = None
    if "queueMessageTimeToLiveInSeconds" in members:
        time_to_live_s = members["queueMessageTimeToLiveInSeconds"].integer(-1, 2**31 - 1)
    return StorageQueueEntity(name.string(), time_to_live_s)


def _parse_dead_letter(place: Place) -> str:
    members = place.members(("endpointType", "properties"))
    place.require(members, "endpointType").one_of(("StorageBlob",))
    body = place.require(members, "properties")
    # resourceId names the storage account: locally there is one.
    return body.require(
        body.members(("blobContainerName", "resourceId")), "blobContainerName"
    ).string()


def _parse_retry(place: Place | None, schedule_s: tuple[float, ...] | None) -> RetryPolicy:
    max_attempts, minutes = DEFAULT_MAX_ATTEMPTS, DEFAULT_TIME_TO_LIVE_MIN
    if place is not None:
        members = place.members(("maxDeliveryAttempts", "eventTimeToLiveInMinutes"))
        if "maxDeliveryAttempts" in members:
            max_attempts = members["maxDeliveryAttempts"].integer(1, DEFAULT_MAX_ATTEMPTS)
        if "eventTimeToLiveInMinutes" in members:
            minutes = members["eventTimeToLiveInMinutes"].integer(1, MAX_TIME_TO_LIVE_MIN)
    return RetryPolicy(
        max_attempts=max_attempts,
        time_to_live_s=minutes * 60,
        schedule_s=SCHEDULE_S if schedule_s is None else schedule_s,
        scaled=schedule_s is not None,
    )


def _parse_filter(place: Place) -> Filter:
    members = place.members(
        (
            "includedEventTypes",
            "subjectBeginsWith",
            "subjectEndsWith",
            "isSubjectCaseSensitive",
            "enableAdvancedFilteringOnArrays",
            "advancedFilters",
        )
    )

    def text(name: str) -> str:
        return members[name].text() if name in members else ""

    def flag(name: str) -> bool:
        return name in members and members[name].boolean()

    types = None
    if "includedEventTypes" in members:
        types = frozenset(name.lower() for name in members["includedEventTypes"].strings())
    advanced: tuple[AdvancedFilter, ...] = ()
    if "advancedFilters" in members:
        advanced = _parse_advanced_filters(members["advancedFilters"])
    return Filter(
        event_types=types,
        subject_begins_with=text("subjectBeginsWith"),
        subject_ends_with=text("subjectEndsWith"),
        case_sensitive=flag("isSubjectCaseSensitive"),
        advanced=advanced,
        arrays=flag("enableAdvancedFilteringOnArrays"),
    )


def _parse_advanced_filters(place: Place) -> tuple[AdvancedFilter, ...]:
    filters = tuple(_parse_advanced_filter(item) for item in place.items())
    values = sum(len(item.operands) for item in filters)
    if len(filters) > MAX_ADVANCED_FILTERS or values > MAX_VALUES:
        raise place.error(
            f"expected at most {MAX_ADVANCED_FILTERS} filters with {MAX_VALUES} values in all"
        )
    return filters


def _parse_advanced_filter(place: Place) -> AdvancedFilter:
    members = place.members(("operatorType", "key", "value", "values"))
    operator = OPERATORS[place.require(members, "operatorType").one_of(OPERATORS)]
    key = place.require(members, "key").string()
    operands: tuple[object, ...]
    match operator.operand:
        case Operand.NOTHING:
            operands = (None,)
        case Operand.NUMBER:
            operands = (place.require(members, "value").number(),)
        case Operand.BOOLEAN:
            operands = (place.require(members, "value").boolean(),)
        case Operand.NUMBERS:
            operands = tuple(item.number() for item in place.require(members, "values").items())
        case Operand.STRINGS:
            operands = tuple(text.lower() for text in place.require(members, "values").strings())
        case Operand.RANGES:
            operands = tuple(
                _parse_range(item) for item in place.require(members, "values").items()
            )
    return AdvancedFilter(operator, key, operands)


def _parse_range(place: Place) -> tuple[float, float]:
    ends = tuple(item.number() for item in place.items())
    if len(ends) != 2 or ends[0] > ends[1]:  # noqa: PLR2004 - low and high
        raise place.error("expected [low, high]")
    return ends[0], ends[1]
