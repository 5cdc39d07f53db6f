"""The drawing of a pipeline's picture: a document of bounded size, whose links lead to screens."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import get_args
from urllib.parse import parse_qs, unquote

from hypothesis import given
from hypothesis import strategies as st

from handlers.operate.api.picture_drawing import (
    LIMIT_BYTES,
    STYLE,
    Change,
    Facts,
    Lane,
    Mark,
    draw,
    link,
)
from handlers.operate.api.runs import RunFilter
from handlers.platform.settings import APP_FOLDER

UNTIL = datetime(2026, 11, 28, 18, tzinfo=UTC)
SINCE = UNTIL - timedelta(days=30)
PAGE = APP_FOLDER / "page"
# Name of a screen → whether it shows one thing, too.
SCREENS = {
    name: "one:" in rest
    for name, rest in re.findall(r'{ name: "([\w-]+)",(.*)}', (PAGE / "app.js").read_text("utf-8"))
}
SVG = "{http://www.w3.org/2000/svg}"


def facts(*marks: Mark, **more: object) -> Facts:
    given = {"pipeline": "digits", "metric": "accuracy", "floor": 0.8} | more
    return Facts(since=SINCE, until=UNTIL, marks=marks, **given)  # pyright: ignore[reportArgumentType] - the test's own


def elements(text: str, name: str) -> Iterator[ET.Element]:
    """The elements of a well-formed picture."""
    return ET.fromstring(text).iter(f"{SVG}{name}")  # noqa: S314 - drawn here


def links(text: str) -> Iterator[tuple[str, str]]:
    """The address and the sentence of every mark; each leads to a screen."""
    for mark in elements(text, "a"):
        screen, _, name = mark.attrib["href"].removeprefix("/api/ui#/").partition("/")
        assert SCREENS[screen.partition("?")[0]] or not name, mark.attrib
        said = mark.findtext(f"{SVG}title")
        assert said
        yield mark.attrib["href"], said


def run(lane: Lane, hours: float, name: str = "digits-aa-1") -> Mark:
    at = SINCE + timedelta(hours=hours)
    return Mark(lane=lane, at=at, sentence=f"run {name}", link=link("runs", name))


texts = st.text(max_size=400)
times = st.datetimes(
    SINCE.replace(tzinfo=None) - timedelta(days=3),
    UNTIL.replace(tzinfo=None),
    timezones=st.just(UTC),
)
numbers = st.floats(-1e9, 1e9)
ids = st.from_regex(r"[A-Za-z0-9._:/? &<-]{1,60}", fullmatch=True)
marks = st.builds(
    Mark,
    lane=st.sampled_from(get_args(Lane)),
    at=times,
    sentence=st.text(min_size=1, max_size=400),
    link=st.builds(link, st.sampled_from([it for it in SCREENS if SCREENS[it]]), ids),
    name=texts,
    value=numbers,
    reach=st.floats(0, 1e9),
)
changes = st.builds(
    Change, at=times, shares=st.dictionaries(ids, st.integers(-5, 200), max_size=8), rollout=ids
)


@given(
    st.lists(marks, max_size=60),
    st.integers(1, 100),
    st.lists(changes, max_size=20),
    st.lists(texts, max_size=12),
    texts,
    numbers,
)
def test_any_facts_are_a_bounded_document_with_links_to_screens(
    found: list[Mark],
    times_each: int,
    set_by: list[Change],
    notes: list[str],
    name: str,
    floor: float,
) -> None:
    drawn = facts(*found * times_each, changes=set_by, notes=notes, pipeline=name, floor=floor)
    text = draw(drawn)
    assert len(text.encode()) <= LIMIT_BYTES
    shown = list(links(text))
    assert bool(shown) or not any(it.at >= SINCE for it in found)


def test_three_thousand_runs_of_a_month_are_marks_with_numbers_that_lead_to_their_lists() -> None:
    text = draw(facts(*(run("failed", number * 0.24) for number in range(3_000))))
    found = list(links(text))
    assert len(found) == 30
    assert sum(int(said.partition(" ")[0]) for _, said in found) == 3_000
    first = parse_qs(found[0][0].partition("?")[2])
    query = RunFilter.model_validate({name: value for name, (value,) in first.items()})
    assert (query.pipeline, query.states()) == ("digits", ["retrying", "rejected", "failed"])
    assert (query.created_from, query.created_to) == (SINCE, SINCE + timedelta(hours=0.24 * 99))


def test_far_marks_stay_alone_and_say_what_they_are() -> None:
    sentence = "it <b>failed</b> & \x1b[31m\u202e\ud800 \n never"
    odd = Mark(lane="failed", at=SINCE, sentence=sentence, link=link("runs", "a/b?c#d"))
    found = list(links(draw(facts(odd, run("failed", 12), run("won", 0)))))
    addresses = [unquote(address) for address, _ in found]
    assert addresses == [f"/api/ui#/runs/{it}" for it in ("digits-aa-1", "a/b?c#d", "digits-aa-1")]
    said = r"2026-10-29 18:00:00 UTC: it <b>failed</b> & \u001b[31m\u202e\ud800 never"
    assert found[1][1] == said


def test_the_interval_is_around_the_metric_and_the_champion_is_a_star() -> None:
    version = {"at": UNTIL - timedelta(days=1), "sentence": "v", "link": link("models", "digits:2")}
    mark = Mark(lane="champion", name="2", value=0.9, reach=0.05, **version)  # pyright: ignore[reportArgumentType] - the test's own
    paths = {it.get("class"): it for it in elements(draw(facts(mark)), "path")}
    found = re.fullmatch(r"M\S+ (\S+)h6m-3 0V(\S+)m-3 0h6", paths["error"].attrib["d"])
    middle = re.search(r" (\S+)\)", paths["star"].attrib["transform"])
    assert found is not None
    assert middle is not None
    assert float(found[1]) + float(found[2]) == 2 * float(middle[1])


def test_bands_are_as_high_as_their_shares() -> None:
    shares = {"model-1": 90, "model-2": 10}
    change = Change(at=SINCE - timedelta(days=1), shares=shares, rollout="rollout-live-2")
    text = draw(facts(changes=[change], read_from={"runs": SINCE + timedelta(days=3)}))
    heights = [
        (mark.attrib["href"], float(box.attrib["height"]))
        for mark in elements(text, "a")
        for box in mark.iter(f"{SVG}rect")
    ]
    address = "/api/ui#/models?rollout=rollout-live-2"
    assert heights == [(address, 39.6), (address, 4.4)]
    unread = [it for it in elements(text, "rect") if it.get("class") == "unread"]
    assert [float(it.attrib["width"]) for it in unread] == [0, 108, 0, 0, 0]


def test_its_colours_are_those_of_the_page() -> None:
    pattern = r"--(\w+): ?light-dark\((#\w+), ?(#\w+)\)"
    page = re.findall(pattern, (PAGE / "style.css").read_text("utf-8"))
    assert set(re.findall(pattern, STYLE)) < set(page)
    assert len(re.findall(r"--\w+:", STYLE)) == len(re.findall(pattern, STYLE))
