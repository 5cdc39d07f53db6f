"""The index of runs: pages and filters, compared with one request and with a database."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tempfile
import time
from collections.abc import Callable, Generator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from azure.storage.blob import BlobServiceClient, ContainerClient

from benchmarks import run_index_server
from benchmarks.harness import Bench, Sample
from benchmarks.list_blobs_server import serving
from benchmarks.run_index_server import ENDS, NEWEST, PAUSE, PIPELINES, metadata, run_key
from handlers.platform.run_index import list_runs

PAGE = 50
PIPELINE = "pipeline-3"
Query = Callable[[], int]


def measure(bench: Bench) -> None:
    """Pages of 50 runs, of an index of 1,000,000: `make bench NAME=runs-index`.

    A List Blobs server that computes its entries stands in for storage, so that the time is that
    of the app and of the server, without a network; the page is read by the code of GET /api/runs.
    The floors are one List Blobs request for as many entries through the SDK, which nothing that
    reads blobs can beat, and a table of as many runs in SQLite with an index for each query.

    * ms for the newest page of all pipelines; of one pipeline; of the failed runs of one.
    * ms for a page in the middle, and for the runs of one day, of one pipeline.
    """
    runs = bench.rounds(1_000_000, 20_000)
    with contextlib.ExitStack() as stack:
        many, few = (stack.enter_context(_container(count)) for count in (runs, 1_000))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        database = stack.enter_context(contextlib.closing(_database(folder, runs)))
        queries = {
            f"{runs:,} runs": _pages(many, runs),
            "1,000 runs": _pages(few, 1_000),
            "one List Blobs request": _one_request(many),
            f"SQLite, {runs:,} runs": _rows(database, runs),
        }
        contenders = {name: partial(_turn, each) for name, each in queries.items()}
        bench.compare(contenders, bench.rounds(9, 2))


@contextlib.contextmanager
def _container(runs: int) -> Generator[ContainerClient]:
    with (
        serving(runs, run_index_server.__name__) as url,
        BlobServiceClient(url) as service,
    ):
        yield service.get_container_client("landfall")


def _turn(queries: dict[str, Query]) -> Sample:
    taken: dict[str, float] = {}
    for name, query in queries.items():
        began = time.perf_counter()
        found = query()
        taken[f"{name} ms"] = (time.perf_counter() - began) * 1000
        assert found == PAGE, f"{name}: {found} of {PAGE} runs"
    return taken


def _pages(records: ContainerClient, runs: int) -> dict[str, Query]:
    each = runs // PIPELINES

    def page(**query: Any) -> Query:
        return lambda: len(list_runs(records, limit=PAGE, **query).runs)

    of_one = partial(page, pipeline=PIPELINE)
    # A range within the newest runs, so that an index of any size has it.
    day_ends = NEWEST - 10 * PAUSE
    queries = {
        "newest page": page(),
        "one pipeline": of_one(),
        "middle page": of_one(after=run_key(PIPELINE, each // 3)),
        "one day": of_one(created_from=day_ends - timedelta(days=1), created_to=day_ends),
    }
    if each * ENDS["failed"] // 100 >= PAGE:
        queries["failed"] = of_one(states=["failed"])
    return queries


def _one_request(records: ContainerClient) -> dict[str, Query]:
    def list_once(folder: str, start: str = "") -> int:
        options: dict[str, Any] = {"start_from": folder + start} if start else {}
        pages = records.list_blobs(
            name_starts_with=folder, include=["metadata"], results_per_page=PAGE, **options
        ).by_page()
        return sum(1 for _ in next(pages))

    everything = f"run-index/all/{PIPELINE}/"
    return {
        "newest page": lambda: list_once(everything),
        "one pipeline": lambda: list_once(everything),
        "middle page": lambda: list_once(everything, run_key(PIPELINE, 200)),
        "one day": lambda: list_once(everything, run_key(PIPELINE, 10)),
        "failed": lambda: list_once(f"run-index/failed/{PIPELINE}/"),
    }


def _database(folder: Path, runs: int) -> sqlite3.Connection:
    database = sqlite3.connect(folder / "runs.db", check_same_thread=False)
    database.execute("create table runs (pipeline text, state text, key text, shown text)")
    states = [state for state, share in ENDS.items() for _ in range(share)]
    database.executemany(
        "insert into runs values (?, ?, ?, ?)",
        (
            (pipeline, state, key, metadata(f"run-index/{state}/{pipeline}/{key}")["summary"])
            for pipeline in (f"pipeline-{each}" for each in range(PIPELINES))
            for number in range(runs // PIPELINES)
            for key, state in ((run_key(pipeline, number), states[number * 7 % 100]),)
        ),
    )
    for columns in ("key", "pipeline, key", "pipeline, state, key"):
        database.execute(f"create index by_{columns.replace(', ', '_')} on runs ({columns})")
    database.commit()
    return database


def _rows(database: sqlite3.Connection, runs: int) -> dict[str, Query]:
    def select(where: str, *values: str) -> int:
        query = f"select shown from runs where {where} order by key limit {PAGE}"  # noqa: S608 - of the lines below
        return len([json.loads(shown) for (shown,) in database.execute(query, values)])

    middle = run_key(PIPELINE, runs // PIPELINES // 3)
    return {
        "newest page": lambda: select("key > ''"),
        "one pipeline": lambda: select("pipeline = ?", PIPELINE),
        "middle page": lambda: select("pipeline = ? and key > ?", PIPELINE, middle),
        "one day": lambda: select(
            "pipeline = ? and key between ? and ?",
            PIPELINE,
            run_key(PIPELINE, 10),
            run_key(PIPELINE, 298),
        ),
        "failed": lambda: select("pipeline = ? and state = ?", PIPELINE, "failed"),
    }
