from __future__ import annotations

import stat
from pathlib import Path

import pytest

from localazure.functions.http.authorization import ADMIN, ANONYMOUS, FUNCTION, KeyRing

KEYS = KeyRing(master="master", host="host", system="system")


@pytest.mark.parametrize(
    ("key", "levels"),
    [
        (None, {ANONYMOUS}),
        ("", {ANONYMOUS}),
        ("wrong", {ANONYMOUS}),
        ("system", {ANONYMOUS}),
        ("host", {ANONYMOUS, FUNCTION}),
        (KEYS.function_key("Hello"), {ANONYMOUS, FUNCTION}),
        (KEYS.function_key("other"), {ANONYMOUS}),
        ("master", {ANONYMOUS, FUNCTION, ADMIN}),
        ("mäster", {ANONYMOUS}),
        ("\udcff", {ANONYMOUS}),  # a byte that is no UTF-8
    ],
)
def test_what_a_key_opens(key: str | None, levels: set[str]) -> None:
    opened = {
        level for level in (ANONYMOUS, FUNCTION, ADMIN) if KEYS.opens_function(key, "hello", level)
    }
    assert opened == levels
    assert KEYS.opens_admin(key) == (ADMIN in levels)
    assert KEYS.opens_webhook(key) == (key in {"system", "master"})


def test_keys_are_drawn_once_and_kept_for_their_owner_only(tmp_path: Path) -> None:
    drawn = KeyRing.kept_in(tmp_path)
    assert KeyRing.kept_in(tmp_path) == drawn
    assert len({drawn.master, drawn.host, drawn.system}) == 3
    assert stat.S_IMODE((tmp_path / "keys.json").stat().st_mode) == 0o600
