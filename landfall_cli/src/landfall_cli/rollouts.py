"""landfall rollouts list|get|promote."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from landfall_cli.output import state
from landfall_cli.session import After, By, Reason, Session, Yes, command

app = typer.Typer(no_args_is_help=True, help="Rollouts: models on their way to an endpoint.")

Rollout = Annotated[str, typer.Argument(help="The rollout's id.")]


@command(app, "list")
def list_rollouts(
    session: Session,
    *,
    pipeline: Annotated[str | None, typer.Option(help="Only of this pipeline.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=50)] = 20,
    after: After = None,
) -> None:
    """List the rollouts, newest first."""

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
                output.sentence(_why(each) or ""),
            )
            for each in document["rollouts"]
        ]
        output.table(("STATE", "ROLLOUT", "TRAFFIC", "BEGAN", "WHY"), rows)
        output.further(document["next"])

    document = session.api.get("/api/rollouts", pipeline=pipeline, limit=limit, after=after)
    session.output.show(document, people)


@command(app, "get")
def get_rollout(session: Session, rollout: Rollout) -> None:
    """Show one rollout: its step, traffic, and the deployment's metrics."""

    def people(shown: Any) -> None:
        model, rate, latency = shown["model"], shown["error_rate"], shown["latency_p95_ms"]
        why = _why(shown)
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


@command(app)
def promote(
    session: Session, rollout: Rollout, *, reason: Reason, by: By = None, yes: Yes = False
) -> None:
    """End the baking time of the current step, so that the next step begins."""
    session.act(
        f"End the step of {rollout}?",
        f"/api/rollouts/{rollout}/promote",
        lambda _: f"asked: landfall rollouts get {rollout}",
        reason=reason,
        by=by,
        yes=yes,
    )


def _why(shown: Any) -> str | None:
    """What the rollout waits for in an outage, or the reason of its state."""
    unknown = shown.get("unknown")
    return (
        shown["reason"] if unknown is None else f"waits, because it cannot know: {unknown['what']}"
    )


def _traffic(shares: dict[str, int] | None) -> str:
    return ", ".join(f"{name} {share}%" for name, share in (shares or {}).items()) or "-"
