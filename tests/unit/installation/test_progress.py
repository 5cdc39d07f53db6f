from __future__ import annotations

import io

import pytest

from installation.progress import InstallerOutput, Progress

PIP = """\
Collecting torch==2.13.0
  Downloading torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl.metadata (31 kB)
  Downloading torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl (502.0 MB)
  Using cached sympy-1.14.0-py3-none-any.whl (6.3 MB)
  Downloading nvidia_cublas-13.1.1.3-py3-none-manylinux_2_27_x86_64.whl (403.5 MB)
Installing collected packages: sympy, nvidia-cublas, torch
Successfully installed nvidia-cublas-13.1.1.3 sympy-1.14.0 torch-2.13.0
"""
UV = """\
Using Python 3.12.1 environment at: .venv
Resolved 29 packages in 254ms
Downloading nvidia-cublas (400.0MiB)
Downloading torch (500.0MiB)
 Downloaded torch
 Downloaded nvidia-cublas
Prepared 21 packages in 11.11s
Installed 28 packages in 65ms
 + torch==2.13.0
"""


def shown(printed: str) -> list[str]:
    """The display after each line, without repetitions."""
    output = InstallerOutput()
    states: list[str] = []
    for line in printed.splitlines(keepends=True):
        output.feed(line)
        if not states or states[-1] != str(output):
            states.append(str(output))
    return states


def test_pip_downloads_one_after_the_other() -> None:
    assert shown(PIP) == [
        "finding versions",
        "under way: torch (0.0 MB)",
        "0.0 MB downloaded, under way: torch (502.0 MB)",
        "502.0 MB downloaded, under way: nvidia_cublas (403.5 MB)",
        "905.5 MB downloaded, installing",
    ]


def test_uv_downloads_many_at_once() -> None:
    assert shown(UV) == [
        "finding versions",
        "under way: nvidia-cublas (419.4 MB)",
        "under way: torch (524.3 MB), nvidia-cublas (419.4 MB)",
        "524.3 MB downloaded, under way: nvidia-cublas (419.4 MB)",
        "943.7 MB downloaded",
        "943.7 MB downloaded, installing",
    ]


def test_a_log_has_a_line_when_a_step_begins_and_ends() -> None:
    log = io.StringIO()
    progress = Progress(2, log)

    with progress.step("one"):
        pass
    with pytest.raises(SystemExit), progress.step("two"):
        raise SystemExit(1)

    assert log.getvalue().splitlines() == [
        "[1/2] one",
        "[1/2] one: done in 0:00",
        "[2/2] two",
        "[2/2] two: failed after 0:00",
    ]
