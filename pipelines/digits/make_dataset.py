# ruff: noqa: INP001, T201  # a program in its pipeline's folder, not a package; it prints
"""Write scikit-learn's 1,797 handwritten digits as PNG files under labelled folders.

    python pipelines/digits/make_dataset.py DIR [--only 0,1,2] [--limit N] [--manifest DIR]

Writes DIR/<label>/<number>.png: 8x8 pixels, grey; the number is the image's place in
scikit-learn's order, four digits, so names are the same each time. `--limit` takes the first N.
`--manifest` names the folder for a manifest.jsonl of the files, for a training without Landfall.

Source: scikit-learn's `load_digits`, the test part of "Optical Recognition of Handwritten Digits"
(E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998). Grey levels 0 to 16.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

_LEVELS = 16
_PIXELS = 8


def make_dataset(folder: Path, *, labels: frozenset[str] | None = None, limit: int | None) -> int:
    """Write the digits with one of `labels` (None: all) among the first `limit` (None: all).

    Returns:
        The number of files written.
    """
    rows, targets = _read_digits()
    pixels = np.rint(rows * (255 / _LEVELS)).astype(np.uint8).reshape(-1, _PIXELS, _PIXELS)
    written = 0
    for number, (image, target) in enumerate(zip(pixels[:limit], targets, strict=False)):
        label = str(target)
        if labels is not None and label not in labels:
            continue
        path = folder / label / f"{number:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
        written += 1
    return written


def _read_digits() -> tuple[np.ndarray, np.ndarray]:
    """Rows of 64 grey levels, and their labels, from the file that `load_digits` reads.

    The package is not imported: that takes 2 s of processor time.
    """
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("scikit-learn has the digits: pip install scikit-learn")
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    return table[:, :-1], table[:, -1]


def write_manifest(folder: Path, manifest: Path) -> None:
    """Write manifest.jsonl of the images in `folder` to the folder `manifest`, sorted by path.

    Source: docs/architecture.md, "What a dataset version is".
    """
    lines: list[str] = []
    for path in sorted(folder.glob("*/*.png")):
        content = path.read_bytes()
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        entry = {"path": path.relative_to(folder).as_posix(), "size": len(content), "md5": md5}
        lines.append(json.dumps({**entry, "etag": None}) + "\n")
    manifest.mkdir(parents=True, exist_ok=True)
    (manifest / "manifest.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", metavar="LABELS", help="comma-separated digits")
    parser.add_argument("--limit", type=int, metavar="N")
    parser.add_argument("--manifest", type=Path, metavar="DIR")
    options = parser.parse_args()
    only = frozenset(options.only.split(",")) if options.only else None
    count = make_dataset(options.folder, labels=only, limit=options.limit)
    if options.manifest is not None:
        write_manifest(options.folder, options.manifest)
    print(f"{count} images in {options.folder}")
