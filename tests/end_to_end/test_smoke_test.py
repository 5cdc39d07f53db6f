"""The hook that azd runs after a deployment, as a program, against the laptop."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from demo import laptop


async def test_a_batch_of_the_smoke_pipeline_becomes_a_model(tmp_path: Path) -> None:
    async with laptop.running(tmp_path, {}) as endpoints:
        functions = endpoints["functions"]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "infra/hooks/smoke_test.py",
            cwd=laptop.APP,
            env={
                **os.environ,
                "LANDFALL_URL": functions["base_url"],
                "LANDFALL_FUNCTION_KEY": functions["function_key"],
                "LANDFALL_DATA_CONNECTION_STRING": endpoints["app_settings"]["DataStorage"],
                "LANDFALL_SMOKE_TIMEOUT_SECONDS": "180",
            },
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    assert "succeeded" in output.decode()
    assert f"{functions['base_url']}/api/runs/smoke-" in output.decode()
