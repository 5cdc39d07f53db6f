"""The list of an app's functions: names, URLs and errors."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from localazure.functions import logs
from localazure.functions.app import binding_kinds, orchestrator_code
from localazure.functions.app.loader import LoadedFunction
from localazure.functions.triggers.http.trigger import url_path

_LOG = logging.getLogger(logs.HOST_LOGGER)


def list_functions(
    functions: Iterable[LoadedFunction],
    faults: Mapping[str, str],
    *,
    base_url: str,
    route_prefix: str,
    colours: logs.Colours = logs.PLAIN,
) -> str:
    """The list that `func start` prints: HTTP functions with their URLs, then the others."""
    lines = [colours.warning("Functions:")]
    for function in sorted(
        functions, key=lambda one: (one.trigger.kind != binding_kinds.HTTP_TRIGGER, one.name)
    ):
        kind = function.trigger.kind
        name = colours.name(f"{function.name}:")
        if function.is_disabled:
            lines.append(f"\t{name} {kind} (disabled)")
        elif function.name in faults:
            lines.append(f"\t{name} {kind} {colours.error('(in error)')}")
        elif kind == binding_kinds.HTTP_TRIGGER:
            methods = ",".join(
                str(method).upper() for method in function.trigger.settings.get("methods") or ()
            )
            prefix = f"[{methods}] " if methods else ""
            url = f"{base_url}/{url_path(function, route_prefix)}"
            lines.append(f"\t{name} {colours.link(prefix + url)}")
        else:
            lines.append(f"\t{name} {kind}")
    return "\n\n".join(lines)


def log_findings(functions: Iterable[LoadedFunction], faults: Mapping[str, str]) -> None:
    """Log functions in error, with the real host's text, and code or policies without effect."""
    functions = list(functions)
    if not functions:
        _LOG.warning(
            "No job functions found: no function of the app is decorated with a trigger, or no "
            "blueprint is registered"
        )
    for name, fault in sorted(faults.items()):
        _LOG.error("The '%s' function is in error: %s", name, fault)
    for function in functions:
        is_orchestrator = function.trigger.kind == binding_kinds.ORCHESTRATION_TRIGGER
        if is_orchestrator and (warning := orchestrator_code.forgotten_yields(function.call)):
            _LOG.warning("orchestrator '%s': %s", function.name, warning)
        if function.has_retry_policy:
            _LOG.warning("the retry policy of '%s' has no effect here", function.name)
