"""Exports histories of a Durable Functions app, and checks whether the code at hand fits them.

    replay-guard export https://APP.azurewebsites.net --out histories
    replay-guard check APP_FOLDER histories/*.json

Exit status: 0 the code fits every history; 1 it differs from at least one; 2 the app or a history
could not be read, or nothing could be done; 3 none differs, but at least one does not tell enough
to be checked, which is no reason to stop a deployment.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from replay_guard.app import AppNotLoaded, load_app, read_settings
from replay_guard.check import ExitCode, check, exit_code, to_document, to_text
from replay_guard.export import Wanted, export
from replay_guard.management_api import ApiRefused, ManagementApi

KEY_VARIABLE = "REPLAY_GUARD_KEY"
STATUSES = (
    "Running",
    "Pending",
    "Suspended",
    "Completed",
    "ContinuedAsNew",
    "Failed",
    "Terminated",
)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    options = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except (ApiRefused, AppNotLoaded, OSError) as error:
        print(f"replay-guard: {error}", file=sys.stderr)
        return ExitCode.FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="replay-guard",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_export(commands.add_parser("export", help="write histories of a running app to files"))
    _add_check(commands.add_parser("check", help="replay histories against an app's folder"))
    return parser


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_export)
    parser.add_argument("url", help="the app's, such as https://APP.azurewebsites.net")
    parser.add_argument("--out", type=Path, required=True, help="folder; one file an instance")
    parser.add_argument(
        "--key",
        help="system key durabletask_extension, or the master key. Others on this machine can see "
        f"options: rather set the environment variable {KEY_VARIABLE}",
    )
    parser.add_argument("--task-hub", help="default: the app's own")
    for option, what in (("--instance", "this instance"), ("--name", "this orchestrator")):
        parser.add_argument(
            option, action="append", default=[], help=f"only {what}; may be given again"
        )
    parser.add_argument(
        "--status", action="append", default=[], choices=STATUSES, help="may be given again"
    )
    parser.add_argument("--version", help="version of these instances, which the API does not show")
    parser.add_argument(
        "--with-inputs",
        action="store_true",
        help="keep inputs of activities, outputs and custom status in full, not as SHA-256",
    )


def _add_check(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_check)
    parser.add_argument("app", type=Path, help="the app's folder, with function_app.py")
    parser.add_argument("histories", type=Path, nargs="+", help="files")
    parser.add_argument("--json", action="store_true", help="the report as a JSON document")
    parser.add_argument(
        "--settings",
        type=Path,
        help="app settings: a local.settings.json, or an object of texts (default: the app "
        "folder's local.settings.json, if there is one)",
    )
    parser.add_argument("--version", help="of instances whose history does not tell theirs")


def _export(options: argparse.Namespace) -> int:
    api = ManagementApi(
        options.url, key=options.key or os.environ.get(KEY_VARIABLE), task_hub=options.task_hub
    )
    wanted = Wanted(
        instances=options.instance,
        names=options.name,
        statuses=options.status,
        version=options.version,
        with_inputs=options.with_inputs,
    )
    done = export(api, options.out, wanted, _progress())
    for instance, reason in done.skipped.items():
        print(f"skipped {instance}: {reason}", file=sys.stderr)
    print(f"{len(done.files)} histories in {options.out}")
    return ExitCode.FITS if done.files else ExitCode.FAILED


def _check(options: argparse.Namespace) -> int:
    folder = options.app.resolve()
    settings = options.settings
    if settings is None and (folder / "local.settings.json").is_file():
        settings = folder / "local.settings.json"
    # The app's own output must not appear in the report.
    with contextlib.redirect_stdout(sys.stderr):
        app = load_app(folder, read_settings(settings) if settings else {})
        results = list(check(app, options.histories, _progress(), version=options.version))
    if options.json:
        print(json.dumps(to_document(results), indent=1))
    else:
        print("\n".join(to_text(results)))
    return exit_code(results)


def _progress() -> Callable[[str], None]:
    """Shows progress, on a terminal only."""
    if not sys.stderr.isatty():
        return lambda _line: None

    def note(line: str) -> None:
        sys.stderr.write(f"{line}\n")

    return note


if __name__ == "__main__":
    sys.exit(main())
