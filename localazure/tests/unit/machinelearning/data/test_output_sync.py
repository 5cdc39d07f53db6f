from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localazure.machinelearning.data.output_sync import FileState, plan_sync

FILES = st.dictionaries(
    st.sampled_from(["a", "b/c", "d"]),
    st.builds(
        FileState, size=st.integers(0, 2), modified_ns=st.integers(0, 2), inode=st.integers(1, 2)
    ),
)


@given(synced=FILES, previous=FILES, current=FILES)
def test_the_last_plan_makes_the_blobs_equal(
    synced: dict[str, FileState],
    previous: dict[str, FileState],
    current: dict[str, FileState],
) -> None:
    uploads, deletions = plan_sync(synced=synced, previous=previous, current=current, is_final=True)
    blobs = {path: state for path, state in synced.items() if path not in deletions}
    blobs |= {path: current[path] for path in uploads}
    assert blobs == current


@given(synced=FILES, previous=FILES, current=FILES)
def test_a_file_that_changed_between_two_scans_is_uploaded_later(
    synced: dict[str, FileState],
    previous: dict[str, FileState],
    current: dict[str, FileState],
) -> None:
    uploads, deletions = plan_sync(
        synced=synced, previous=previous, current=current, is_final=False
    )
    for path in (*uploads, *deletions):
        assert previous.get(path) == current.get(path)
    assert not {path for path in uploads if synced.get(path) == current[path]}
    # A file that did not change between two scans is uploaded.
    again = plan_sync(synced=synced, previous=current, current=current, is_final=False)
    assert again == plan_sync(synced=synced, previous=current, current=current, is_final=True)


def test_a_file_that_was_replaced_by_one_of_the_same_size_and_time_is_uploaded() -> None:
    old, new = FileState(3, 7, 1), FileState(3, 7, 2)
    uploads, _ = plan_sync(
        synced={"a": old}, previous={"a": new}, current={"a": new}, is_final=False
    )
    assert uploads == ["a"]


@given(current=FILES)
def test_files_are_uploaded_in_the_order_in_which_they_were_written(
    current: dict[str, FileState],
) -> None:
    uploads, _ = plan_sync(synced={}, previous={}, current=current, is_final=True)
    written = [current[path].modified_ns for path in uploads]
    assert written == sorted(written)
