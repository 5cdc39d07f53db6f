from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from orchestrations.capacity.ranking import Measurement, rank
from orchestrations.contracts.jobs import TrainingSpeed
from orchestrations.contracts.run_records import UsedCompute
from orchestrations.pipeline import ComputeOption

ONE_GPU, FOUR_GPUS = "Standard_NC24ads_A100_v4", "Standard_NC96ads_A100_v4"
WIDE = ComputeOption(cluster="wide", size=ONE_GPU, nodes=4)
TALL = ComputeOption(cluster="tall", size=FOUR_GPUS, nodes=1)


def measured(option: ComputeOption, images_per_second: float, devices: int) -> Measurement:
    return Measurement(
        UsedCompute(
            cluster=option.cluster, size=option.size, priority=option.priority, nodes=option.nodes
        ),
        TrainingSpeed(images_per_second=images_per_second, devices=devices),
    )


def names(options: Sequence[ComputeOption]) -> list[str]:
    return [each.cluster for each in options]


def test_a_larger_node_comes_before_more_nodes_that_wait_for_each_other() -> None:
    runs = [measured(TALL, 4000, 4), measured(WIDE, 2000, 4)]
    ranked = rank([WIDE, TALL], runs, minimum_efficiency=0.8)
    assert ranked.options == (TALL, WIDE)
    assert ranked.reason == (
        "tall comes before wide: a device of 4 nodes of Standard_NC24ads_A100_v4 trains "
        "500 images/s (1 run), 50% of what one of 1 node of Standard_NC96ads_A100_v4 trains "
        "1,000 images/s (1 run); 80% are asked for"
    )


def test_more_nodes_that_pay_keep_their_place() -> None:
    runs = [measured(TALL, 4000, 4), measured(WIDE, 3200, 4)]
    ranked = rank([WIDE, TALL], runs, minimum_efficiency=0.8)
    assert ranked.options == (WIDE, TALL)
    assert ranked.reason is None


def test_one_slow_run_is_outvoted_by_the_others() -> None:
    wide = [measured(WIDE, speed, 4) for speed in (3900, 400, 3900)]
    ranked = rank([WIDE, TALL], [measured(TALL, 4000, 4), *wide], minimum_efficiency=0.8)
    assert ranked.options == (WIDE, TALL)


def test_speeds_of_another_number_of_nodes_or_another_size_say_nothing() -> None:
    fewer = WIDE.model_copy(update={"nodes": 2})
    runs = [measured(TALL, 4000, 4), measured(fewer, 400, 2)]
    assert rank([WIDE, TALL], runs, minimum_efficiency=1).options == (WIDE, TALL)


def test_the_size_is_compared_as_azure_does_without_its_case() -> None:
    shouted = WIDE.model_copy(update={"size": WIDE.size.upper()})
    runs = [measured(TALL, 4000, 4), measured(shouted, 400, 4)]
    assert rank([WIDE, TALL], runs, minimum_efficiency=0.5).options == (TALL, WIDE)


options = st.lists(
    st.builds(
        ComputeOption,
        cluster=st.sampled_from(["a1", "b2", "c3"]),
        size=st.sampled_from(["small", "large"]),
        nodes=st.integers(1, 4),
    ),
    min_size=1,
    max_size=6,
)
runs = st.lists(
    st.builds(
        measured,
        st.builds(
            ComputeOption,
            cluster=st.just("a1"),
            size=st.sampled_from(["small", "large"]),
            nodes=st.integers(1, 4),
        ),
        st.floats(1, 1000),
        st.integers(1, 8),
    ),
    max_size=12,
)
efficiencies = st.floats(0.01, 1)


@given(options, runs, efficiencies)
def test_no_option_is_lost_or_made(
    given_options: list[ComputeOption], measurements: list[Measurement], efficiency: float
) -> None:
    ranked = rank(given_options, measurements, minimum_efficiency=efficiency)
    by_name = [sorted(map(str, each)) for each in (given_options, ranked.options)]
    assert by_name[0] == by_name[1]
    assert (list(ranked.options) == given_options) == (ranked.reason is None)


@given(options, runs, efficiencies)
def test_no_option_is_before_one_with_fewer_nodes_that_it_is_too_slow_for(
    given_options: list[ComputeOption], measurements: list[Measurement], efficiency: float
) -> None:
    ranked = rank(given_options, measurements, minimum_efficiency=efficiency).options
    for place, larger in enumerate(ranked):
        for smaller in ranked[place + 1 :]:
            if smaller.nodes < larger.nodes:
                pair = rank([larger, smaller], measurements, minimum_efficiency=efficiency)
                assert pair.options == (larger, smaller)


@given(options, runs, efficiencies)
def test_an_order_by_efficiency_stays_as_it_is(
    given_options: list[ComputeOption], measurements: list[Measurement], efficiency: float
) -> None:
    ranked = rank(given_options, measurements, minimum_efficiency=efficiency)
    again = rank(ranked.options, measurements, minimum_efficiency=efficiency)
    assert (again.options, again.reason) == (ranked.options, None)


@given(options, efficiencies)
def test_without_a_measurement_the_pipelines_order_holds(
    given_options: list[ComputeOption], efficiency: float
) -> None:
    ranked = rank(given_options, [], minimum_efficiency=efficiency)
    assert (list(ranked.options), ranked.reason) == (given_options, None)
