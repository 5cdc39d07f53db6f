from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from handlers.landing.differences import difference_of
from orchestrations.configuration.pipeline import Source
from orchestrations.contracts.difference import Amount, Difference
from orchestrations.contracts.manifest import encode_line

SOURCE = Source(container="data", partitions="day=%Y-%m-%d")


class Blob(NamedTuple):
    content: int
    has_md5: bool = True
    writes: int = 0

    @property
    def size(self) -> int:
        return self.content % 3

    @property
    def identity(self) -> object:
        return (self.content, None) if self.has_md5 else (self.size, self.content, self.writes)

    def line(self, path: str) -> bytes:
        md5 = f"{self.content:032x}" if self.has_md5 else None
        return encode_line(path, self.size, md5, f'"{self.content}-{self.writes}"').encode()


BLOBS = st.builds(Blob, st.integers(0, 4), st.sampled_from([True, True, True, False]))
PATHS = st.sampled_from(
    [f"{folder}{name}" for folder in ("", "a/cat/", "a/dog/", "é\\/") for name in "xy\"z'"]
    + ["day=2026-11-01/cat/1", "day=2026-11-02/cat/1"]
)
VERSIONS = st.dictionaries(PATHS, BLOBS, max_size=12)


def chunks(blobs: Mapping[str, Blob], sizes: list[int]) -> Iterator[bytes]:
    lines = [blobs[path].line(path) for path in sorted(blobs)]
    for size in [*sizes, len(lines)]:
        yield b"".join(lines[:size])
        lines = lines[size:]


def amount(blobs: list[Blob]) -> Amount:
    return Amount(blobs=len(blobs), bytes=sum(blob.size for blob in blobs))


@given(VERSIONS, VERSIONS, st.sets(PATHS), *[st.lists(st.integers(0, 5), max_size=4)] * 2)
def test_the_counts_are_those_of_a_comparison_in_memory(
    before: dict[str, Blob],
    changes: dict[str, Blob],
    gone: set[str],
    old_cuts: list[int],
    new_cuts: list[int],
) -> None:
    rewritten = {path: blob._replace(writes=1) for path, blob in before.items()}
    after = {path: blob for path, blob in {**rewritten, **changes}.items() if path not in gone}
    base = ("1", chunks(before, old_cuts))
    found = difference_of(SOURCE, base, "2", chunks(after, new_cuts))

    both = before.keys() & after.keys()
    changed = {path for path in both if before[path].identity != after[path].identity}
    kept = {after[path].content for path in both - changed if after[path].has_md5}
    added = [after[path] for path in after.keys() - before.keys()]
    removed = [before[path] for path in before.keys() - after.keys()]
    moved = Counter(it.content for it in added if it.has_md5) & Counter(
        it.content for it in removed if it.has_md5
    )
    contents = Counter(it.content for it in after.values() if it.has_md5)

    moves = amount([Blob(each) for each in moved.elements()])
    assert found.before == amount([*before.values()])
    assert found.after == amount([*after.values()])
    assert found.changed == amount([after[path] for path in changed])
    assert found.moved == moves
    for kind, blobs in (("added", added), ("removed", removed)):
        whole: Amount = getattr(found, kind)
        assert Amount(blobs=whole.blobs + moves.blobs, bytes=whole.bytes + moves.bytes) == (
            amount(blobs)
        )
    assert found.duplicates == amount(
        [Blob(each) for each, times in contents.items() for _ in range(times - 1)]
    )
    old_contents = [it.content for it in added if it.has_md5 and it.content in kept]
    assert found.duplicates_of_base.blobs == len(old_contents) - sum(
        times for content, times in moved.items() if content in kept
    )
    assert found.without_md5 == sum(not it.has_md5 for it in after.values())
    assert sum(found.sizes.values()) == len(after)
    sizes = [it.size for it in after.values()]
    ends = [it and it.bytes for it in (found.smallest, found.largest)]
    assert ends == ([min(sizes), max(sizes)] if sizes else [None, None])
    labels = {it.name: (it.before, it.after) for it in found.labels.groups}
    for name in ("cat", "dog"):
        counts = tuple(sum(f"/{name}/" in path for path in blobs) for blobs in (before, after))
        assert labels.get(name, (0, 0)) == counts
    days = {path[4:14] for path in {*before, *after} if path.startswith("day=")}
    assert {it.name for it in found.partitions.groups} == days
    assert Difference.from_dict(found.to_dict()) == found


def test_the_first_version_is_added() -> None:
    found = difference_of(SOURCE, None, "1", [Blob(1).line("a/x"), Blob(1).line("b/x")])
    assert (found.base, found.before.blobs, found.added.blobs) == (None, 0, 2)
    assert (found.duplicates.blobs, found.examples) == (1, {"added": ("a/x", "b/x")})
    assert [(it.name, it.after) for it in found.folders.groups] == [("a", 1), ("b", 1)]
