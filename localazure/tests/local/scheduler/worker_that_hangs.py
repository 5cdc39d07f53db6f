"""A worker whose activity never ends. Arguments: the scheduler's address, a file to create."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from durabletask.worker import TaskHubGrpcWorker


def hold(_: Any, _number: int) -> None:
    """Create the file, then hang."""
    Path(sys.argv[2]).touch()
    time.sleep(600)


if __name__ == "__main__":
    worker = TaskHubGrpcWorker(host_address=sys.argv[1])
    worker.add_activity(hold)
    worker.use_work_item_filters()
    worker.start()
    time.sleep(600)
