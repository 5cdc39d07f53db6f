"""Find missing or invalid app settings of a pipeline before a run fails because of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from handlers.notify.webhook_client import parse_receiver
from handlers.notify.webhook_signature import parse_secrets
from handlers.platform.settings import KEEP_DAYS, Settings
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.errors import InvalidSetting


def missing_settings(settings: Settings, pipeline: Pipeline) -> list[str]:
    """A sentence for each setting that is missing or invalid; never a value."""
    found: dict[str, None] = {}
    for read in _needed(settings, pipeline):
        try:
            read()
        except InvalidSetting as error:
            found[str(error)] = None
    return list(found)


def _needed(settings: Settings, pipeline: Pipeline) -> Iterator[Callable[[], object]]:
    for name in ("AZUREML_SUBSCRIPTION_ID", "AZUREML_RESOURCE_GROUP", "AZUREML_WORKSPACE_NAME"):
        yield lambda name=name: settings.required(name)
    for name, endpoint in (
        ("DataStorage", "blobServiceUri"),
        ("WorkspaceStorage", "blobServiceUri"),
        ("ServiceBus", "fullyQualifiedNamespace"),
    ):
        yield lambda name=name, endpoint=endpoint: settings.connection(name, endpoint)
    for name in KEEP_DAYS:
        yield lambda name=name: settings.keep_days(name)
    if pipeline.notify.event_grid:
        yield lambda: settings.required("EventGridTopic__endpoint")
    for webhook in pipeline.notify.webhooks:
        yield lambda webhook=webhook: settings.decided(webhook.url_setting)
        if url := settings.values.get(webhook.url_setting):
            yield lambda url=url, webhook=webhook: parse_receiver(url, setting=webhook.url_setting)
            yield lambda webhook=webhook: parse_secrets(
                settings.values.get(webhook.secret_setting, ""), setting=webhook.secret_setting
            )
