from __future__ import annotations

import sys

import pytest

from benchmarks import __main__ as command


def test_every_benchmark_says_what_it_measures_and_in_which_unit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--list"])
    assert command.main() == 0
    said = capsys.readouterr().out
    for name in command.BENCHMARKS:
        assert f"{name}: " in said
        assert f"NAME={name}`" in said, f"{name} does not give the command that repeats it"


def test_an_unknown_name_is_refused_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "speed"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert "no benchmark speed; there are durable" in capsys.readouterr().err
