"""What is read from the pages: commands, what they print and need, and the checklist."""

from __future__ import annotations

from demo.console import ROOT, blocks, confirmed, run_by, shows
from demo.rehearsal import checklist


def test_a_command_goes_on_in_the_next_line_and_ends_before_its_output() -> None:
    (first, *_) = [
        each for each in blocks([ROOT / "docs" / "http-api.md"]) if each.section == "Models"
    ]
    (command,) = first.commands
    assert command.text.startswith('curl -X POST "$LANDFALL_URL/api/pipelines/digits/models/3')
    assert command.text.endswith("""-d '{"by": "ada", "reason": "wrong answers since 02:00"}'""")
    assert command.output.startswith('{"champion": "2"')
    assert command.output.endswith('"status_url": null}')
    needs = [each.needs for each in blocks([ROOT / "docs" / "deploy.md"])]
    assert needs == ["azure", "azure", None, "azure"]


def test_dots_stand_for_any_text() -> None:
    ended = "smoke test: run smoke-…: succeeded"
    assert shows("smoke test: run smoke-1-1: succeeded\n  x", ended)
    assert not shows("smoke test: run smoke-1-1: failed", ended)
    assert shows('{"a":\n 1, "b": 2}', '{"a": 1, "b": ...}')
    assert shows("anything", "")


def test_a_time_stands_for_any_time() -> None:
    assert shows("2031-01-02 03:04:05 UTC (9 s ago)  done", "2026-11-28 22:18:26 UTC  done")
    assert shows("found 2031-01-02T03:04:05Z", "found 2026-11-25T07:50:28.700411Z")
    assert not shows("2031-01-02 03:04:05 UTC  late", "2026-11-28 22:18:26 UTC  done")


def test_a_block_names_the_test_that_runs_it() -> None:
    (block,) = run_by(str(ROOT / "tests" / "end_to_end" / "test_crash.py"))
    assert (block.page, block.needs) == ("docs/upgrade.md", None)


def test_only_actions_are_confirmed() -> None:
    assert (
        confirmed('landfall forget --blobs f  # a "file"')
        == 'landfall forget --blobs f --yes  # a "file"'
    )
    assert confirmed("landfall pipelines pause a --yes") == "landfall pipelines pause a --yes"
    assert confirmed("landfall forgotten f") == "landfall forgotten f"
    assert confirmed("landfall pipelines get train") == "landfall pipelines get train"


def test_the_checklist_fits_one_screen_and_says_what_to_send_back() -> None:
    lines = checklist()
    assert [each.number for each in lines] == list(range(1, len(lines) + 1))
    assert len(lines) <= 24
    assert all(each.send for each in lines)
    rehearsed = [each for each in lines if not each.needs_azure]
    assert len(rehearsed) >= 12
    assert all(each.shown for each in rehearsed)
    azure = " ".join(each.command for each in lines if each.needs_azure)
    assert all(
        tool in azure for tool in ("bicep build", "azd up", "azd down", "az functionapp keys")
    )
