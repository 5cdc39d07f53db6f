"""The app of this repository, with a tape: what each orchestrator is asked, and what it answers.

`record.py` copies this file into the app folder that it has localazure run. Two settings say where
the app is (`RECORDED_APP`, a folder) and where the tape is (`TAPE`, JSON lines).
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import azure.functions as func
from azure.durable_functions.decorators import durable_app

APP = Path(os.environ["RECORDED_APP"])
TAPE = Path(os.environ["TAPE"])

_lock = threading.Lock()


class TapedOrchestrator(durable_app.Orchestrator):
    """The SDK's orchestrator; every call is on the tape before it is answered."""

    @classmethod
    def create(cls, fn: Callable[..., Any]) -> Callable[[Any], str]:
        """As the SDK's, which `DFApp.orchestration_trigger` calls."""
        handle = super().create(fn)

        def taped(context: func.OrchestrationContext) -> str:
            answer = handle(context)
            line = json.dumps({"trigger": context.body, "answer": answer})
            with _lock, TAPE.open("a", encoding="utf-8") as tape:
                tape.write(line + "\n")
            return answer

        return taped


# The decorators look the class up here; the SDK has no place to hand in another one.
durable_app.Orchestrator = TapedOrchestrator
sys.path.insert(0, str(APP))
# A zone of more than one blob is a large one, where its listing has more than one page or prefix.
freezing: Any = importlib.import_module("handlers.landing.freezing")
freezing.BLOBS_AT_ONCE = 1
_spec = importlib.util.spec_from_file_location("recorded_function_app", APP / "function_app.py")
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _module
_spec.loader.exec_module(_module)
app = _module.app
