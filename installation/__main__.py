"""Set up the virtual environment: `PYTHON -m installation VENV`. `make setup` runs it.

1. Make the environment, unless it is there.
2. With the variable TORCH_INDEX, install torch and torchvision from that index or folder, and
   nothing else; torchvision from the usual sources where a folder has torch alone.
3. Install what locked.txt lists, by its hashes, and nothing else.
4. Install requirements-dev.txt: the local packages, which have no hash, and torch and torchvision,
   whose files depend on where they are from.
5. Fetch Azurite, unless the user's cache has it.

uv installs where it is on the PATH, and pip otherwise; both from the sources that pip is configured
with. A step that fails leaves what it has installed; the next run goes on from there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from installation.package_sources import install_options, read_pip_settings, uv_variables

REQUIREMENTS: Final = "requirements-dev.txt"
LOCKED: Final = Path(__file__).with_name("locked.txt")
# torch, torchvision and what only builds for CUDA need: an index of CPU wheels has other files of
# the same versions, and it may be chosen by pip's own settings.
_OF_TORCH: Final = re.compile(r"(torch|torchvision|triton|nvidia-[\w-]+|cuda-[\w-]+)==")
_CUDA_NOTE: Final = (
    "note: torch's package for Linux brings CUDA, which this machine does not need; "
    "TORCH_INDEX takes a smaller one (CONTRIBUTING.md)\n"
)


class Installer:
    """uv or pip, for one virtual environment."""

    def __init__(self, venv: Path) -> None:
        self.python = venv.absolute() / "bin" / "python"
        self._venv = venv
        self._uv = shutil.which("uv")
        self.name = "uv" if self._uv else "pip"
        self._variables: dict[str, str] = {}
        self._options: list[str] = []
        if self._uv:
            settings = read_pip_settings(_pip_config(), os.environ)
            self._variables = uv_variables(settings, os.environ)
            self._options = install_options(settings)

    def make_environment(self) -> None:
        """Create the environment with pip; replace one whose interpreter no longer exists."""
        if os.access(self.python, os.X_OK):
            return
        if self._uv:
            command = [self._uv, "venv", "--python", sys.executable, "--seed", *self._options]
        else:
            command = [sys.executable, "-m", "venv"]
        clear = ["--clear"] if (self._venv / "pyvenv.cfg").is_file() else []
        _run([*command, *clear, str(self._venv)], self._variables)

    def install(self, *arguments: str) -> None:
        """Install what the arguments of `pip install` say."""
        if self._uv:
            command = [self._uv, "pip", "install", "--python", str(self.python), *self._options]
        else:
            command = [str(self.python), "-m", "pip", "install", "--disable-pip-version-check"]
        _run([*command, *arguments], self._variables)


def _pip_config() -> list[str]:
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    return [] if listing.returncode else listing.stdout.splitlines()


def _run(command: list[str], variables: dict[str, str] | None = None) -> None:
    """Run a command to its end; it shows its own progress.

    Raises:
        SystemExit: it failed.
    """
    environment = {**os.environ, **(variables or {})}
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False
    )
    if done.returncode:
        raise SystemExit("landfall: set-up failed, see above")


def locked_packages(text: str) -> str:
    """The lines of locked.txt without those of torch."""
    entries = re.split(r"\n(?=\S)", text)
    return "\n".join(each for each in entries if not _OF_TORCH.match(each))


def torch_of(index: str) -> list[str]:
    """Arguments that install torch, and its torchvision, only from an index or a folder of wheels.

    A folder may have torch alone.
    """
    if not Path(index).is_dir():
        return ["--index-url", index, "torch", "torchvision"]
    has_vision = any(Path(index).glob("torchvision-*.whl"))
    return ["--no-index", "--find-links", index, "torch", *(["torchvision"] if has_vision else [])]


def _say(step: str) -> None:
    sys.stderr.write(f"landfall: {step}\n")


def main(venv: Path, torch_index: str) -> None:
    """Set everything up that is missing."""
    installer = Installer(venv)
    if sys.platform == "linux" and not torch_index and not shutil.which("nvidia-smi"):
        sys.stderr.write(_CUDA_NOTE)
    version = ".".join(map(str, sys.version_info[:3]))
    _say(f"Python {version} in {venv}")
    installer.make_environment()
    if torch_index:
        _say(f"torch from TORCH_INDEX, by {installer.name}")
        installer.install("--no-deps", "-c", "constraints.txt", *torch_of(torch_index))
    _say(f"packages of {LOCKED.name}, by their hashes, by {installer.name}")
    chosen = venv / LOCKED.name
    chosen.write_text(locked_packages(LOCKED.read_text("utf-8")), "utf-8")
    installer.install("--require-hashes", "--no-deps", "-r", str(chosen))
    _say(f"the rest of {REQUIREMENTS}: torch, torchvision and local packages")
    # The local packages are built with what is locked, not with what an index has today.
    installer.install("--no-build-isolation", "-r", REQUIREMENTS)
    _say("Azurite, by npm, into the user's cache")
    _run([str(installer.python), "-m", "localazure", "fetch"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), os.environ.get("TORCH_INDEX", ""))
