"""What importing the function app costs, which every cold start on Azure pays."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.harness import Bench, Contender, Sample
from benchmarks.host_process import REPOSITORY

# Time and memory of the imports alone: the interpreter is up before the clock starts.
PROGRAM = """
import json, time
began = time.perf_counter()
{imports}
seconds = time.perf_counter() - began
import psutil
print(json.dumps([seconds, psutil.Process().memory_info().rss / 2**20]))
"""


def measure(bench: Bench) -> None:
    """`import function_app` against the import of its two SDKs alone: `make bench NAME=import`.

    A new interpreter for each turn, the files in the page cache. Seconds of the import, and the
    process's resident set after it in MiB.
    """
    contenders = [
        Contender("import function_app", lambda: _turn("import function_app")),
        Contender(
            "import azure.functions, azure.durable_functions",
            lambda: _turn("import azure.functions, azure.durable_functions"),
        ),
    ]
    for contender in contenders:  # writes byte code, fills the page cache
        contender.measure()
    bench.compare(contenders, bench.rounds(9, 2))


def _turn(imports: str) -> Sample:
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(imports=imports)],
        cwd=REPOSITORY,
        check=True,
        stdout=subprocess.PIPE,
    )
    seconds, rss_mib = json.loads(answer.stdout.splitlines()[-1])
    return {"import s": seconds, "RSS MiB": rss_mib}
