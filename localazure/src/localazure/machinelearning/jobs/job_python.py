"""The Python of one attempt of a job: a virtual environment of its own, on top of another one.

What the job installs ends there. pip finds the packages below it, and leaves them as they are.
Below is the interpreter that runs localazure, or an environment that was built: once for all jobs
with the same packages, below `<state>/machinelearning/environments`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import site
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from localazure.machinelearning.jobs.folder import ENVIRONMENT_LOG
from localazure.machinelearning.jobs.spec import PipEnvironment
from localazure.processes import owner_lock

_COMPLETE = "complete"


class EnvironmentBuildError(RuntimeError):
    """An environment cannot be built; the message has the remedy."""


@dataclass(frozen=True, kw_only=True)
class JobPython:
    """The virtual environment of an attempt."""

    root: Path
    site_packages: Path
    base_bin: Path
    """The programs of the environment below it."""

    def variables(self, path: str) -> dict[str, str]:
        """The variables that programs of the job find it with, in front of a PATH.

        Programs of the environment below have its interpreter in their first line, such as torchrun
        and pip. PYTHONPATH shows them the job's packages, and PIP_PYTHON is where pip installs.
        """
        return {
            "PATH": os.pathsep.join((f"{self.root}/bin", str(self.base_bin), path)),
            "VIRTUAL_ENV": str(self.root),
            "PIP_PYTHON": f"{self.root}/bin/python",
            "PYTHONPATH": str(self.site_packages),
        }


def make_job_python(root: Path, built: Path | None) -> JobPython:
    """Create the virtual environment of an attempt, empty.

    Args:
        root: its folder; one of an earlier attempt is deleted.
        built: the environment below it; None: that of this process.

    Raises:
        EnvironmentBuildError: the environment below it does not run.
    """
    if built is None:
        venv.create(root, clear=True, symlinks=True)
        users = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
        below = [*site.getsitepackages(), *users]
    else:
        command = ("-I", "-m", "venv", "--without-pip", "--clear", root)
        python = built / "bin" / "python"
        ended = subprocess.run([python, *command], capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            raise EnvironmentBuildError(
                f"{built} is damaged: delete it, and it is built again:\n{ended.stderr}"
            )
        below = [str(each) for each in built.glob("lib/python*/site-packages")]
    (own,) = root.glob("lib/python*/site-packages")
    lines = "".join(f"import site; site.addsitedir({each!r})\n" for each in below)
    (own / "below.pth").write_text(lines)
    base_bin = Path(sys.executable).parent if built is None else built / "bin"
    return JobPython(root=root, site_packages=own, base_bin=base_bin)


def build(environment: PipEnvironment, folder: Path, log: TextIO) -> Path:
    """Return the folder of a built environment; build it if it does not exist. Blocks.

    Args:
        environment: what to install.
        folder: has the environments; one that was not built to its end is built again.
        log: gets the output of uv or pip, whose variables apply (UV_FIND_LINKS, PIP_NO_INDEX, …).

    Raises:
        EnvironmentBuildError: Python or a package is not available.
    """
    identity = [environment.python, environment.requirements, sys.version_info[:2]]
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    root = folder / digest
    with owner_lock.wait_for(folder / f"{digest}.lock") as lock:
        if not (root / _COMPLETE).exists():
            shutil.rmtree(root, ignore_errors=True)
            for command in _commands(environment, root):
                # The lock is inherited: a build whose runner was killed keeps others out.
                _run(command, log, lock.fileno())
            (root / _COMPLETE).touch()
    return root


def _commands(environment: PipEnvironment, root: Path) -> list[list[str]]:
    """The commands that build an environment, with uv if it is on PATH."""
    uv, python = shutil.which("uv"), str(root / "bin" / "python")
    if uv is None:
        _check_python(environment.python)
        create = [sys.executable, "-I", "-m", "venv", str(root)]
        install = [python, "-m", "pip", "install"]
    else:
        create = [uv, "venv", "--python", environment.python or sys.executable, str(root)]
        install = [uv, "pip", "install", "--python", python]
    if not environment.requirements:
        return [create]
    requirements = root.with_suffix(".txt")
    requirements.write_text("\n".join(environment.requirements) + "\n")
    return [create, [*install, "--requirement", str(requirements)]]


def _check_python(wanted: str) -> None:
    """Refuse another Python than this one, which only uv can get."""
    current = ".".join(map(str, sys.version_info[:3]))
    text = f"=={wanted}.*" if wanted[:1].isdecimal() else wanted
    try:
        is_current = SpecifierSet(text).contains(current)
    except InvalidSpecifier:
        is_current = False
    if not is_current:
        raise EnvironmentBuildError(
            f"the environment has Python {wanted}, and localazure runs in {current}: put uv on "
            "PATH (`pip install uv`), which gets other versions, or change `python` in the conda "
            "file"
        )


def _run(command: list[str], log: TextIO, lock: int) -> None:
    # Without the variables of this interpreter, whose packages would count as installed.
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    variables = {name: value for name, value in os.environ.items() if name not in hidden}
    log.write(f"$ {' '.join(command)}\n")
    log.flush()
    ended = subprocess.run(
        command,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        pass_fds=(lock,),
        check=False,
    )
    if ended.returncode != 0:
        raise EnvironmentBuildError(
            f"the environment was not built: `{' '.join(command)}` ended with exit code "
            f"{ended.returncode}; user_logs/{ENVIRONMENT_LOG} has its output"
        )
