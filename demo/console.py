"""The commands that the pages show: read from their blocks ```console, run, and compared.

A line that begins with `$` is a command; it goes on while a quotation is open or the line ends with
a backslash. What follows is what it prints; `…` and `...` in it stand for any text, and a time for
any time. A comment before a block, `<!-- needs: azure -->`, says what it needs that a laptop has
not; `<!-- run by: PATH -->` names the test that runs it.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from localazure.processes.pauses import patient

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/*.md", "*/README.md", "localazure/docs/*.md", "docs/*/*.md")
    for page in ROOT.glob(pattern)
)
BLOCK = re.compile(
    r"(?:<!-- (?:needs: (?P<needs>[^\n]*?)|run by: (?P<run_by>\S*?)) -->\n+)?"
    r"^(?P<indent> *)```(?:console|bash|sh|shell)\n"
    r"(?P<text>.*?)^(?P=indent)```",
    re.DOTALL | re.MULTILINE,
)
ACTION = re.compile(
    r"^landfall (pipelines (train|pause|resume|release)|runs (cancel|retry)|forget|deploy|rollback"
    r"|((models|rollouts) )?promote|approvals (approve|reject)|dead-letters (redrive|discard))\b"
)
"""Commands that ask for confirmation, by a terminal."""
TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.\d]*(Z| UTC( \([^)]*\))?)")
LIMIT_SECONDS = 600.0
"""For a command, on a machine of one's own."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command, and what the page says that it prints: nothing if it does not say."""

    text: str
    output: str


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of a page."""

    page: str
    """Relative to the repository."""
    line: int
    section: str
    """The last heading before it."""
    needs: str | None
    run_by: str | None
    """The path of a test, relative to the repository."""
    commands: tuple[Command, ...]

    @property
    def place(self) -> str:
        """Page and line."""
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    output: str
    """stdout and stderr, together."""


def blocks(pages: Iterable[Path] = PAGES) -> list[Block]:
    """All blocks of these pages, in order."""
    collected: list[Block] = []
    for page in pages:
        text = page.read_text("utf-8")
        for match in BLOCK.finditer(text):
            headings = re.findall(r"^#+ (.*)$", text[: match.start()], re.MULTILINE)
            collected.append(
                Block(
                    page=page.relative_to(ROOT).as_posix(),
                    line=text.count("\n", 0, match.start("text")),
                    section=headings[-1] if headings else "",
                    needs=match["needs"],
                    run_by=match["run_by"],
                    commands=tuple(_commands(match["text"])),
                )
            )
    return collected


def run_by(test: str) -> list[Block]:
    """The blocks that name a test, by its `__file__`."""
    return [each for each in blocks() if each.run_by == Path(test).relative_to(ROOT).as_posix()]


def _commands(text: str) -> Iterable[Command]:
    lines = [line.strip() for line in text.splitlines()]
    while lines:
        command, output = [lines.pop(0).removeprefix("$ ")], list[str]()
        while _is_open(command) and lines:
            command.append(lines.pop(0))
        while lines and not lines[0].startswith("$ "):
            output.append(lines.pop(0))
        yield Command(text="\n".join(command), output="\n".join(output))


def _is_open(command: list[str]) -> bool:
    try:
        shlex.split("\n".join(command), comments=True)
    except ValueError:  # no closing quotation, or nothing after the last backslash
        return True
    return command[-1].endswith("\\")


def shows(printed: str, expected: str) -> bool:
    """Whether a text is in what was printed, whatever its white space and its times."""
    words = [re.escape(word) for word in TIME.sub("…", expected).split()]
    pattern = r"\s*".join(words).replace("…", ".*?").replace(r"\.\.\.", ".*?")
    return re.search(pattern, " ".join(printed.split()), re.DOTALL) is not None


def confirmed(command: str) -> str:
    """A command that asks for no confirmation."""
    if not ACTION.search(command) or "--yes" in command:
        return command
    head, mark, comment = command.partition("  #")
    return f"{head} --yes{mark}{comment}"


async def run(text: str, environment: Mapping[str, str], folder: Path = ROOT) -> Done:
    """Run a command, or several lines, in bash.

    Args:
        text: what is typed.
        environment: variables beside those of this process.
        folder: the working directory.

    Raises:
        TimeoutError: it did not end in time; it was killed.
    """
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", text),
        cwd=folder,
        env={**os.environ, **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(patient(LIMIT_SECONDS)):
            output, _ = await process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    assert process.returncode is not None
    return Done(process.returncode, output.decode(errors="replace"))
