from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from localazure.processes.log_rotation import rotate

# Writes lines on both streams, from itself and from a child, whenever it reads one.
WRITER = """
import subprocess, sys
for line in sys.stdin:
    print("said", line.strip(), flush=True)
    print("complained", line.strip(), file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-c", f"print('child', {line.strip()!r})"])
    sys.__stdout__.flush()
    open(sys.argv[1], "a").write("done\\n")
"""


def test_a_process_and_its_children_go_on_at_the_beginning(tmp_path: Path) -> None:
    log, done = tmp_path / "part.log", tmp_path / "done"
    done.touch()
    with log.open("ab") as output:
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(done)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            text=True,
        )
    assert writer.stdin is not None

    def say(word: str) -> None:
        assert writer.stdin is not None
        before = done.read_text()
        writer.stdin.write(f"{word}\n")
        writer.stdin.flush()
        while done.read_text() == before:
            assert writer.poll() is None

    with writer:
        say("one")
        assert rotate(log, limit_bytes=0)
        say("two")
        writer.stdin.close()
    assert (tmp_path / "part.log.1").read_text() == "said one\ncomplained one\nchild one\n"
    assert log.read_bytes() == b"said two\ncomplained two\nchild two\n"
