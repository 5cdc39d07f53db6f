from __future__ import annotations

import pytest

from trainers.reports.speed import Speed


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_images_and_waits_are_counted_from_the_start() -> None:
    clock = Clock()
    speed = Speed(devices=4, clock=clock)
    speed.start()
    for step_seconds in (1.0, 3.0):
        with speed.waiting_for_data():
            clock.now += 0.5
        clock.now += step_seconds
        speed.count(80)
    assert speed.report() == {
        "devices": 4,
        "train_seconds": 5.0,
        "images_per_second": 32.0,
        "images_per_second_per_device": 8.0,
        "data_wait_seconds": 1.0,
        "data_wait_fraction": 0.2,
    }


def test_the_speed_of_late_is_that_since_it_was_asked_for() -> None:
    clock = Clock()
    speed = Speed(devices=1, clock=clock)
    speed.start()
    clock.now += 2
    speed.count(10)
    assert speed.images_per_second_since_asked() == pytest.approx(5)
    clock.now += 1
    speed.count(10)
    assert speed.images_per_second_since_asked() == pytest.approx(10)


def test_a_run_of_no_step_has_no_speed() -> None:
    assert Speed(devices=2).report()["images_per_second"] == 0
