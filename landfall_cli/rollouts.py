"""landfall rollouts list|get|promote|rollback."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from landfall_cli.options import After, By, Reason, Yes
from landfall_cli.output import state
from landfall_cli.session import asked_by, open_session, with_exit_codes

app = typer.Typer(no_args_is_help=True, help="Rollouts: models on their way to an endpoint.")

Rollout = Annotated[str, typer.Argument(help="The rollout's id.")]


@app.command("list")
@with_exit_codes
def list_rollouts(
    context: typer.Context,
    *,
    pipeline: Annotated[str | None, typer.Option(help="Only of this pipeline.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=50)] = 20,
    after: After = None,
) -> None:
    """Rollouts, newest first."""
    session = open_session(context)

    def people(document: Any) -> None:
        output = session.output
        if not document["rollouts"]:
            output.line("No model was rolled out yet.")
            return
        rows = [
            (
                state(each["state"]),
                each["id"],
                _traffic(each["traffic"]),
                output.ago(each["created_at"]),
                output.sentence(each["reason"] or ""),
            )
            for each in document["rollouts"]
        ]
        output.table(("STATE", "ROLLOUT", "TRAFFIC", "BEGAN", "WHY"), rows)
        output.further(document["next"])

    document = session.api.get("/api/rollouts", pipeline=pipeline, limit=limit, after=after)
    session.output.show(document, people)


@app.command("get")
@with_exit_codes
def get_rollout(context: typer.Context, rollout: Rollout) -> None:
    """One rollout: its step, traffic, and what the deployment's metrics show."""
    session = open_session(context)

    def people(shown: Any) -> None:
        model, rate, latency = shown["model"], shown["error_rate"], shown["latency_p95_ms"]
        why = shown["reason"]
        session.output.facts(
            {
                "rollout": shown["id"],
                "state": state(shown["state"]),
                "why": None if why is None else session.output.sentence(why),
                "model": f"{model['name']}:{model['version']}",
                "endpoint": shown["endpoint"],
                "step": f"{min(shown['step'] + 1, shown['steps'])} of {shown['steps']}",
                "traffic": _traffic(shown["traffic"]),
                "mirror": _traffic(shown["mirror"]),
                "requests": None if shown["requests"] is None else f"{shown['requests']:.0f}",
                "failed": None if rate is None else f"{rate:.1%}",
                "p95 latency": None if latency is None else f"{latency:.0f} ms",
                **{name: f"{value:.4g}" for name, value in shown.get("answers", {}).items()},
                "run": shown["run"],
            }
        )

    session.output.show(session.api.get(f"/api/rollouts/{rollout}"), people)


@app.command()
@with_exit_codes
def promote(
    context: typer.Context, rollout: Rollout, *, reason: Reason, by: By = None, yes: Yes = False
) -> None:
    """End the step that a rollout bakes in: the next one begins."""
    _decide(context, "promote", f"End the step of {rollout}?", rollout, reason, by, yes=yes)


@app.command()
@with_exit_codes
def rollback(
    context: typer.Context, rollout: Rollout, *, reason: Reason, by: By = None, yes: Yes = False
) -> None:
    """Set the traffic of before a rollout again."""
    _decide(context, "rollback", f"Roll {rollout} back?", rollout, reason, by, yes=yes)


def _decide(
    context: typer.Context,
    verb: str,
    question: str,
    rollout: str,
    reason: str,
    by: str | None,
    *,
    yes: bool,
) -> None:
    session = open_session(context)
    session.confirm(question, is_confirmed=yes)
    document = session.api.post(
        f"/api/rollouts/{rollout}/{verb}", {"reason": reason, **asked_by(by)}
    )
    session.output.show(
        document, lambda _: session.output.line(f"asked: landfall rollouts get {rollout}")
    )


def _traffic(shares: dict[str, int] | None) -> str:
    return ", ".join(f"{name} {share}%" for name, share in (shares or {}).items()) or "-"
