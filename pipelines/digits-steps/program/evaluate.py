"""Step 3: score the model and the champion on the held-out images; leave both where Landfall reads.

--champion is the folder of the champion's model, or the word none.
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file


def accuracy(model: Path, pixels: np.ndarray, labels: np.ndarray) -> float:
    """The part of the images whose nearest mean is that of their label."""
    means = load_file(model / "model.safetensors")
    names = np.array([int(name) for name in means])
    differences = pixels[:, None, :] - np.stack([*means.values()])[None]
    return float((names[np.square(differences).sum(axis=2).argmin(axis=1)] == labels).mean())


parser = argparse.ArgumentParser(description=__doc__)
for option in ("--packed", "--model", "--output-dir"):
    parser.add_argument(option, type=Path, required=True)
parser.add_argument("--champion", required=True)
options = parser.parse_args()
with np.load(options.packed / "images.npz") as packed:
    held_out = packed["held_out"]
    pixels, labels = packed["pixels"][held_out], packed["labels"][held_out]
metrics = {"accuracy": accuracy(options.model, pixels, labels)}
if options.champion != "none":
    metrics["champion_accuracy"] = accuracy(Path(options.champion), pixels, labels)
shutil.copytree(options.model, options.output_dir / "model", dirs_exist_ok=True)
(options.output_dir / "metrics.json").write_text(json.dumps(metrics))  # last: all else is there
