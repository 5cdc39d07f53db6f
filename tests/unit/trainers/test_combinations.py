from __future__ import annotations

import pytest

from trainers.combinations import check_options
from trainers.errors import LaunchInvalid
from trainers.settings import parse_settings

REQUIRED = ["--output-dir", "o", "--checkpoint-dir", "c"]


@pytest.mark.parametrize(
    ("options", "to_change"),
    [
        ("--warm-up-epochs 11 --epochs 10", "lower it"),
        ("--shift-pixels 8 --image-size 8", "0 for none"),
        ("--keep-gathered", "add --parallel fsdp"),
        ("--decode-threads 4 --dataset coco", "--dataset shards"),
        ("--step-timeout-seconds 60 --peer-timeout-seconds 60", "lower the one"),
        ("--momentum 0.5 --optimizer adamw", "leave it out with adamw"),
        ("--optimizer adamw --deepspeed x", "use sgd"),
        ("--decay-epochs 3", "give both or neither"),
        ("--decay-epochs 30 --schedule step --epochs 30", "lower it"),
        ("--compile magic", "inductor"),
        ("--microbatches 4", "add --pipeline-parallel"),
        ("--pipeline-schedule 1f1b", "add --pipeline-parallel"),
    ],
)
def test_options_that_make_no_sense_together_say_what_to_change(
    options: str, to_change: str
) -> None:
    settings = parse_settings("", [*REQUIRED, *options.split()])
    with pytest.raises(LaunchInvalid, match=to_change) as caught:
        check_options(settings, ranks=2)
    assert options.split(maxsplit=1)[0] in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--warm-up-epochs 10 --epochs 10",
        "--shift-pixels 7 --image-size 8",
        "--keep-gathered --parallel fsdp",
        "--decode-threads 4 --dataset shards",
        "--decode-threads 4 --dataset mine.trees:dataset",
        "--step-timeout-seconds 59 --peer-timeout-seconds 60",
        "--optimizer mine.trees:optimizer --schedule constant --label-smoothing 0.1",
        "--schedule step --decay-epochs 30,60,80 --epochs 90 --momentum 0",
        "--compile aot_eager",
        "--microbatches 4 --pipeline-schedule 1f1b --pipeline-parallel 2",
    ],
)
def test_others_do(options: str) -> None:
    check_options(parse_settings("", [*REQUIRED, *options.split()]), ranks=2)


def test_a_rank_alone_has_no_peers_to_lose_patience() -> None:
    options = ["--step-timeout-seconds", "600", "--peer-timeout-seconds", "60"]
    check_options(parse_settings("", [*REQUIRED, *options]), ranks=1)
