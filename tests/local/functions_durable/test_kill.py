"""kill -9 at random moments: nothing is lost, nothing recorded twice."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.local.functions_durable.crash_host import INSTANCES, STEPS

KILLS = 8
ROOT = Path(__file__).parents[3]


def start(folder: Path) -> subprocess.Popen[str]:
    host = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.local.functions_durable.crash_host",
            str(folder / "hub.db"),
            str(folder / "ledger"),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert host.stdout is not None
    assert host.stdout.readline() == "started\n"
    return host


def test_kill(tmp_path: Path) -> None:
    moments = random.Random(7)
    for _ in range(KILLS):
        with start(tmp_path) as host:
            time.sleep(moments.uniform(0, 0.08))  # the moment is the test's random input
            host.kill()
    with start(tmp_path) as host:
        assert host.stdout is not None
        report = json.loads(host.stdout.readline())
    assert host.returncode == 0
    assert report["outputs"] == {f"chain-{n}": list(range(STEPS)) for n in range(INSTANCES)}
    assert report["tally"] == INSTANCES  # an entity's state counts every operation once
    done = Counter((tmp_path / "ledger").read_text().splitlines())
    assert len(done) == INSTANCES * STEPS
    # At least once: each kill can repeat what was running or not yet durable, nothing older.
    assert all(times <= 1 + KILLS for times in done.values())
