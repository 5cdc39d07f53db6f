from __future__ import annotations

import html
import json
import re
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.notify.cards import card_body, escape_markdown, escape_slack
from handlers.notify.webhooks import BODY_LIMIT_BYTES
from orchestrations.configuration.pipeline import Webhook
from orchestrations.contracts.base import Failure
from orchestrations.contracts.notifications import Notification, NotificationKind
from orchestrations.contracts.run_states import GateVerdict
from orchestrations.contracts.runs import Model
from tests.unit.orchestrations.examples import run_status

Form = Literal["teams", "slack"]
NOW = datetime(2026, 11, 28, tzinfo=UTC)
LINKS = {"url": "https://a.example/api/ui#/runs/r", "picture_url": "https://a.example/api/ui#/p"}
FORMS = st.sampled_from(get_args(Form))
FACTS = st.fixed_dictionaries(
    {},
    optional={
        "reason": st.text(),
        "error": st.builds(Failure, type=st.text(), message=st.text(), permanent=st.booleans()),
        "metrics": st.dictionaries(st.text(), st.floats(allow_nan=False), max_size=20),
        "model": st.builds(Model, name=st.text(max_size=300), version=st.just("7")),
        "verdict": st.sampled_from(get_args(GateVerdict)),
    },
)


def a_card(form: Form, kind: NotificationKind = "succeeded", **facts: Any) -> Any:
    """The card of a run, and all texts in it that its service reads as markup."""
    status = run_status("digits-aa-1", "judging", NOW).model_copy(update=facts)
    body = card_body(form, Notification(id="n", kind=kind, at=NOW, status=status), LINKS)
    assert len(body) <= BODY_LIMIT_BYTES
    texts: list[str] = []

    def note(read: dict[str, Any]) -> dict[str, Any]:
        named = (read.get(name) for name in ("text", "title", "value"))
        texts.extend(it for it in named if isinstance(it, str))
        return read

    return json.loads(body, object_hook=note), texts


@given(FORMS, FACTS)
def test_every_card_is_within_its_services_limits(form: Form, facts: dict[str, Any]) -> None:
    card, texts = a_card(form, **facts)
    assert all(len(each.encode("utf-16-le")) <= 2 * 3000 for each in texts)
    if form == "slack":
        header, _, section, actions = card["blocks"]
        assert len(header["text"]["text"]) <= 150
        assert len(section["fields"]) <= 10
        assert len(actions["elements"]) == 2
        for each in texts:
            assert re.search(r"[<>]|&(?!(amp|lt|gt);)", each) is None
    else:
        (attached,) = card["attachments"]
        assert {each["type"] for each in attached["content"]["actions"]} == {"Action.OpenUrl"}


@given(st.text(), st.integers(2, 60))
def test_what_users_wrote_is_shown_as_it_is_and_no_escape_is_cut(text: str, limit: int) -> None:
    shown = "".join(it if it.isprintable() else " " for it in text)
    for escaped, plain, read in (
        (escape_slack(text, limit), shown, html.unescape),
        (escape_markdown(text, limit), shown.strip(), partial(re.sub, r"\\(.)", r"\1")),
    ):
        assert len(escaped.encode("utf-16-le")) <= 2 * limit
        assert read(escaped) == plain or plain.startswith(read(escaped).removesuffix("…"))
    assert re.search(r"(?<!\\)(\\\\)*[*_`\[\]~<>{}|]|^[#+-]", escape_markdown(text, limit)) is None


def test_a_question_says_what_is_asked_and_until_when() -> None:
    reason = "waiting for approval before registration; without an answer it is rejected at 12:00"
    facts = {"reason": reason, "metrics": {"accuracy": 0.7}, "verdict": "first"}
    card, texts = a_card("slack", "awaiting_approval", **facts)
    assert card["text"] == "Run of digits: awaiting approval"
    for each in (reason, "*Metrics*\naccuracy 0.7", "*Verdict*\nthere is no champion"):
        assert each in texts
    first = card["blocks"][-1]["elements"][0]
    assert (first["text"]["text"], first["url"]) == ("Look, and answer", LINKS["url"])


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "secret_setting is missing"),
        ({"format": "teams", "secret_setting": "S"}, "not used by format teams"),
        ({"format": "discord"}, "'teams' or 'slack'"),
    ],
)
def test_only_documents_are_signed(given: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Webhook.model_validate({"name": "people", "url_setting": "URL", **given})
    assert Webhook(name="people", url_setting="URL", format="slack").model_dump() == {
        "name": "people", "url_setting": "URL", "format": "slack"
    }  # fmt: skip
