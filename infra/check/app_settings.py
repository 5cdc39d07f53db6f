"""Check that docs/app-settings.md explains exactly the app settings of the function app.

The laptop's app has the same connections, with the same identity.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from infra.check.bicep_file import BicepFile, properties, text
from infra.check.problem import Problem

PAGE = "docs/app-settings.md"
LAPTOP = "infra/local/app-settings.json"
NOT_DEPLOYED = ("never on Azure", "not by `azd up`")
KEYS = re.compile(r"AccountKey=|SharedAccessKey|InstrumentationKey=|sig=|whsec_", re.IGNORECASE)
CONNECTION = re.compile(r"^(?!AzureFunctionsJobHost)\w+?__\w+$")
ENDPOINT = re.compile(r"^(\w+?)__(?:\w*[sS]erviceUri|fullyQualifiedNamespace)$")


def check(root: Path, file: BicepFile) -> Iterator[Problem]:
    """Compare the page with `settings` and `schedulerSettings` of the function app."""
    configured = {
        key: (value, line)
        for name in ("settings", "schedulerSettings")
        if name in file.variables
        for key, value, line in properties(file.variables[name])
    }
    yield from _check_laptop(root, configured)
    documented = documented_settings((root / PAGE).read_text("utf-8"))
    name = file.path.name
    for setting, line in documented.items():
        is_string_form = any(each.startswith(f"{setting}__") for each in configured)
        if setting not in configured and not is_string_form:
            yield Problem(PAGE, line, f"{setting} is explained, but {name} does not set it")
    for setting, (value, line) in configured.items():
        connection = setting.removesuffix("__credential").removesuffix("__clientId")
        is_identity = connection != setting and any(
            each.partition("__")[0] == connection for each in documented
        )
        if setting not in documented and not is_identity:
            yield Problem(name, line, f"{setting} is set, but {PAGE} does not explain it")
        if KEYS.search(text(value)):
            yield Problem(name, line, f"{setting} holds a key: use the identity, or Key Vault")
        if setting.endswith("_SECRET") and "@Microsoft.KeyVault(" not in text(value):
            yield Problem(name, line, f"{setting} must be a Key Vault reference")
        endpoint = ENDPOINT.match(setting)
        if endpoint:
            for part in ("credential", "clientId"):
                if f"{endpoint[1]}__{part}" not in configured:
                    yield Problem(name, line, f"{setting} needs {endpoint[1]}__{part} as well")


def _check_laptop(root: Path, deployed: Iterable[str]) -> Iterator[Problem]:
    connections = {"AZURE_CLIENT_ID", *(each for each in deployed if CONNECTION.match(each))}
    names = {each.partition("__")[0] for each in connections}
    laptop: dict[str, str] = json.loads((root / LAPTOP).read_text("utf-8"))
    there = {each for each in laptop if each.partition("__")[0] in names}
    for setting in sorted(connections ^ there):
        where = "only on Azure" if setting in connections else "only on the laptop"
        yield Problem(LAPTOP, 1, f"{setting} is set {where}: connections must be the same")


def documented_settings(page: str) -> dict[str, int]:
    """Setting -> line of the page, for every setting that `azd up` sets."""
    documented: dict[str, int] = {}
    for number, line in enumerate(page.splitlines(), 1):
        cells = [each.strip() for each in line.strip().strip("|").split(" | ")]
        if (
            line.startswith("| `")
            and len(cells) > 1
            and not any(each in cells[1] for each in NOT_DEPLOYED)
        ):
            documented |= dict.fromkeys(re.findall(r"`(\w+)`", cells[0]), number)
    return documented
