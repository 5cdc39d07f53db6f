"""The context of every command: the API, the output, and exit codes for errors."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import Any, ParamSpec

import typer
from rich.console import Console

from landfall_cli.api import Api, Refused, Unreachable
from landfall_cli.connection import NotConfigured, find_connection
from landfall_cli.output import Output

Given = ParamSpec("Given")


class Exit(IntEnum):
    """Exit codes; docs/operators.md has them."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    REFUSED = 5


@dataclass
class Options:
    """The options before the command."""

    url: str | None = None
    key: str | None = None
    scope: str | None = None
    as_json: bool = False


@dataclass(frozen=True)
class Session:
    """The API and the output of one command."""

    api: Api
    output: Output

    def confirm(self, what: str, *, is_confirmed: bool) -> None:
        """Ask before an action, unless `--yes` was given.

        Raises:
            typer.Exit: it is not to be done, or there is no terminal to ask on.
        """
        if is_confirmed:
            return
        if not sys.stdin.isatty():
            complain(f"{what} There is no terminal to ask on: give --yes.")
            raise typer.Exit(Exit.USAGE)
        if not typer.confirm(what, err=True):
            complain("Nothing was done.")
            raise typer.Exit(Exit.FAILED)


def complain(text: str) -> None:
    """Print to stderr."""
    Console(stderr=True).print(text, style="red", markup=False, highlight=False, soft_wrap=True)


def open_session(context: typer.Context) -> Session:
    """The session of a command; exits with `UNREACHABLE` where it is not known where the API is."""
    options = context.ensure_object(Options)
    try:
        connection = find_connection(
            options.url, options.key, os.environ, Path.cwd(), scope=options.scope
        )
    except NotConfigured as error:
        complain(str(error))
        raise typer.Exit(Exit.UNREACHABLE) from None
    return Session(Api(connection), open_output(context))


def open_output(context: typer.Context) -> Output:
    """The output of a command, which may need no API."""
    options = context.ensure_object(Options)
    return Output(Console(), as_json=options.as_json, now=lambda: datetime.now(UTC))


def with_exit_codes(command: Callable[Given, None]) -> Callable[Given, None]:
    """Make a command end with the exit code of what went wrong, and say what it was."""

    @functools.wraps(command)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except Unreachable as error:
            complain(str(error))
            raise typer.Exit(Exit.UNREACHABLE) from None
        except Refused as error:
            complain(str(error))
            codes: Mapping[int, Exit] = {400: Exit.USAGE, 404: Exit.NOT_FOUND}
            other = Exit.UNREACHABLE if error.status >= 500 else Exit.REFUSED  # noqa: PLR2004 - its own fault
            raise typer.Exit(codes.get(error.status, other)) from None

    return run


def asked_by(by: str | None) -> dict[str, Any]:
    """The acting person: `--by`, or else the user of this machine."""
    return {"by": by or os.environ.get("USER") or "a user of the command line"}
