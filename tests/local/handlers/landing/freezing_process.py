"""The app while it freezes a zone: the real orchestrator, under a virtual clock, and activities."""

from __future__ import annotations

from typing import Any

from handlers.platform.activity_adapter import functions
from orchestrations.contracts.datasets import Dataset
from orchestrations.landing.freezing import freeze, freezing
from tests.local.handlers.zone_on_storage import Zone
from tests.unit.orchestrations.driver import Driver


class Process:
    """The app: something can happen `before` an activity, such as its death.

    With `twice` each activity is executed again, as after a lost answer.
    """

    def __init__(self, zone: Zone, *, twice: bool = False) -> None:
        self.zone = zone
        self.executions = 2 if twice else 1
        self.activities = {each.__name__: each for each in functions(zone.clients)}
        self.before: dict[str, Any] = {}
        self.driver = Driver(
            activities={name: self._run(name) for name in self.activities},
            orchestrators={"landing": self._landing, "freezing": freezing},
        )

    def _run(self, name: str) -> Any:
        def run(given: Any) -> Any:
            if name in self.before:
                self.before.pop(name)()
            results = [self.activities[name](given) for _ in range(self.executions)]
            assert all(each == results[0] for each in results)
            return results[0]

        return run

    def _landing(self, context: Any) -> Any:
        dataset, _ = yield from freeze(context, self.zone.pipeline.name)
        return None if dataset is None else dataset.to_dict()

    def freeze(self) -> Dataset:
        dataset = self.try_to_freeze()
        assert dataset is not None, "the zone was overtaken"
        return dataset

    def try_to_freeze(self) -> Dataset | None:
        self.zone.deploy()
        instance = self.driver.start("landing", f"landing-{self.zone.pipeline.name}", None)
        self.driver.run()
        if instance.error is not None:
            raise RuntimeError(instance.error)
        records = self.zone.clients.records
        assert not list(records.list_blob_names(name_starts_with="freezing/"))
        return None if instance.output is None else Dataset.from_dict(instance.output)
