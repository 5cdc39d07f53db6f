"""The rules of `checks` and `settle.minimum_change`, for a difference of two manifests. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrations.configuration.checks import Bounds, Checks, MinimumChange
from orchestrations.contracts.difference import Difference

# An alert has room for so many labels; the difference has them all.
_LABELS_TOLD = 5


def failed_checks(checks: Checks, difference: Difference) -> tuple[str, ...]:
    """A sentence with the numbers for each rule that the later version breaks."""
    return tuple(_failures(checks, difference))


def _failures(checks: Checks, difference: Difference) -> Iterator[str]:
    files, before = difference.after.blobs, difference.before.blobs
    duplicates, changed = difference.duplicates.blobs, difference.changed.blobs
    copies, rewritten = _share(duplicates, files), _share(changed, before)
    for key, value, told in (
        ("files_at_least", files, f"{files} files"),
        ("files_at_most", files, f"{files} files"),
        ("duplicates_at_most", copies, f"{duplicates} of {files} files twice ({copies:.1%})"),
        (
            "changed_at_most",
            rewritten,
            f"other content in {changed} of {before} files ({rewritten:.1%})",
        ),
    ):
        limit: float | None = getattr(checks, key)
        if limit is None:
            continue
        if value < limit if key.endswith("_at_least") else value > limit:
            yield f"checks.{key} is {limit:g}, and the batch has {told}"
    if checks.bytes_of_a_file is not None:
        for blob in (difference.smallest, difference.largest):
            broken = None if blob is None else checks.bytes_of_a_file.excludes(blob.bytes)
            if blob is not None and broken is not None:
                yield f"checks.bytes_of_a_file: {blob.path} has {blob.bytes} bytes, not {broken}"
    if checks.share_of_each_label is not None:
        yield from _unbalanced(checks.share_of_each_label, difference)


def _share(blobs: int, of: int) -> float:
    return blobs / of if of else 0.0


def _unbalanced(bounds: Bounds, difference: Difference) -> Iterator[str]:
    files, labels = difference.after.blobs, difference.labels
    if labels.left_out:
        total = len(labels.groups) + labels.left_out
        yield f"checks.share_of_each_label: there are {total} labels, too many to be checked"
        return
    broken = [
        f"{group.name!r} has {group.after} of {files} files ({share:.1%}), not {bound}"
        for group in labels.groups
        for share in [_share(group.after, files)]
        for bound in [bounds.excludes(share)]
        if bound is not None
    ]
    if broken:
        more = len(broken) - _LABELS_TOLD
        told = "; ".join(broken[:_LABELS_TOLD])
        yield f"checks.share_of_each_label: {told}" + (f"; and {more} more" if more > 0 else "")


def too_little(minimum: MinimumChange, difference: Difference) -> str | None:
    """What changed, with the numbers, if that is less than the minimum; None if it is enough.

    The first batch is enough.
    """
    if difference.base is None:
        return None
    differing = difference.differing
    share = _share(differing.blobs, difference.before.blobs)
    asked = [
        (needed, actual, told)
        for needed, actual, told in (
            (minimum.files, differing.blobs, f"{differing.blobs} of {minimum.files} files"),
            (minimum.bytes, differing.bytes, f"{differing.bytes} of {minimum.bytes} bytes"),
            (minimum.share, share, f"{share:.2%} of {minimum.share or 0:.2%} of the files"),
        )
        if needed is not None
    ]
    if any(actual >= needed for needed, actual, _ in asked):
        return None
    told = " and ".join(told for _, _, told in asked)
    return f"{told} have changed since the last training (settle.minimum_change)"
