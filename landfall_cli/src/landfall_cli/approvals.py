"""landfall approvals list|get|approve|reject."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from landfall_cli.session import By, Reason, Session, Yes, command

app = typer.Typer(no_args_is_help=True, help="Approvals: what waits until people agree.")

Approval = Annotated[str, typer.Argument(help="The question's id.")]


@command(app, "list")
def list_approvals(session: Session) -> None:
    """List the questions that wait for an answer, the most urgent first."""

    def people(document: Any) -> None:
        output = session.output
        if not document["approvals"]:
            output.line("Nothing waits for an approval.")
            return
        rows = [
            (
                each["id"],
                each["agreed"]["model"],
                output.ago(each["deadline"]),
                output.sentence(each["agreed"]["verdict"] or ""),
            )
            for each in document["approvals"]
        ]
        output.table(("APPROVAL", "MODEL", "UNTIL", "VERDICT"), rows)

    session.output.show(session.api.get("/api/approvals"), people)


@command(app, "get")
def get_approval(session: Session, approval: Approval) -> None:
    """Show one question: what is agreed to, and its answer."""
    document = session.api.get(f"/api/approvals/{approval}")
    session.output.show(document, lambda shown: _show(session, shown))


@command(app)
def approve(
    session: Session, approval: Approval, *, reason: Reason, by: By = None, yes: Yes = False
) -> None:
    """Let the model go on, after a look at what is agreed to."""
    _answer(session, approval, "approve", reason=reason, by=by, yes=yes)


@command(app)
def reject(
    session: Session, approval: Approval, *, reason: Reason, by: By = None, yes: Yes = False
) -> None:
    """Keep the model back, after a look at what it is."""
    _answer(session, approval, "reject", reason=reason, by=by, yes=yes)


def _answer(
    session: Session, approval: str, verb: str, *, reason: str, by: str | None, yes: bool
) -> None:
    """Show what is agreed to, ask, and answer for its hash: it cannot change in between."""
    shown = session.api.get(f"/api/approvals/{approval}")
    if not session.output.as_json:
        _show(session, shown)
    session.act(
        f"{verb.capitalize()} {shown['agreed']['model']} before {shown['agreed']['before']}?",
        f"/api/approvals/{approval}/{verb}",
        lambda done: f"answered: {done['answer']['verb']} by {done['answer']['by']}",
        hash=shown["hash"],
        reason=reason,
        by=by,
        yes=yes,
    )


def _show(session: Session, shown: Any) -> None:
    output, agreed, answer = session.output, shown["agreed"], shown["answer"]
    slices = (f"{each['name']} {each['lead']:+.4g}" for each in agreed["slices"])
    output.facts(
        {
            "approval": shown["id"],
            "before": agreed["before"],
            "until": output.ago(shown["deadline"]),
            "without an answer": shown["on_silence"],
            "may answer": ", ".join(shown["by"]) or "everybody with access",
            "model": agreed["model"],
            "verdict": agreed["verdict"],
            "metrics": _numbers(agreed["metrics"]),
            "slices": ", ".join(slices) or None,
            "observed": _numbers(agreed["observed"]),
            "dataset": agreed["dataset_version"],
            "data difference": agreed["difference"],
            "configuration": agreed["configuration"],
            "run": agreed["run"],
            "rollout": agreed["rollout"],
            "promoted to": agreed.get("destination"),
            "files": agreed.get("files"),
            "hash": shown["hash"],
            "answer": None
            if answer is None
            else f"{answer['verb']}, {answer['by'] or 'nobody'}: {answer['reason']}",
        }
    )


def _numbers(found: Mapping[str, float]) -> str | None:
    return ", ".join(f"{name} {value:.4g}" for name, value in found.items()) or None
