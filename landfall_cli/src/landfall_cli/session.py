"""The session of a command: the API, the output, exit codes for errors, and common options."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import IntEnum
from typing import Annotated, Any, Concatenate, ParamSpec

import typer
from rich.console import Console

from landfall_cli.api import Api, NoAnswer, Refused, Unreachable
from landfall_cli.connection import Connection, NotConfigured
from landfall_cli.output import Output, complain, visible

Given = ParamSpec("Given")
Reason = Annotated[str, typer.Option(help="Why; it is kept.")]
OptionalReason = Annotated[str | None, typer.Option(help="Why; it is kept.")]
By = Annotated[str | None, typer.Option(help="Who you are; the user's name by default.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
After = Annotated[str | None, typer.Option(help="Of `next`: the page that follows.")]
RETRY_SECONDS = 2.0
OUTAGE_SECONDS = 900.0
"""How long a command that follows something waits for an answer."""


class Exit(IntEnum):
    """Exit codes, documented in landfall_cli/README.md."""

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
        """The API; found lazily, because some commands do not need it.

        Raises:
            NotConfigured: its address is unknown.
        """
        return Api(self._connect())

    def follow(self, path: str, **parameters: str | int | None) -> Any:
        """Read again what a command follows. An outage is told once, and waited for.

        Raises:
            Unreachable: as `Api.get`, or an outage lasts for too long.
            Refused: likewise.
        """
        began: float | None = None
        while True:
            try:
                return self.api.get(path, **parameters)
            except (NoAnswer, Refused) as error:
                is_outage = isinstance(error, NoAnswer) or error.status >= 500  # noqa: PLR2004 - an error of the server
                # Without any answer yet, it is rather the address that is wrong.
                if not (is_outage and self.api.has_answered):
                    raise
                if began is None:
                    began = time.monotonic()
                    complain(f"{error}. The command waits for an answer.")
                elif time.monotonic() - began > OUTAGE_SECONDS:
                    raise
                time.sleep(RETRY_SECONDS)

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
        """Ask for confirmation, request an action, and print its result.

        Args:
            question: the question to confirm; it is skipped with `yes`.
            path: the path of the action.
            say: the API's answer → a sentence about it.
            by: the acting person; by default the user of this machine.
            yes: whether `--yes` confirms the action.
            body: the keys of the request's body; None values are left out.

        Raises:
            typer.Exit: the person declined, or there is no terminal for the question.
        """
        _ = self.api  # without an address, nobody is asked
        self.confirm(question, is_confirmed=yes)
        done = self.request(path, by=by, **body)
        self.output.show(done, lambda done: self.output.line(say(done)))

    def request(self, path: str, *, by: str | None, **body: Any) -> Any:
        """Request an action that was confirmed; see `act`."""
        given = {name: value for name, value in body.items() if value is not None}
        given["by"] = by or os.environ.get("USER") or "a user of the command line"
        return self.api.post(path, given)

    def confirm(self, what: str, *, is_confirmed: bool) -> None:
        """Ask a person.

        Raises:
            typer.Exit: the person declined, or there is no terminal for the question.
        """
        if is_confirmed:
            return
        if not sys.stdin.isatty():
            complain(f"{what} There is no terminal to ask on: give --yes.")
            raise typer.Exit(Exit.USAGE)
        if not typer.confirm(visible(what), err=True):
            complain("Nothing was done.")
            raise typer.Exit(Exit.FAILED)


def command(
    app: typer.Typer, name: str | None = None
) -> Callable[[Callable[Concatenate[Session, Given], None]], None]:
    """Add a function to a group of commands.

    The function gets the session; its errors become messages and exit codes.
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
                other = Exit.UNREACHABLE if error.status >= 500 else Exit.REFUSED  # noqa: PLR2004 - an error of the server
                raise typer.Exit(codes.get(error.status, other)) from None

        # Typer reads the parameters from the annotations.
        run.__annotations__ = function.__annotations__ | {"session": typer.Context}
        app.command(name)(run)

    return register
