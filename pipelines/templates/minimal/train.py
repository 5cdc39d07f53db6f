"""The contract between Landfall and a training program, in few lines: replace `fit` and `right`.

Images in <label>/<name>.png become the mean image of each label; a new one gets the nearest mean.
In: --manifest (folder of manifest.jsonl), --data, --champion (a model folder, or none).
Out, in --output-dir: model/, comparison.json beside a champion, then metrics.json; on failure
error.json, exit code 65 for bad data.
"""

import argparse
import hashlib
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.numpy import load_file, save_file

SIZE, SLICES = 16, 500  # pixels; what comparison.json may have
EX_DATAERR = 65  # Landfall does not retry: the same data would fail again


class BadData(Exception):
    """Its arguments: the type in error.json, and the files as path and reason."""


def read(data: Path, manifest: Path) -> list[tuple[str, bool, np.ndarray]]:
    """Label, whether it is held out, and pixels of each file, verified against the manifest."""
    samples, changed, bad = [], [], []
    for line in (manifest / "manifest.jsonl").read_text().splitlines():
        entry = json.loads(line)
        path = data / entry["path"]
        content = path.read_bytes() if path.is_file() else b""
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if len(content) != entry["size"] or entry["md5"] not in (None, md5):
            changed.append({"path": entry["path"], "reason": "differs from the manifest"})
            continue
        try:
            pixels = np.asarray(Image.open(path).convert("L").resize((SIZE, SIZE)), np.float32)
        except OSError as error:
            bad.append({"path": entry["path"], "reason": str(error)})
        else:  # by its content an image is held out in every dataset version
            samples.append((path.parent.name, int(md5, 16) % 5 == 0, pixels.ravel() / 255))
    if changed:
        raise BadData("DataChanged", changed)
    if bad or len({label for label, *_ in samples}) <= 1 or not any(held for _, held, _ in samples):
        raise BadData("DataRejected", bad)
    return samples


def fit(samples: list[tuple[str, bool, np.ndarray]]) -> dict[str, np.ndarray]:
    learned = [(label, pixels) for label, held_out, pixels in samples if not held_out]
    labels = {label for label, _ in learned}
    return {n: np.mean([x for label, x in learned if label == n], axis=0) for n in labels}


def right(model: dict[str, np.ndarray], samples: list[tuple[str, bool, np.ndarray]]) -> list[bool]:
    held_out = [(label, pixels) for label, is_held_out, pixels in samples if is_held_out]
    nearest = [min(model, key=lambda n, x=x: np.square(model[n] - x).sum()) for _, x in held_out]
    return [n == label for n, (label, _) in zip(nearest, held_out, strict=True)]


def compare(ours: list[bool], champions: list[bool], labels: list[str]) -> dict[str, object]:
    """How many images each model gets right, of all and of each label."""

    def count(label: str | None) -> dict[str, int]:
        rows = zip(ours, champions, labels, strict=True)
        found = Counter((own, other) for own, other, of in rows if label in (None, of))
        names = {"both_right": (True, True), "only_champion": (False, True)}
        names |= {"only_challenger": (True, False), "both_wrong": (False, False)}
        return {name: found[pair] for name, pair in names.items()}

    slices = {f"label:{label}": count(label) for label in set(labels)}
    few = slices if len(slices) <= SLICES else {}
    return {"metric": "accuracy", "whole": count(None), "slices": few}


parser = argparse.ArgumentParser(description=__doc__)
for option in ("--manifest", "--data", "--champion", "--output-dir"):
    parser.add_argument(option, type=Path, required=True)
options = parser.parse_args()
output: Path = options.output_dir
(output / "model").mkdir(parents=True, exist_ok=True)
try:
    samples = read(options.data, options.manifest)
    model = fit(samples)
    ours = right(model, samples)
    metrics = {"accuracy": float(np.mean(ours))}
    if options.champion.is_dir():  # else it is `none`
        champions = right(load_file(options.champion / "model.safetensors"), samples)
        metrics["champion_accuracy"] = float(np.mean(champions))  # on the same images
        comparison = compare(ours, champions, [label[:90] for label, held, _ in samples if held])
        (output / "comparison.json").write_text(json.dumps(comparison))
    save_file(model, output / "model" / "model.safetensors")
    (output / "metrics.json").write_text(json.dumps(metrics))  # last: all else is there
except BadData as error:
    failure = {"type": error.args[0], "message": "see files, or too few", "files": error.args[1]}
    (output / "error.json").write_text(json.dumps(failure))
    sys.exit(EX_DATAERR)
