"""Step 2: the mean image of each label."""

import argparse
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

parser = argparse.ArgumentParser(description=__doc__)
for option in ("--packed", "--output-dir"):
    parser.add_argument(option, type=Path, required=True)
options = parser.parse_args()
with np.load(options.packed / "images.npz") as packed:
    learned = ~packed["held_out"]
    pixels, labels = packed["pixels"][learned], packed["labels"][learned]
means = {str(label): pixels[labels == label].mean(axis=0) for label in np.unique(labels)}
save_file(means, options.output_dir / "model.safetensors")
