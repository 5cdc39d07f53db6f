"""The hook that azd runs after a deployment, as a program, against the laptop.

All parties reach the services by their identities, as on Azure: the app, the topics of Event Grid,
the cluster and the deployer may do what infra/roles.json says and no more.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from demo import laptop


async def test_a_batch_of_the_smoke_pipeline_becomes_a_model(tmp_path: Path) -> None:
    async with laptop.running(tmp_path, {}) as endpoints:
        functions, settings = endpoints["functions"], endpoints["app_settings"]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "infra/hooks/smoke_test.py",
            cwd=laptop.APP,
            env={
                **os.environ,
                **{
                    name: settings[name]
                    for name in ("IDENTITY_ENDPOINT", "IDENTITY_HEADER", "REQUESTS_CA_BUNDLE")
                },
                "AZURE_CLIENT_ID": endpoints["identities"]["deployer"],
                "LANDFALL_URL": functions["base_url"],
                "LANDFALL_FUNCTION_KEY": functions["function_key"],
                "LANDFALL_DATA_URL": settings["DataStorage__blobServiceUri"],
                "LANDFALL_SMOKE_TIMEOUT_SECONDS": "180",
            },
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    assert "succeeded" in output.decode()
    assert f"{functions['base_url']}/api/runs/smoke-" in output.decode()
    logs = [path.read_text("utf-8", "replace") for path in (tmp_path / "logs").iterdir()]
    refusals = ("AuthorizationPermissionMismatch", "AuthorizationFailed", "Unauthorized access")
    assert [each for each in refusals if any(each in log for log in logs)] == []
