"""A batch is frozen from the manifest that its uploader wrote, not from a listing."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from handlers.landing import batch_contents
from handlers.platform.manifests import read_manifest_from
from orchestrations.errors import InvalidManifest
from tests.local.handlers.landing.freezing_process import Process
from tests.local.handlers.zone_on_storage import Zone

NAME = "manifest.jsonl"


@pytest.fixture
def zone(zone: Zone) -> Zone:
    zone.rules("source", marker=None, manifest=NAME)
    return zone


def line(path: str, content: bytes = b"data", **changes: Any) -> dict[str, Any]:
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return {"path": path, "size": len(content), "md5": md5} | changes


def upload(zone: Zone, *lines: Any, path: str = NAME) -> None:
    zone.land(path, b"".join(json.dumps(each).encode() + b"\n" for each in lines))


def test_what_it_names_is_the_dataset_and_the_same_version_as_a_listing(zone: Zone) -> None:
    lines = [
        line("7/1.png", b"one", etag=zone.land("7/1.png", b"one"), extra="is ignored"),
        line("8/ü.png", b"other", etag=None),
    ]
    zone.land("8/ü.png", b"other")
    upload(zone, *lines)
    dataset = zone.freeze()
    found = [(each.path, each.size) for each in read_manifest_from(zone.clients, dataset, "")]
    assert found == [("7/1.png", 3), ("8/ü.png", 5)]
    assert dataset.newest is not None
    zone.land("not-named.png", b"left out")
    assert zone.freeze().version == dataset.version
    zone.delete("not-named.png")
    zone.rules("source", manifest=None, marker=NAME)
    assert zone.freeze().version == dataset.version


def test_a_long_one_is_read_in_pieces(zone: Zone, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line(f"7/{number:04}.png") for number in range(50)]
    upload(zone, *lines)
    whole = Process(zone).freeze()
    assert whole.blobs == 50
    monkeypatch.setattr(batch_contents, "PIECE_BYTES", 700)
    process = Process(zone)
    assert process.freeze() == whole
    assert process.driver.activities_run > 5


def test_one_that_is_written_again_between_two_pieces_is_no_batch(
    zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_contents, "PIECE_BYTES", 700)
    lines = [line(f"7/{number:04}.png") for number in range(20)]
    upload(zone, *lines)
    process = Process(zone)
    process.before["list_range"] = lambda: upload(zone, *lines)
    assert process.try_to_freeze() is None


@pytest.mark.parametrize("lines", [(), None])
def test_without_one_or_with_an_empty_one_there_is_no_batch(zone: Zone, lines: Any) -> None:
    zone.land("7/1.png")
    if lines is not None:
        upload(zone, *lines)
    dataset = zone.freeze()
    assert (dataset.blobs, dataset.newest) == (0, None)


def test_a_partition_has_one_of_its_own_with_paths_below_it(zone: Zone) -> None:
    zone.rules("source", partitions="date=%Y-%m-%d", batch="partition")
    upload(zone, line("7/1.png"), path=f"date=2026-11-21/{NAME}")
    upload(zone, line("7/2.png"), path=f"date=2026-11-22/{NAME}")
    dataset = zone.freeze(partition="2026-11-22")
    (found,) = read_manifest_from(zone.clients, dataset, "")
    assert found.path == "date=2026-11-22/7/2.png"


def test_the_rules_of_the_source_hold_for_it_too(zone: Zone) -> None:
    zone.rules("source", include=["*.png"])
    upload(zone, line("7/1.png"), line("7/1.txt"), line(NAME))
    assert [each.path for each in read_manifest_from(zone.clients, zone.freeze(), "")] == [
        "7/1.png"
    ]


def test_a_file_that_a_trainer_refused_is_left_out_until_it_is_mended(zone: Zone) -> None:
    upload(zone, line("7/1.png"), line("7/2.png", b"bad"))
    dataset = zone.freeze()
    zone.refuse(dataset, **{"7/2.png": "no image"})
    assert (zone.freeze().blobs, zone.freeze().quarantined) == (1, 1)
    upload(zone, line("7/1.png"), line("7/2.png", b"good"))
    assert (zone.freeze().blobs, zone.freeze().quarantined) == (2, 0)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("{", "Expecting property name"),
        (json.dumps(["a"]), "is not a JSON object"),
        (json.dumps(line("")), "path '' is not the path of a file"),
        (json.dumps(line("/9.png")), "path '/9.png' is not the path of a file"),
        (json.dumps(line("9/../9.png")), "not the name of a blob that can be a file"),
        (json.dumps(line("9\\9.png")), "not the name of a blob that can be a file"),
        (json.dumps(line("9/\ud800.png")), "is not Unicode"),
        (json.dumps({"path": "9.png", "md5": "0" * 32}), "size None is not a number of bytes"),
        (json.dumps(line("9.png", size=True)), "size True is not a number of bytes"),
        (json.dumps(line("9.png", md5="AB" * 16)), "md5 'ABAB"),
        (json.dumps(line("9.png", etag=7)), "etag 7 is not a string"),
        (json.dumps(line("9.png", md5=None)), "has neither md5 nor etag"),
        (json.dumps(line("1/1.png")), "does not come after '7/1.png': sort the lines by path"),
        (json.dumps(line("7/1.png")), "each path once"),
        ("", "Expecting value"),
    ],
)
def test_a_line_that_breaks_the_rules_is_named(zone: Zone, bad: str, words: str) -> None:
    good = json.dumps(line("7/1.png"))
    zone.land(NAME, f"{good}\n{bad}\n".encode())
    with pytest.raises(InvalidManifest) as caught:
        zone.freeze()
    assert f"landing/{zone.blob(NAME)}, line 2: " in str(caught.value)
    assert words in str(caught.value)


def test_the_line_is_named_in_a_later_piece_too(
    zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [line(f"7/{number:04}.png") for number in range(50)]
    lines[40] = lines[3]
    upload(zone, *lines)
    monkeypatch.setattr(batch_contents, "PIECE_BYTES", 700)
    with pytest.raises(RuntimeError, match=r"line 41: path '7/0003.png' does not come after"):
        Process(zone).freeze()
