"""Every blob that storage takes, whatever its name, is in the batch, or explained."""

from __future__ import annotations

import random
import re
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from urllib.parse import unquote

import pytest
from azure.core.exceptions import HttpResponseError

from handlers.landing.blob_events import MAX_PART_BYTES
from handlers.operate.api.explain import explain
from handlers.platform.manifests import read_chunks
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.manifest import decode_line
from tests.local.handlers.zone_on_storage import Zone
from tests.unit.handlers.asking import ask

LIMIT_CHARACTERS = 1024
NUMBER = 120
SEED = 26
PIECES = (
    "a", "b.png", "...", ".hidden", "a..b", "", " ", "x ", "x.", "CON", "~", "--", "$root",
    ".", "..", "%2e%2e", "%2E", "%41", "%", "%%", "%5C", "%2F", "%00", "%0a", "%C3%A9", "a%20b",
    "a\\b", "#", "?", "q?a=b", "a#b", "*", "[x]", "|", ";", "=", ",", "@", "+", "a+b", "'", '"',
    "<a>", "&amp;", "&", "a:b", "a://b", "https://x", "_SUCCESS", "a_$folder$", "manifest.jsonl",
    "\n", "\t", "\r", "\x01", "\x00", "\x7f", "\x85", "\u2028", "\u202e", "\u200b", "\ufeff",
    "\ufffd", "\ufffe", "\uffff", "\u0600", "é", unicodedata.normalize("NFD", "é"), "ﬁ",
    "\U0001d4b3", "x" * 300, "\U0001d4b3" * 60,
)  # fmt: skip
"""Segments of names that other systems trip over."""


def draw(prefix: str) -> list[str]:
    """Distinct names: each piece, and random paths of pieces."""
    chosen = random.Random(SEED)
    paths = ["/".join(chosen.choices(PIECES, k=chosen.randint(2, 4))) for _ in range(NUMBER)]
    longest = LIMIT_CHARACTERS - len(prefix)
    wanted = [
        *PIECES,
        *(f"d/{each}" for each in PIECES),
        *paths,
        "\U0001d4b3" * longest,
        "é" * longest,
    ]
    return [each for each in dict.fromkeys(wanted) if each and len(each) <= longest]


def is_unsafe(name: str) -> bool:
    """The rule in other words: a segment is a dot or two, or a character is none of a path."""
    return any(
        {".", ".."} & set(each.split("/")) or re.search(r"[\\\x00-\x1f\x7f]", each)
        for each in (name, unquote(name))
    )


def upload(zone: Zone, name: str) -> bool:
    """Whether storage takes the blob."""
    container = zone.clients.blobs.get_container_client("landing")
    try:
        container.upload_blob(zone.blob(name), name.encode(), overwrite=True)
    except HttpResponseError:
        return False
    return True


def paths_of(zone: Zone, dataset: Dataset) -> set[str]:
    chunks = read_chunks(zone.clients, dataset.manifest_path)
    return {decode_line(line).path for chunk in chunks for line in chunk.splitlines()}


async def test_every_blob_is_in_the_batch_or_explained(zone: Zone) -> None:
    names = draw(zone.pipeline.source.prefix)
    with ThreadPoolExecutor(8) as pool:
        is_taken = list(pool.map(partial(upload, zone), names))
    taken = [name for name, each in zip(names, is_taken, strict=True) if each]
    dataset = zone.close_batch(datetime.now(UTC) + timedelta(seconds=1))
    paths = paths_of(zone, dataset)
    run = zone.run_of(dataset)
    wrong: list[tuple[str, str, str]] = []
    for name in taken:
        query = {"blob": f"landing/{zone.blob(name)}"}
        found = (await ask(explain, zone.clients, None, zone.pipeline, query=query)).document
        state, reason = found.get("state", "none"), found.get("reason", str(found))
        if name == zone.pipeline.source.marker:
            right = state == "pending" and "a marker" in reason
        elif any(len(part.encode()) > MAX_PART_BYTES for part in name.split("/")):
            right = state == "filtered" and name not in paths and "its name is longer" in reason
        elif is_unsafe(name):
            right = state == "filtered" and name not in paths and "its name has" in reason
        else:
            right = state == "run" and name in paths and found["run"] == run
        if not right:
            wrong.append((name, state, reason))
    assert wrong == []
    assert len(taken) > len(names) / 2
    # Storage keeps a backslash as a slash. No other name is in the batch that was not uploaded.
    assert paths <= {name.replace("\\", "/") for name in taken}


@pytest.mark.parametrize("name", ["\x01", "a\x00", "\ufffe", "d/\uffff"])
def test_a_name_that_no_listing_can_hold_is_refused_and_spoils_no_listing(
    zone: Zone, name: str
) -> None:
    zone.land("1.png")
    assert not upload(zone, name)
    assert paths_of(zone, zone.freeze()) == {"1.png"}


@pytest.mark.parametrize("name", ["7/", "a_$folder$"])
async def test_an_empty_blob_that_stands_for_a_folder_is_explained(zone: Zone, name: str) -> None:
    zone.land(name, b"")
    assert paths_of(zone, zone.freeze()) == set()
    assert (await zone.explain(name))["reason"] == "stands for a folder"
