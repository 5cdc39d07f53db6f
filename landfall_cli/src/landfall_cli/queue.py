"""landfall queue: the runs that hold nodes or wait for them, the reasons, budgets and costs."""

from __future__ import annotations

from typing import Any

from landfall_cli.output import Output
from landfall_cli.session import Session


def queue(session: Session) -> None:
    """Show the queues: nodes, budgets, and the runs that wait for nodes."""
    session.output.show(
        session.api.get("/api/queues"), lambda document: print_queues(document, session.output)
    )


def print_queues(document: Any, output: Output) -> None:
    """Print a table of quotas, a table of costs, and a line for each run that waits."""
    if not document["queues"]:
        output.line(
            "There is no queues.yml: no run waits for nodes in Landfall, and no node has a price."
        )
        return
    rows = [
        (
            each["name"],
            quota["flavor"],
            f"{quota['nodes_held']} of {quota['limit']}",
            str(quota["nominal_quota"]),
            _money(each["budget"], document["currency"]),
        )
        for each in document["queues"]
        for quota in each["quotas"]
    ]
    output.table(("QUEUE", "FLAVOR", "NODES", "GUARANTEED", "BUDGET"), rows)
    spent = [
        (
            each["month"],
            each["queue"],
            each["pipeline"],
            str(each["runs"]),
            f"{each['node_hours']:,.2f}",
            f"{each['amount']:,.2f} {document['currency']}",
        )
        for each in document["costs"]
    ]
    if spent:
        output.line("")
        output.table(("MONTH", "QUEUE", "PIPELINE", "RUNS", "NODE-HOURS", "COST"), spent)
        output.line("")
    if document["prices_as_of"]:
        output.line(f"prices as of {document['prices_as_of']}")
    for each in document["queues"]:
        for run in each["waiting"]:
            output.line(f"{run['run']} {output.sentence(run['sentence'])}")


def _money(budget: Any, currency: str) -> str:
    if budget is None:
        return "-"
    return (
        f"{budget['spent']:,.2f} spent, {budget['reserved']:,.2f} reserved of "
        f"{budget['amount']:,.2f} {currency}"
    )
