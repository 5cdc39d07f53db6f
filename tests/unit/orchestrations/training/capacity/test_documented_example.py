"""The example in docs/capacity.md happens as the page says."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
import yaml

from handlers.platform.settings import APP_FOLDER
from orchestrations.configuration.queues import Flavor, Queue, Queues
from orchestrations.configuration.section import Section
from orchestrations.contracts.capacity import NodesWanted
from orchestrations.training.capacity import accounts
from tests.unit.orchestrations.training.capacity.examples import (
    START,
    Cluster,
    an_admission,
    waiting,
)

PAGE = (APP_FOLDER / "docs" / "capacity.md").read_text("utf-8")


def documented_queues() -> Queues:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    return Queues.model_validate(yaml.safe_load(text))


def test_the_example_happens_as_the_page_says() -> None:
    cluster = Cluster(an_admission(documented_queues()))
    options = (NodesWanted(flavor="spot", nodes=2),)
    for number, queue in enumerate(("vision", "speech")):
        for run in range(1, 5):
            since = START + timedelta(seconds=number * 10 + run)
            asked = waiting(f"{queue}-{run}", queue, since=since, pipeline=queue)
            seconds = 1800 if (queue, run) == ("vision", 1) else 3600
            cluster.ask(asked.model_copy(update={"options": options}), seconds)
    cluster.decide()
    order = re.findall(r"^\| `(\w+-\d)`, on 2 nodes", PAGE, re.MULTILINE)
    assert [run.run for run in cluster.document.admitted] == order

    ended = cluster.step()
    assert ended is not None
    assert ended.run == "vision-1"
    cost = accounts.price_of(2 * 1800, ended.price_per_node_hour)
    assert f"2 nodes x 0.5 h x {ended.price_per_node_hour:.2f} = {cost:.2f} USD" in PAGE
    cluster.decide()
    assert cluster.document.admitted[-1].run == "speech-2"


def test_every_key_is_on_the_page_with_its_default() -> None:
    for name, field in Queues.model_fields.items():
        if field.is_required():
            assert f"`{name}[]." in PAGE
            continue
        (shown,) = re.findall(rf"^\| `{name}` \| `?([^`|]+?)`? \|", PAGE, re.MULTILINE)
        default: Any = field.default
        text = default if isinstance(default, str | None) else f"{default:g}"
        assert shown == (text or "none")


@pytest.mark.parametrize(("name", "part"), [("flavors", Flavor), ("queues", Queue)])
def test_every_key_of_a_part_is_on_the_page(name: str, part: type[Section]) -> None:
    for key in part.model_fields:
        assert re.search(rf"`{name}\[\]\.{key}", PAGE), key
