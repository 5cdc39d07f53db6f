from __future__ import annotations

import datetime as dt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.trainers.given_settings import settings_of
from trainers.errors import LaunchInvalid
from trainers.parallelism.mesh import RankCoordinates, rank_coordinates
from trainers.parallelism.world import World

COUNT = st.integers(1, 4)


def coordinates_of_all(stages: int, data_ranks: int, tensor_ranks: int) -> list[RankCoordinates]:
    size = stages * data_ranks * tensor_ranks
    return [
        RankCoordinates.of_rank(rank, size, stages=stages, tensor_ranks=tensor_ranks)
        for rank in range(size)
    ]


def test_parts_of_a_layer_are_neighbours_and_stages_are_far_apart() -> None:
    all_ranks = coordinates_of_all(2, 2, 2)
    assert [coordinates.tensor_rank for coordinates in all_ranks] == [0, 1, 0, 1, 0, 1, 0, 1]
    assert [coordinates.data_rank for coordinates in all_ranks] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert [coordinates.stage for coordinates in all_ranks] == [0, 0, 0, 0, 1, 1, 1, 1]


@given(COUNT, COUNT, COUNT, st.integers(0, 50))
def test_every_image_is_counted_once_and_seen_by_every_part_of_the_network(
    stages: int, data_ranks: int, tensor_ranks: int, images: int
) -> None:
    all_ranks = coordinates_of_all(stages, data_ranks, tensor_ranks)
    assert len(
        {
            (coordinates.stage, coordinates.data_rank, coordinates.tensor_rank)
            for coordinates in all_ranks
        }
    ) == len(all_ranks)
    batch = torch.arange(images)
    counted = [coordinates.share(batch) for coordinates in all_ranks if coordinates.is_counted]
    assert sorted(torch.cat(counted).tolist()) == batch.tolist()
    for coordinates in all_ranks:
        alike = [other for other in all_ranks if other.data_rank == coordinates.data_rank]
        assert len(alike) == stages * tensor_ranks
    assert sum(coordinates.is_first_of_stage for coordinates in all_ranks) == stages
    # Parts of one layer draw the same numbers, all others different ones.
    assert len({coordinates.random_stream for coordinates in all_ranks}) == stages * data_ranks


@given(st.integers(1, 5), st.integers(1, 40), st.integers(1, 6))
def test_every_rank_has_as_many_passes_and_each_item_is_in_one(
    ranks: int, items: int, at_once: int
) -> None:
    of_ranks = [
        RankCoordinates(data_rank=rank, data_ranks=ranks).passes(items, at_once=at_once)
        for rank in range(ranks)
    ]
    assert len({len(passes) for passes in of_ranks}) == 1
    assert max(len(numbers) for numbers in of_ranks[0]) <= at_once
    numbers = [number for passes in of_ranks for each in passes for number in each.tolist()]
    assert sorted(numbers) == list(range(items))


def test_plain_ranks_are_data_ranks() -> None:
    coordinates = RankCoordinates.of_rank(3, 5, stages=1, tensor_ranks=1)
    assert (coordinates.data_rank, coordinates.data_ranks, coordinates.random_stream) == (3, 5, 3)
    assert (coordinates.ranks_with_loss, coordinates.is_counted) == (5, True)


@pytest.mark.parametrize(
    ("size", "options", "said"),
    [
        (2, "--tensor-parallel 3", "start a multiple of 3 ranks"),
        (4, "--tensor-parallel 2", "add --parallel fsdp"),
        (2, "--pipeline-parallel 2 --accumulate 2", "--microbatches"),
        (2, "--pipeline-parallel 2 --compile eager", "leave one out"),
        (2, "--pipeline-parallel 2 --microbatches 1", "as many or more"),
        (2, "--pipeline-parallel 2 --microbatches 5", "does not divide"),
        (4, "--pipeline-parallel 2 --batch-size 4", "into 2 ranks times 4"),
        (4, "--batch-size 3", "less than one image for each of 4 ranks"),
        (2, "--batch-size 16 --accumulate 9", "2 ranks and 9 passes"),
    ],
)
def test_what_does_not_fit_is_told(size: int, options: str, said: str) -> None:
    settings = settings_of("--batch-size", "16", *options.split())
    world = World(size=size, device=torch.device("cpu"), timeout=dt.timedelta(seconds=1))
    with pytest.raises(LaunchInvalid, match=said):
        rank_coordinates(settings, world)
