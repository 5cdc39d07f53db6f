"""The decision of an orchestrator: the orchestrator-out document of azure-functions-durable."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any

from localazure import limits
from localazure.functions.durable.engine.invocation import FunctionFailed

# Marks the orchestrator-out document within the text of the exception that the SDK raises when an
# orchestrator failed (azure.durable_functions.models.TaskOrchestrationExecutor).
OUT_OF_PROC_MARK = "$OutOfProcData$:"
# azure.durable_functions.models.ReplaySchema.V2 and newer: one flat list of actions, awaited one
# after the other. The engine offers V3 and does not support V1.
OLDEST_SCHEMA = 1

# The error of Python's json module.
_NOT_JSON = re.compile(r"(TypeError: )?Object of type \w+ is not JSON serializable")
# The SDK's error about the input of a call in an orchestrator.
_INPUT_NOT_JSON = re.compile(r"(TypeError: )?class <class '[^']+'> does not expose a `to_json` .*")
# Separates the author's exception from the SDK's, which has the document and repeats its text.
_CAUSE = "\n\nThe above exception was the direct cause of the following exception:\n"

Action = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """All actions of an orchestrator so far, and its result or error if it has ended.

    `error` is the failure's text without the host's prefix. `output` and `custom_status` are
    JSON texts, None where the document has none.
    """

    actions: list[Action] = field(default_factory=list[Action])
    is_done: bool = False
    output: str | None = None
    error: str | None = None
    error_details: str = ""
    custom_status: str | None = None
    is_document: bool = True
    """Whether the orchestrator returned a valid document. If not, its actions are ignored."""


def from_answer(answer: str | None) -> Decision:
    """Parse the document that an orchestrator returned. A malformed one becomes a failure."""
    try:
        document = json.loads(answer or "null")
        return _from_document(document, details="")
    except (ValueError, TypeError, KeyError, IndexError) as error:
        return Decision(
            error=f"it returned no valid orchestrator document: {error!r}", is_document=False
        )


def from_failure(failure: FunctionFailed) -> Decision:
    """Parse the document in the SDK's exception; without a document, the exception is the error.

    The exception's text and the document may both quote other documents, such as that of a
    sub-orchestration. The document to parse is the one that extends to the end of the text.
    """
    return _explained(_read_failure(failure))


def _read_failure(failure: FunctionFailed) -> Decision:
    details, mark, _ = failure.stack.partition(OUT_OF_PROC_MARK)
    if mark and _CAUSE in details:
        details = details.rpartition(_CAUSE)[0]
    details = details.rstrip()
    start = failure.message.find(OUT_OF_PROC_MARK)
    while start >= 0:
        start += len(OUT_OF_PROC_MARK)
        try:
            return _from_document(json.loads(failure.message[start:]), details)
        except (ValueError, TypeError, KeyError, IndexError):
            start = failure.message.find(OUT_OF_PROC_MARK, start)
    return Decision(error=str(failure), error_details=details, is_document=False)


def _explained(decision: Decision) -> Decision:
    """Add the remedy to an error about a value that is not JSON; drop the json module's frames."""
    if decision.error is None:
        return decision
    if _INPUT_NOT_JSON.fullmatch(decision.error):
        return replace(
            decision,
            error=f"{decision.error}: the input of a step is not JSON. Give dicts, lists, strings, "
            "numbers, booleans or None, or give its class the methods to_json and from_json",
        )
    if not _NOT_JSON.fullmatch(decision.error):
        return decision
    return replace(
        decision,
        error=f"{decision.error}: its result, its custom status or the input of a step is not "
        "JSON. If it is a task, `yield` is missing before its call",
        error_details="",
    )


def _from_document(document: Any, details: str) -> Decision:
    if not isinstance(document, dict):
        raise TypeError(f"expected an object, not {document!r}")
    schema: int = document.get("schemaVersion", 0)
    if schema < OLDEST_SCHEMA:
        raise ValueError(
            f"replay schema {schema} of the SDK is too old; install azure-functions-durable >= 1.2"
        )
    status = document.get("customStatus")
    custom_status = None if status is None else json.dumps(status)
    too_large = oversize_error(custom_status)
    if too_large is not None:  # as on Azure, checked before the actions
        return Decision(error=too_large, is_document=False)
    return Decision(
        actions=document["actions"][0],
        is_done=document["isDone"],
        output=json.dumps(document["output"]) if "output" in document else None,
        error=document.get("error") or None,
        error_details=details,
        custom_status=custom_status,
    )


def oversize_error(status_json: str | None) -> str | None:
    """Return the real extension's error for a custom status that is too large; None if it is not.

    The real extension counts whole kilobytes, so it accepts up to 1,023 bytes more; this
    function enforces the documented limit.

    Args:
        status_json: JSON text. The size is that of its compact form without escapes.
    """
    limit_bytes = limits.DURABLE_CUSTOM_STATUS.value
    if status_json is None or 2 * len(status_json) <= limit_bytes:
        return None
    compact = json.dumps(json.loads(status_json), ensure_ascii=False, separators=(",", ":"))
    size_bytes = len(compact.encode("utf-16-le", "surrogatepass"))
    if size_bytes <= limit_bytes:
        return None
    return (
        f"The UTF-16 size of the JSON-serialized payload must not exceed {limit_bytes // 1024:,} "
        f"KB. The current payload size is {size_bytes / 1024:,.1f} KB. (set_custom_status; keep "
        "large values in a blob and its address in the status)"
    )
