"""The size of the deployed package, and the time of its import at a cold start."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from functools import partial
from pathlib import Path

from benchmarks.harness import Bench, Sample
from tests.unit.deployment.package import ROOT, build_package, packaged_files, repository_files

# The time and memory of the imports alone, without the start of the interpreter.
PROGRAM = """
import json, sys, time
sys.path.insert(0, ".")
began = time.perf_counter()
{imports}
seconds = time.perf_counter() - began
import psutil
print(json.dumps([seconds, psutil.Process().memory_info().rss / 2**20]))
"""


def measure(bench: Bench) -> None:
    """The package that azd deploys, its size and its import: `make bench NAME=import`.

    1. Number of files, MiB and zipped MiB of the package, compared with the whole repository. The
       packages of requirements.txt, which Azure installs, are not counted.
    2. `import function_app` in the package's folder, compared with the import of its two SDKs
       alone: seconds, and the process's resident set after it in MiB. Each turn is a new
       interpreter, with the files in the page cache.
    """
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder)
        build_package(package)
        sizes = {
            "package": lambda: _size(packaged_files(), package / "package.zip"),
            "repository": lambda: _size(repository_files(), package / "all.zip"),
        }
        bench.compare(sizes, 1)
        imports = ("import function_app", "import azure.functions, azure.durable_functions")
        contenders = {each: partial(_turn, each, package) for each in imports}
        for turn in contenders.values():  # writes bytecode, fills the page cache
            turn()
        bench.compare(contenders, bench.rounds(9, 2))


def _size(files: list[str], archive: Path) -> Sample:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as written:
        for each in files:
            written.write(ROOT / each, each)
    total = sum((ROOT / each).stat().st_size for each in files)
    return {
        "files": float(len(files)),
        "MiB": total / 2**20,
        "zipped MiB": archive.stat().st_size / 2**20,
    }


def _turn(imports: str, package: Path) -> Sample:
    answer = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM.format(imports=imports)],
        cwd=package,
        check=True,
        stdout=subprocess.PIPE,
    )
    seconds, rss_mib = json.loads(answer.stdout.splitlines()[-1])
    return {"import s": seconds, "RSS MiB": rss_mib}
