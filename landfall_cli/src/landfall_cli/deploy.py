"""landfall deploy|rollback: the one way of a model to its endpoint, and the one way back."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.text import Text

from landfall_cli.api import Refused
from landfall_cli.models import changed, find_pipeline
from landfall_cli.output import duration, exact, state
from landfall_cli.session import By, Exit, Reason, Session, Yes

POLL_SECONDS = 1.0
ENDS = frozenset({"finished", "rolled_back", "superseded", "failed"})
SERVES = frozenset({"live", "finished"})
NOT_BEGUN = ("/problems/unknown-rollout", "/problems/rollout-not-begun")


def deploy(
    session: Session,
    model: Annotated[
        str, typer.Argument(help="MODEL, or MODEL:VERSION; the newest version by default.")
    ],
    *,
    at_once: Annotated[
        bool,
        typer.Option(help="All traffic after the smoke test, without steps and guards."),
    ] = False,
    reason: Reason,
    by: By = None,
    yes: Yes = False,
) -> None:
    """Roll a version of a model out to its endpoint, and follow it until it has the traffic.

    The exit code is 1 if it does not get it. A repeated command follows the same rollout.
    """
    name, _, version = model.partition(":")
    pipeline = find_pipeline(session, name)
    version = version or _newest(session, pipeline)
    how = "at once" if at_once else "in steps"
    session.confirm(
        f"Deploy {pipeline['model']}:{version} to {pipeline['endpoint'] or 'its endpoint'} {how}?",
        is_confirmed=yes,
    )
    requested_at = time.monotonic()
    done = session.request(
        "/api/rollouts",
        pipeline=pipeline["name"],
        version=version,
        at_once=at_once,
        reason=reason,
        by=by,
    )
    _follow(session, done["id"], SERVES, since=requested_at)


def rollback(
    session: Session,
    of: Annotated[
        str,
        typer.Argument(
            metavar="ENDPOINT|MODEL[:VERSION]",
            help="Where. VERSION is the one that is to go: repeated, it changes nothing.",
        ),
    ],
    *,
    reason: Reason,
    by: By = None,
    yes: Yes = False,
) -> None:
    """Move an endpoint's traffic back to the version before, and follow it until it is there.

    A rollout that is under way is rolled back. Otherwise the version before the champion serves
    again, and is deployed again if its deployment is gone. The exit code is 1 if that fails.
    """
    name, _, version = of.partition(":")
    pipeline = find_pipeline(session, name)
    current = _current_rollout(session, pipeline["name"])
    is_other = current is not None and (
        version != current["model"]["version"] or current.get("rolls_back")
    )
    if current is None or (version and is_other):
        _replace_champion(session, pipeline, version, reason=reason, by=by, yes=yes)
    elif current.get("rolls_back"):  # rolled back itself, it would bring the bad version back
        session.output.note(f"version {current['rolls_back']} is being rolled back already")
        _follow(session, current["id"], SERVES, since=time.monotonic())
    else:
        session.confirm(f"Roll {current['id']} back?", is_confirmed=yes)
        asked = time.monotonic()
        session.request(f"/api/rollouts/{current['id']}/rollback", reason=reason, by=by)
        _follow(session, current["id"], frozenset({"rolled_back"}), since=asked)


def _replace_champion(
    session: Session, pipeline: Any, version: str, *, reason: str, by: str | None, yes: bool
) -> None:
    """Put the version before a version, by default the champion, in service."""
    path = f"/api/pipelines/{pipeline['name']}/models"
    # Without a champion, the API answers that there is no version "none".
    goes = version or session.api.get(path, limit=1)["champion"] or "none"
    session.confirm(f"Take {pipeline['model']}:{goes} out of service?", is_confirmed=yes)
    requested_at = time.monotonic()
    done = session.request(f"{path}/{goes}/rollback", reason=reason, by=by)
    if done["rollout"] is None:
        session.output.show(done, lambda shown: session.output.line(changed(shown)))
        return
    session.output.note(changed(done))
    _follow(session, done["rollout"], SERVES, since=requested_at)


def _newest(session: Session, pipeline: Any) -> str:
    """The newest version, unless it was taken out of service.

    Raises:
        Refused: it was, or there is none.
    """
    listed = session.api.get(f"/api/pipelines/{pipeline['name']}/models", limit=1)["models"]
    if not listed:
        raise Refused(404, {"detail": f"no version of {pipeline['model']} was registered yet"})
    version, stage = listed[0]["version"], listed[0]["stage"]
    if stage in ("rolled-back", "archived"):
        said = f"the newest version of {pipeline['model']}, {version}, is {stage}: name a version"
        raise Refused(409, {"detail": said})
    return str(version)


def _current_rollout(session: Session, pipeline: str) -> Any | None:
    """The rollout that has the endpoint, or else the newest one that waits for it."""
    listed = session.api.get("/api/rollouts", pipeline=pipeline, limit=50)["rollouts"]
    going = [each for each in listed if not each["broken"] and each["state"] not in ENDS]
    holding = [each for each in going if each["state"] != "waiting"]
    return next(iter(holding or going), None)


def _follow(session: Session, rollout: str, wanted: AbstractSet[str], *, since: float) -> None:
    """Follow a rollout until it is in a wanted state, or has ended; say what happened.

    Raises:
        typer.Exit: it has ended otherwise.
    """
    output, document = session.output, None
    shown, traffic, moved = "", None, since
    while document is None or not (document["broken"] or shown in ENDS | wanted):
        if document is not None:
            time.sleep(POLL_SECONDS)
        document = _read(session, rollout) if document is None else session.follow(_path(rollout))
        if document["traffic"] not in (None, traffic):
            traffic, moved = document["traffic"], time.monotonic()
        if document["state"] != shown:
            shown = document["state"]
            output.note(Text(f"{exact(document['since'])}  ").append_text(state(shown)))
    if shown in SERVES & wanted:
        traffic = {document["deployment"]: 100}
    took = duration(timedelta(seconds=moved - since))
    is_done = shown in wanted and not document["broken"]

    def people(ended: Any) -> None:
        output.line(f"traffic of {ended['endpoint']}: {_shares(traffic)}, after {took}")
        if not is_done:
            is_ = "broken" if ended["broken"] else shown
            output.line(output.sentence(f"{rollout} is {is_}: {ended['reason'] or 'no reason'}"))

    output.show(document, people)
    if not is_done:
        raise typer.Exit(Exit.FAILED)


def _read(session: Session, rollout: str) -> Any:
    """A rollout that was asked for, as soon as it has begun: its message is on its way."""
    while True:
        try:
            return session.follow(_path(rollout))
        except Refused as error:
            if error.problem.get("type") not in NOT_BEGUN:
                raise
        time.sleep(POLL_SECONDS)


def _path(rollout: str) -> str:
    return f"/api/rollouts/{rollout}"


def _shares(traffic: Mapping[str, int] | None) -> str:
    if traffic is None:
        return "as it was"
    shares = [f"{share} % on {_version(name)}" for name, share in traffic.items() if share]
    return ", ".join(shares) or "none, since no version served before"


def _version(deployment: str) -> str:
    """A deployment in words: Landfall names its own after the version and, if need be, the code."""
    ours = re.fullmatch(r"model-(\d+)(-\w+)?", deployment)
    return f"deployment {deployment}" if ours is None else f"version {ours[1]}"
