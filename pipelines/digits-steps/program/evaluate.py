"""Step 3: score the model and the champion on the held-out images; leave both where Landfall reads.

--champion is the folder of the champion's model, or the word none.
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file


def right(model: Path, pixels: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Whether the nearest mean of each image is that of its label."""
    means = load_file(model / "model.safetensors")
    names = np.array([int(name) for name in means])
    differences = pixels[:, None, :] - np.stack([*means.values()])[None]
    return names[np.square(differences).sum(axis=2).argmin(axis=1)] == labels


def count(ours: np.ndarray, champions: np.ndarray) -> dict[str, int]:
    """How many images each of the two models gets right."""
    kinds = ("both_wrong", "only_champion", "only_challenger", "both_right")
    return dict(zip(kinds, np.bincount(2 * ours + champions, minlength=4).tolist(), strict=True))


parser = argparse.ArgumentParser(description=__doc__)
for option in ("--packed", "--model", "--output-dir"):
    parser.add_argument(option, type=Path, required=True)
parser.add_argument("--champion", required=True)
options = parser.parse_args()
with np.load(options.packed / "images.npz") as packed:
    held_out = packed["held_out"]
    pixels, labels = packed["pixels"][held_out], packed["labels"][held_out]
ours = right(options.model, pixels, labels)
metrics = {"accuracy": float(ours.mean())}
if options.champion != "none":
    champions = right(Path(options.champion), pixels, labels)
    metrics["champion_accuracy"] = float(champions.mean())
    slices = {f"label:{it}": count(ours[labels == it], champions[labels == it]) for it in {*labels}}
    comparison = {"metric": "accuracy", "whole": count(ours, champions), "slices": slices}
    (options.output_dir / "comparison.json").write_text(json.dumps(comparison))
shutil.copytree(options.model, options.output_dir / "model", dirs_exist_ok=True)
(options.output_dir / "metrics.json").write_text(json.dumps(metrics))  # last: all else is there
