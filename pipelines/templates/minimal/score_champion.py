"""Score the model in service on new files: the job of `champion_check` for this folder's train.py.

In: --manifest (folder of manifest.jsonl with the new files), --data, --champion (a model folder).
Out, in --output-dir: metrics.json with the metric of the gate. The model has seen none of the
files, so all of them count, not only those that training would hold out.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.numpy import load_file

SIZE = 16  # as in train.py

parser = argparse.ArgumentParser(description=__doc__)
for option in ("--manifest", "--data", "--champion", "--output-dir"):
    parser.add_argument(option, type=Path, required=True)
options = parser.parse_args()
model = load_file(options.champion / "model.safetensors")
right = []
for line in (options.manifest / "manifest.jsonl").read_text("utf-8").splitlines():
    entry = json.loads(line)
    # `file` is the copy of the blob, if dataset.freeze is copy
    with Image.open(options.data / (entry.get("file") or entry["path"])) as image:
        pixels = np.asarray(image.convert("L").resize((SIZE, SIZE)), np.float32).ravel() / 255
    nearest = min(model, key=lambda n, x=pixels: np.square(model[n] - x).sum())
    right.append(nearest == Path(entry["path"]).parent.name)
options.output_dir.mkdir(parents=True, exist_ok=True)
(options.output_dir / "metrics.json").write_text(json.dumps({"accuracy": float(np.mean(right))}))
