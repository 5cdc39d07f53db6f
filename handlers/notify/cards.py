"""Draws a notification as a card: for a workflow of Microsoft Teams, or for Slack. Pure.

A card has a title, a sentence, facts, and buttons that open the page; it decides nothing. Both
services take a card at an address that is itself the secret, so nothing is signed.

Teams: a message with an Adaptive Card
(https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using),
of 28 KB at most
(https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/add-incoming-webhook).
Text blocks and facts are Markdown, without HTML
(https://learn.microsoft.com/microsoftteams/platform/task-modules-and-cards/cards/cards-format).

Slack: at most 50 blocks (https://docs.slack.dev/reference/block-kit/blocks), a header of 150
characters, a text of 3,000 and ten fields of 2,000 each in a section
(https://docs.slack.dev/reference/block-kit/blocks/section-block). `&`, `<` and `>` are escaped
(https://docs.slack.dev/messaging/formatting-message-text).

The limits here are lower, so that every card is also below `webhooks.BODY_LIMIT_BYTES`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from handlers.notify.outbox import subject_kind
from orchestrations.contracts.notifications import Notification
from orchestrations.contracts.outcomes import rule_of_verdict
from orchestrations.contracts.runs import RunStatus

# In UTF-16 units, as both services count, after escaping.
TITLE_LIMIT = 150
SENTENCE_LIMIT = 1500
NAME_LIMIT = 40
VALUE_LIMIT = 240

_SLACK = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_MARKDOWN = r"\`*_[]{}|~<>"
# Only at the beginning; names have hyphens.
_MARKDOWN_FIRST = "#+-"


@dataclass(frozen=True)
class Card:
    """What a notification says, in no service's markup."""

    title: str
    sentence: str
    facts: Mapping[str, str]
    buttons: Mapping[str, str]
    """Label → address."""


def card_body(
    form: Literal["teams", "slack"], notification: Notification, links: Mapping[str, str]
) -> bytes:
    """The body of the request that posts the card of a notification."""
    draw = _teams if form == "teams" else _slack
    return json.dumps(draw(card_of(notification, links)), ensure_ascii=False).encode()


def card_of(notification: Notification, links: Mapping[str, str]) -> Card:
    """The card of a notification, with the `links` of `page_links.notification_links`."""
    status, asks = notification.status, notification.kind == "awaiting_approval"
    kind = subject_kind(notification)
    labels = {
        "url": "Look, and answer" if asks else f"Open the {kind.lower()}",
        "picture_url": "Pipeline over time",
    }
    error = status.error if isinstance(status, RunStatus) else None
    sentence = status.reason if error is None else f"{error.type}: {error.message}"
    return Card(
        title=f"{kind} of {status.pipeline}: {notification.kind.replace('_', ' ')}",
        sentence=sentence or f"It is {status.state.replace('_', ' ')}.",
        facts=dict(_facts(notification)),
        buttons={labels[name]: url for name, url in links.items()},
    )


def _facts(notification: Notification) -> Iterator[tuple[str, str]]:
    status = notification.status
    yield "Pipeline", status.pipeline
    if status.model is not None:
        yield "Model", f"{status.model.name}:{status.model.version}"
    if isinstance(status, RunStatus):
        yield "Run", status.id
        if status.metrics:
            yield "Metrics", ", ".join(f"{name} {it:g}" for name, it in status.metrics.items())
        if status.verdict is not None:
            yield "Verdict", rule_of_verdict(status.verdict).sentence
    else:
        yield "Endpoint", status.endpoint
        if status.traffic:
            yield "Traffic", ", ".join(f"{name} {it} %" for name, it in status.traffic.items())


def escape_slack(text: str, limit: int) -> str:
    """A text that Slack shows as it is, cut to `limit` UTF-16 units."""
    return _cut((_SLACK.get(each, each) for each in _visible(text)), limit)


def escape_markdown(text: str, limit: int) -> str:
    """A text that Teams shows as it is, cut to `limit` UTF-16 units."""
    shown = _visible(text).strip()
    first, rest = shown[:1], shown[1:]
    escaped = (f"\\{each}" if each in _MARKDOWN else each for each in rest)
    begun = f"\\{first}" if first and first in _MARKDOWN + _MARKDOWN_FIRST else first
    return _cut(chain([begun], escaped), limit)


def _visible(text: str) -> str:
    """Without what is obeyed instead of shown: controls, line ends, directions of writing."""
    return "".join(each if each.isprintable() else " " for each in text)


def _cut(escaped: Iterable[str], limit: int) -> str:
    """Whole characters only: half of an escape would be read as something else."""
    kept, length = list[str](), 0
    for each in escaped:
        length += len(each.encode("utf-16-le")) // 2
        if length >= limit:
            return "".join(kept) + "…"
        kept.append(each)
    return "".join(kept)


def _teams(card: Card) -> dict[str, Any]:
    def text(value: str, limit: int, **more: str) -> dict[str, Any]:
        return {"type": "TextBlock", "text": escape_markdown(value, limit), "wrap": True, **more}

    facts = [
        {"title": escape_markdown(name, NAME_LIMIT), "value": escape_markdown(value, VALUE_LIMIT)}
        for name, value in card.facts.items()
    ]
    content = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.2",
        "body": [
            text(card.title, TITLE_LIMIT, size="Medium", weight="Bolder"),
            text(card.sentence, SENTENCE_LIMIT),
            {"type": "FactSet", "facts": facts},
        ],
        "actions": [
            {"type": "Action.OpenUrl", "title": label, "url": url}
            for label, url in card.buttons.items()
        ],
    }
    kind = "application/vnd.microsoft.card.adaptive"
    return {
        "type": "message",
        "attachments": [{"contentType": kind, "contentUrl": None, "content": content}],
    }


def _slack(card: Card) -> dict[str, Any]:
    def text(value: str) -> dict[str, Any]:
        return {"type": "mrkdwn", "text": value, "verbatim": True}

    title = escape_slack(card.title, TITLE_LIMIT)
    fields = [
        text(f"*{escape_slack(name, NAME_LIMIT)}*\n{escape_slack(value, VALUE_LIMIT)}")
        for name, value in card.facts.items()
    ]
    buttons = [
        {"type": "button", "text": {"type": "plain_text", "text": label}, "url": url}
        for label, url in card.buttons.items()
    ]
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": title}},
        {"type": "section", "text": text(escape_slack(card.sentence, SENTENCE_LIMIT))},
        {"type": "section", "fields": fields},
    ]
    if buttons:
        blocks.append({"type": "actions", "elements": buttons})
    return {"text": title, "blocks": blocks}
