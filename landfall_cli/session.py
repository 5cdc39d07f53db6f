"""The session of every command: the API, the output, and exit codes for errors."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any, Concatenate, ParamSpec

import typer
from rich.console import Console

from landfall_cli.api import Api, Refused, Unreachable
from landfall_cli.connection import Connection, NotConfigured
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


class Session:
    """The API and the output of one command."""

    def __init__(self, connect: Callable[[], Connection], *, as_json: bool) -> None:
        self._connect = connect
        self.output = Output(Console(), as_json=as_json, now=lambda: datetime.now(UTC))

    @functools.cached_property
    def api(self) -> Api:
        """The API; a command may need none.

        Raises:
            NotConfigured: it is not known where it is.
        """
        return Api(self._connect())

    def act(
        self,
        question: str,
        path: str,
        say: Callable[[Any], str],
        *,
        by: str | None,
        yes: bool,
        **body: Any,
    ) -> None:
        """Ask a person, act in their name, and say what was done.

        Args:
            question: is not asked where `yes` is given.
            path: of the action.
            say: the sentence about the API's answer.
            by: the acting person; by default the user of this machine.
            yes: whether it was confirmed by `--yes`.
            body: what the action is given; None is left out.

        Raises:
            typer.Exit: it is not to be done, or there is no terminal to ask on.
        """
        api = self.api
        self._confirm(question, is_confirmed=yes)
        given = {name: value for name, value in body.items() if value is not None}
        given["by"] = by or os.environ.get("USER") or "a user of the command line"
        self.output.show(api.post(path, given), lambda done: self.output.line(say(done)))

    def _confirm(self, what: str, *, is_confirmed: bool) -> None:
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


def command(
    app: typer.Typer, name: str | None = None
) -> Callable[[Callable[Concatenate[Session, Given], None]], None]:
    """Add a function to a group of commands.

    It is given the session, and ends with the exit code of what went wrong.
    """

    def register(function: Callable[Concatenate[Session, Given], None]) -> None:
        @functools.wraps(function)
        def run(session: typer.Context, *args: Given.args, **kwargs: Given.kwargs) -> None:
            try:
                function(session.obj, *args, **kwargs)
            except (NotConfigured, Unreachable) as error:
                complain(str(error))
                raise typer.Exit(Exit.UNREACHABLE) from None
            except Refused as error:
                complain(str(error))
                codes: Mapping[int, Exit] = {400: Exit.USAGE, 404: Exit.NOT_FOUND}
                other = Exit.UNREACHABLE if error.status >= 500 else Exit.REFUSED  # noqa: PLR2004 - its own fault
                raise typer.Exit(codes.get(error.status, other)) from None

        # Typer reads what to pass from the annotations.
        run.__annotations__ = function.__annotations__ | {"session": typer.Context}
        app.command(name)(run)

    return register
