"""The contract of a job in plain torch, alone or under torchrun: replace `read` and `network`.

In: --manifest, --data (<label>/<name>.png), --champion (a model folder, or none), --checkpoint-dir
(kept between attempts at a dataset version). Out, in --output-dir: model/, then metrics.json; for
bad data error.json and exit code 65. pipelines/templates/minimal also writes comparison.json.
"""

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, distributed, nn
from torch.nn.functional import cross_entropy

SIZE, EPOCHS, BATCH = 16, 20, 64


def read(data: Path, line: str) -> tuple[Tensor, str, bool]:
    """An image (1, SIZE, SIZE), its label, and whether it is held out, as its content decides."""
    entry, path = json.loads(line), data / json.loads(line)["path"]
    md5 = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    if entry["md5"] not in (None, md5):
        raise OSError(f"{entry['path']} differs from the manifest")
    with Image.open(path) as image:
        pixels = bytearray(image.convert("L").resize((SIZE, SIZE)).tobytes())
    square = torch.frombuffer(pixels, dtype=torch.uint8).reshape(1, SIZE, SIZE) / 255
    return square, path.parent.name, int(md5, 16) % 5 == 0


def network(classes: int) -> nn.Module:
    features = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4))
    return nn.Sequential(features, nn.Flatten(), nn.Linear(32 * (SIZE // 4) ** 2, classes))


def accuracy(file: Path, images: Tensor, names: list[str]) -> float:
    saved = torch.load(file, "cpu", weights_only=True)
    (model := network(len(saved["classes"]))).load_state_dict(saved["weights"])
    best = [saved["classes"][number] for number in model(images).argmax(dim=1)]
    return sum(map(str.__eq__, best, names)) / len(names)


parser = argparse.ArgumentParser(description=__doc__)
for option in ("--manifest", "--data", "--champion", "--checkpoint-dir", "--output-dir"):
    parser.add_argument(option, type=Path, required=True)
options = parser.parse_args()
checkpoint, output = options.checkpoint_dir / "checkpoint.pt", options.output_dir
rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
try:
    lines = (options.manifest / "manifest.jsonl").read_text("utf-8").splitlines()
    samples = [read(options.data, line) for line in lines]
    learned, held_out = ([each for each in samples if each[2] == side] for side in (False, True))
    classes = sorted({label for _, label, _ in learned})
    if len(classes) <= 1 or not held_out:
        raise ValueError("too few labels or images")  # noqa: TRY301  # one exit
except (OSError, ValueError) as error:
    (output / "error.json").write_text(json.dumps({"type": "DataRejected", "message": str(error)}))
    sys.exit(65)  # Landfall does not retry: the same data would fail again
images = torch.stack([image for image, *_ in learned]).to(device)
labels = torch.tensor([classes.index(label) for _, label, _ in learned], device=device)
torch.manual_seed(0)
model = network(len(classes)).to(device)
optimizer, first = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), 0
if checkpoint.exists():
    weights, state, first = torch.load(checkpoint, device, weights_only=True)
    model.load_state_dict(weights)
    optimizer.load_state_dict(state)
if ranks > 1:
    distributed.init_process_group()
parallel = nn.parallel.DistributedDataParallel(model) if ranks > 1 else model
for epoch in range(first, EPOCHS):
    draws = torch.Generator().manual_seed(epoch)  # the same on all ranks, and after a crash
    for batch in torch.randperm(len(labels), generator=draws).split(BATCH):
        mine = batch[rank::ranks]
        loss = cross_entropy(parallel(images[mine]), labels[mine], reduction="sum") / len(batch)
        optimizer.zero_grad()
        (loss * ranks).backward()  # DDP averages over the ranks
        optimizer.step()
    if rank == 0:
        part = checkpoint.with_suffix(".part")
        torch.save([model.state_dict(), optimizer.state_dict(), epoch + 1], part)
        part.replace(checkpoint)  # there whole or not at all
if rank == 0:
    (output / "model").mkdir(exist_ok=True)
    torch.save({"classes": classes, "weights": model.state_dict()}, output / "model" / "model.pt")
    sides = torch.stack([image for image, *_ in held_out]), [label for _, label, _ in held_out]
    metrics = {"accuracy": accuracy(output / "model" / "model.pt", *sides)}
    if options.champion.is_dir():  # else it is `none`
        metrics["champion_accuracy"] = accuracy(options.champion / "model.pt", *sides)
    (output / "metrics.json").write_text(json.dumps(metrics))  # last: all else is there
if ranks > 1:
    distributed.destroy_process_group()
