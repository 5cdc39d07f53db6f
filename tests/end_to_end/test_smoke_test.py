"""The hook that azd runs after a deployment, as a program, against the laptop.

The app reaches data, results and the custom topic by its identity here, as on Azure, so that it may
do what infra/roles.json says and no more.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from demo import laptop

IDENTITY_SETTINGS = laptop.APP / "infra" / "local" / "identity-settings.json"
LANDING = "{storage_connection_string:landfalldata}"


async def test_a_batch_of_the_smoke_pipeline_becomes_a_model(tmp_path: Path) -> None:
    settings = {**json.loads(IDENTITY_SETTINGS.read_text("utf-8")), "Uploader": LANDING}
    async with laptop.running(tmp_path, settings) as endpoints:
        functions = endpoints["functions"]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "infra/hooks/smoke_test.py",
            cwd=laptop.APP,
            env={
                **os.environ,
                "LANDFALL_URL": functions["base_url"],
                "LANDFALL_FUNCTION_KEY": functions["function_key"],
                "LANDFALL_DATA_CONNECTION_STRING": endpoints["app_settings"]["Uploader"],
                "LANDFALL_SMOKE_TIMEOUT_SECONDS": "180",
            },
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    assert "succeeded" in output.decode()
    assert f"{functions['base_url']}/api/runs/smoke-" in output.decode()
    log = (tmp_path / "up.log").read_text("utf-8", "replace")
    assert "AuthorizationPermissionMismatch" not in log
