"""A data check for images: decodable, not blank, large enough, no near duplicates.

In: --manifest (folder of manifest.jsonl), --data.
Out, in --output-dir: report.html, then checks.json.
A near duplicate has the pattern of light and dark of another image, on a grid of 9 by 8.
"""

import argparse
import html
import json
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image

EXAMPLES = 20
NAMES = {
    "broken": "cannot be decoded",
    "blank": "all pixels alike",
    "small": "fewer pixels than --pixels-at-least",
    "near_duplicates": "looks like another image",
}


def look(path: Path, pixels_at_least: int) -> tuple[str | None, bytes]:
    """What is wrong with an image, and its pattern."""
    try:
        with Image.open(path) as image:
            grey = image.convert("L")
    except (OSError, Image.DecompressionBombError):
        return "broken", b""
    if min(grey.size) < pixels_at_least:
        return "small", b""
    if np.ptp(np.asarray(grey)) == 0:
        return "blank", b""
    grid = np.asarray(grey.resize((9, 8)), np.int16)
    return None, np.packbits(grid[:, 1:] > grid[:, :-1]).tobytes()


parser = argparse.ArgumentParser(description=__doc__)
for option in ("--manifest", "--data", "--output-dir"):
    parser.add_argument(option, type=Path, required=True)
parser.add_argument("--pixels-at-least", type=int, default=32, help="of width and of height")
for name in NAMES:
    flag = f"--{name.replace('_', '-')}-at-most"
    parser.add_argument(flag, type=float, default=0.0, help="share of the images")
options = parser.parse_args()

lines = (options.manifest / "manifest.jsonl").read_text("utf-8").splitlines()
files = [json.loads(line) for line in lines]
found: dict[str, list[str]] = {name: [] for name in NAMES}
patterns = Counter[bytes]()
for entry in files:
    # `file` is the copy of the blob, if dataset.freeze is copy
    wrong, pattern = look(
        options.data / (entry.get("file") or entry["path"]), options.pixels_at_least
    )
    if wrong is None and patterns[pattern]:
        wrong = "near_duplicates"
    if pattern:
        patterns[pattern] += 1
    if wrong is not None:
        found[wrong].append(entry["path"])
checks = []
for name, paths in found.items():
    share, limit = len(paths) / len(files), getattr(options, f"{name}_at_most")
    told = f"{len(paths)} of {len(files)} images: {', '.join(paths[:3])}" if paths else ""
    rule = {"name": name, "passed": share <= limit, "value": share, "limit": limit}
    checks.append({**rule, "message": told[:300]})
rows = "".join(
    f"<tr><td>{name}<td>{NAMES[name]}<td>{len(paths)}<td>{html.escape(', '.join(paths[:EXAMPLES]))}"
    for name, paths in found.items()
)
options.output_dir.mkdir(parents=True, exist_ok=True)
(options.output_dir / "report.html").write_text(
    f"<!doctype html><meta charset=utf-8><title>Data check</title><h1>{len(files)} images</h1>"
    f"<table border=1><tr><th>check<th>meaning<th>images<th>the first of them{rows}</table>",
    "utf-8",
)
verdict = {"passed": all(it["passed"] for it in checks), "checks": checks, "report": "report.html"}
(options.output_dir / "checks.json").write_text(json.dumps(verdict), "utf-8")  # last: all is there
