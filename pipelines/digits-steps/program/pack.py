"""Step 1: read the images that no earlier version had, and pack all of the manifest's.

In --shards, which all dataset versions share, each run leaves one file of the images that it was
the first to read, by their MD5. A shard is there whole or not at all.
"""

import argparse
import hashlib
import json
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = 8


def read(data: Path, path: str) -> np.ndarray:
    """The pixels of one image from 0 to 1, row by row."""
    image = Image.open(data / path).convert("L").resize((SIZE, SIZE))
    return np.asarray(image, np.float32).ravel() / 255


def save(target: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write a file that a crash leaves whole or not at all."""
    scratch = target.with_name(f".{target.name}.tmp")
    with scratch.open("wb") as file:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType] - its stubs miss mappings
    scratch.replace(target)


parser = argparse.ArgumentParser(description=__doc__)
for option in ("--manifest", "--data", "--shards", "--output-dir"):
    parser.add_argument(option, type=Path, required=True)
options = parser.parse_args()
lines = (options.manifest / "manifest.jsonl").read_text("utf-8").splitlines()
files = [json.loads(line) for line in lines]
known: dict[str, np.ndarray] = {}
for shard in sorted(options.shards.glob("*.npz")):
    known |= np.load(shard)
new = {}
for file in files:
    if file["md5"] in known or file["md5"] in new:
        continue
    content = (options.data / file["path"]).read_bytes()
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != file["md5"]:
        raise SystemExit(f"{file['path']} is not what the manifest says")
    new[file["md5"]] = read(options.data, file["path"])
if new:
    name = hashlib.sha256("".join(sorted(new)).encode()).hexdigest()[:16]
    save(options.shards / f"{name}.npz", new)
print(f"{len(files)} images, {len(new)} of them new")  # noqa: T201 - the job's log
images = known | new
save(
    options.output_dir / "images.npz",
    {
        "pixels": np.stack([images[file["md5"]] for file in files]),
        "labels": np.array([int(file["path"].split("/")[-2]) for file in files]),
        # By its content an image is held out in every dataset version.
        "held_out": np.array([int(file["md5"], 16) % 5 == 0 for file in files]),
    },
)
