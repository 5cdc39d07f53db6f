"""Reads and validates `queues.yml`, in the folder of the pipelines."""

from __future__ import annotations

from pathlib import Path

from handlers.platform.configuration.located_yaml import LocatedYaml, read_text
from orchestrations.configuration.queues import Queues
from orchestrations.errors import InvalidQueues

QUEUES_FILE = "queues.yml"


def load_queues(folder: Path) -> Queues | None:
    """The queues of a folder of pipelines; None if it has no `queues.yml`.

    Raises:
        InvalidQueues: the file is unreadable or breaks the schema; names file, line, key and value.
    """
    file = folder / QUEUES_FILE
    if not file.exists():
        return None
    text = read_text(file, invalid=InvalidQueues)
    shape = "it is a mapping with the keys 'flavors' and 'queues'"
    return LocatedYaml.parse(file, text, shape=shape, invalid=InvalidQueues).validate(Queues)
