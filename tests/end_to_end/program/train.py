"""The digits job without torch: a softmax regression on two ranks, for tests of the app.

It uses the trainers' modules to read, verify, reject and trace, and writes the same outputs.
Rank 1 only keeps a connection to rank 0, so that each fails when the other dies.
`--pause FILE`: while the file exists, a training from scratch waits at its first checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import numpy as np

from trainers.data import samples
from trainers.data.image_file import ImageFormat, decode, pixels_of, square
from trainers.data.manifest import Entry, read_manifest
from trainers.errors import PeerFailed
from trainers.files import write_json_atomically
from trainers.reports import error_file
from trainers.tracing import traced

DIGITS = ImageFormat(size=8, mode="grey")
STEPS = 400
CHECKPOINT_EVERY = 100
LEARNING_RATE = 2.0
MAX_BAD_FRACTION = 0.01
POLL_SECONDS = 0.05

Sample = tuple[int, bool, np.ndarray]
"""Label, whether it is held out, 64 pixels from 0 to 1 and a constant for the bias."""


def read(data: Path, manifest: Path) -> list[Sample]:
    def labelled(entry: Entry, content: bytes) -> tuple[int, np.ndarray]:
        pixels = pixels_of(square(decode(content, DIGITS), DIGITS.size)).ravel() / 255
        return int(samples.label_of(entry)), np.append(pixels, 1.0)

    entries = samples.in_order(read_manifest(manifest).entries)
    found, bad = samples.decode_all(data, entries, labelled)
    samples.check_bad_fraction(bad, len(entries), MAX_BAD_FRACTION)
    return [(each.value[0], each.is_held_out, each.value[1]) for each in found]


def accuracy(weights: np.ndarray, found: list[Sample]) -> float:
    right = [(pixels @ weights).argmax() == label for label, held_out, pixels in found if held_out]
    return float(np.mean(right))


def fit(options: argparse.Namespace, found: list[Sample], peer: Connection) -> dict[str, float]:
    """Train from the newest checkpoint and write the model; return the metrics."""
    labels, pixels = (np.array([each[i] for each in found if not each[1]]) for i in (0, 2))
    newest = max(options.checkpoint_dir.glob("step-*.json"), default=None)
    resumed_from_step, weights = 0, np.zeros((pixels.shape[1], 10))
    if newest is not None:
        saved: dict[str, Any] = json.loads(newest.read_text())
        resumed_from_step, weights = saved["step"], np.array(saved["weights"])
    for step in range(resumed_from_step + 1, STEPS + 1):
        peer.send(step)
        chances = np.exp(pixels @ weights)
        chances /= chances.sum(axis=1, keepdims=True)
        weights += LEARNING_RATE * pixels.T @ (np.eye(10)[labels] - chances) / len(labels)
        if step % CHECKPOINT_EVERY == 0:
            checkpoint = options.checkpoint_dir / f"step-{step:08d}.json"
            write_json_atomically(checkpoint, {"step": step, "weights": weights.tolist()})
        while newest is None and step == CHECKPOINT_EVERY and options.pause.exists():
            peer.send(step)
            time.sleep(POLL_SECONDS)
    metrics = {
        "accuracy": accuracy(weights, found),
        "steps": STEPS,
        "resumed_from_step": resumed_from_step,
    }
    if options.champion.is_dir():  # otherwise it is the text `none`
        champion = json.loads((options.champion / "weights.json").read_text())
        metrics["champion_accuracy"] = accuracy(np.array(champion), found)
    write_json_atomically(options.output_dir / "model" / "weights.json", weights.tolist())
    return metrics


def connected(address: tuple[str, int]) -> Connection:
    """Wait until rank 0 listens; return rank 1's connection to it."""
    while True:
        try:
            return Client(address)
        except ConnectionRefusedError:
            time.sleep(POLL_SECONDS)


def main() -> int:
    parser = argparse.ArgumentParser()
    for option in ("data", "manifest", "champion", "output-dir", "checkpoint-dir", "pause"):
        parser.add_argument(f"--{option}", type=Path, required=True)
    options, _ = parser.parse_known_args()  # ignore the options of the torch program
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if os.environ["RANK"] != "0":
        with connected(address) as first:
            while first.recv() != "done":
                pass
        return 0
    error_file.clear_error(options.output_dir)
    try:
        with (
            traced("train", os.environ, {}),
            Listener(address) as listener,
            listener.accept() as peer,
        ):
            try:
                metrics = fit(options, read(options.data, options.manifest), peer)
            except Exception as error:
                # Once the connection closes, rank 1 ends, and then the job.
                error_file.write_failure(options.output_dir, error)
                raise
            write_json_atomically(options.output_dir / "metrics.json", metrics)
            peer.send("done")
    except OSError as error:
        return error_file.write_failure(options.output_dir, PeerFailed(str(error)))
    except Exception as error:  # noqa: BLE001  # the edge of the process
        return error_file.write_failure(options.output_dir, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
