"""The roles that the deployment gives the app, from the table that deploys them."""

from __future__ import annotations

import json
from pathlib import Path

TABLE = Path(__file__).parents[3] / "infra" / "roles.json"


def roles_of_the_app(*scopes: str) -> str:
    """The app's roles on these scopes of the table, as in "AzureML Data Scientist on workspace".

    A command line that is installed from its wheel only refers to the table.
    """
    try:
        rows = json.loads(TABLE.read_text("utf-8"))["assignments"]
    except FileNotFoundError:
        return f"its roles on {', '.join(scopes)} in infra/roles.json"
    found = [
        f"{row['role']} on {row['scope']}"
        for row in rows
        if row["principal"] == "app" and row["scope"] in scopes
    ]
    return ", ".join(found)
