"""The distribution as users get it: a built wheel, installed into a virtual environment."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import urllib.error
import urllib.request
import zipfile
from collections.abc import Generator, Iterable, Sequence
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path
from typing import Any, Final, Self

from packaging.requirements import Requirement

from harness.child_process import REPOSITORY, ChildProcess
from harness.waiting import until
from localazure.processes.ports import free_ports

CONSTRAINTS: Final = REPOSITORY / "constraints.txt"
START_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 30.0


def build_wheel(folder: Path, source: str = "localazure") -> Path:
    """Build the wheel of a folder of this repository, like `make dist`."""
    source = str(REPOSITORY / source)
    _run(sys.executable, "-m", "build", "--wheel", source, "--outdir", str(folder))
    (wheel,) = folder.glob("*.whl")
    return wheel


class Installed:
    """A virtual environment.

    Args:
        folder: the folder of the environment.
        python: its interpreter, by default this one.
    """

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self._folder = folder
        self._uv = shutil.which("uv")
        if self._uv is not None:
            _run(self._uv, "venv", "--quiet", "--python", python, str(folder))
        else:
            _run(python, "-m", "venv", str(folder))

    @classmethod
    def by_links(cls, folder: Path, wheel: Path) -> Self:
        """Create an environment with a wheel and links to its requirements in this environment.

        An installer would need half a minute of processor time to fetch, unpack and compile the
        same files. As after an installation, only the wheel's requirements are there.
        """
        _run(sys.executable, "-m", "venv", "--without-pip", str(folder))
        made = cls.__new__(cls)
        made._folder = folder
        place = {"base": str(folder), "platbase": str(folder)}
        site = Path(sysconfig.get_path("purelib", "venv", place))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
        (unpacked,) = distributions(path=[str(site)])
        for script in unpacked.entry_points.select(group="console_scripts"):
            program = folder / "bin" / script.name
            program.write_text(
                f"#!{made.python}\nimport sys\n"
                f"from {script.module} import {script.attr}\nsys.exit({script.attr}())\n"
            )
            program.chmod(0o755)
        linked: set[str] = set()
        _link_required(unpacked, [""], site, linked)
        return made

    @property
    def python(self) -> Path:
        return self._folder / "bin" / "python"

    def program(self, name: str = "localazure") -> Path:
        """The path of a console script."""
        return self._folder / "bin" / name

    def install(self, *requirements: str, without_pins: Sequence[str] = ()) -> None:
        """Install packages under the repository's constraints.

        Args:
            requirements: requirements in pip's form.
            without_pins: packages without constraints.
        """
        pins = CONSTRAINTS.read_text()
        for name in without_pins:
            pins = re.sub(rf"^{re.escape(name)}==.*$", "", pins, flags=re.MULTILINE)
        constraints = self._folder / "constraints.txt"
        constraints.write_text(pins)
        if self._uv is not None:
            installer = [self._uv, "pip", "install", "--quiet", "--python", str(self.python)]
        else:
            installer = [str(self.python), "-m", "pip", "install", "--quiet", "--no-compile"]
        _run(*installer, "-c", str(constraints), *requirements)

    def metadata(self, script: str) -> str:
        """Run a line of Python in this environment; return its output."""
        return _run(
            str(self.python), "-P", "-c", f"from importlib import metadata; {script}"
        ).strip()


def _link_required(
    requiring: Distribution, extras: Iterable[str], site: Path, linked: set[str]
) -> None:
    """Link the files of all direct and indirect requirements of a distribution into a folder."""
    for requirement in map(Requirement, requiring.requires or ()):
        marker = requirement.marker
        if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in extras):
            continue
        found = distribution(requirement.name)
        assert requirement.specifier.contains(found.version, prereleases=True), requirement
        if str(requirement) in linked:
            continue
        linked.add(str(requirement))
        for file in found.files or ():
            link, target = site / file, Path(str(found.locate_file(file)))
            if ".." in file.parts or "__pycache__" in file.parts or link.exists():
                continue  # a script, bytecode, or a file that was linked before
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
            cache = link.parent / "__pycache__"
            if not cache.is_symlink():
                cache.symlink_to(target.parent / "__pycache__")
        _link_required(found, ["", *requirement.extras], site, linked)


def _run(*command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": ""}
    # Earlier tests may have made this process trust only the local certificate authority.
    for variable in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
        environment.pop(variable, None)
    if links := environment.get("PIP_FIND_LINKS"):
        environment.setdefault("UV_FIND_LINKS", links)
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 0, f"{' '.join(command)}:\n{ended.stdout}{ended.stderr}"
    return ended.stdout


class Host:
    """A `localazure start` in an app's folder, with requests over HTTP."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str, body: object = None) -> Any:
        """Send a GET, or a POST with a body; return the response as JSON, else as text."""
        data = None if body is None else json.dumps(body).encode()
        url = path if path.startswith("http") else self.url + path
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as response:
            text = response.read().decode()
        with contextlib.suppress(ValueError):
            return json.loads(text)
        return text

    def start(self, orchestrator: str, given: object = None) -> str:
        """Start an orchestration by the app's route; return its status URL."""
        return self.get(f"/api/start/{orchestrator}", given)["statusQueryGetUri"]

    def outcome(self, status_url: str) -> Any:
        """Wait until an orchestration completes; return its output."""
        final = {"Completed", "Failed", "Terminated"}
        status = until(
            lambda: (found := self.get(status_url))["runtimeStatus"] in final and found,
            ANSWER_SECONDS,
            f"end of {status_url}",
        )
        assert status["runtimeStatus"] == "Completed", status
        return status["output"]


@contextlib.contextmanager
def started(installed: Installed, app: Path, log: Path) -> Generator[Host]:
    """Run a host on an app's folder, with the environment's console script."""
    (port,) = free_ports(1)
    host = Host(port)
    command = [installed.program(), "start", "--port", str(port)]
    with ChildProcess(command, log, folder=app, variables={"PYTHONPATH": ""}) as process:

        def answers() -> bool:
            assert process.is_running, f"the host ended:\n{process.output}"
            try:
                host.get("/admin/host/status")
            except (urllib.error.URLError, ConnectionError):
                return False
            return True

        until(answers, START_SECONDS, f"answer of the host (see {log})")
        yield host
