"""Folders of small images, with their manifests."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import numpy as np
from PIL import Image

from trainers.data.manifest import Entry, Manifest


def image_file(seed: int, *, size: int = 4, mode: str = "L", kind: str = "PNG") -> bytes:
    channels = {"L": (), "RGB": (3,), "RGBA": (4,)}[mode]
    pixels = np.random.default_rng(seed).integers(0, 256, (size, size, *channels), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


def good_files(count: int, *, size: int = 4) -> dict[str, bytes]:
    return {f"{seed % 3}/{seed:03d}.png": image_file(seed, size=size) for seed in range(count)}


def lay_down(folder: Path, files: dict[str, bytes]) -> Manifest:
    entries: list[Entry] = []
    for name, content in sorted(files.items()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        entries.append(Entry(path=name, size=len(content), md5=md5))
    return Manifest(version="v1", entries=tuple(entries))


def write_manifest(path: Path, manifest: Manifest) -> Path:
    lines = [
        json.dumps({"path": entry.path, "size": entry.size, "md5": entry.md5, "etag": None}) + "\n"
        for entry in manifest.entries
    ]
    path.write_text("".join(lines))
    return path


def freeze(data: Path, manifest: Path) -> Path:
    """Write manifest.jsonl of all files in `data`, as Landfall does."""
    manifest.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    for path in sorted(data.rglob("*.*"), key=lambda path: path.relative_to(data).as_posix()):
        content = path.read_bytes()
        line = {
            "path": path.relative_to(data).as_posix(),
            "size": len(content),
            "md5": hashlib.md5(content, usedforsecurity=False).hexdigest(),
            "etag": "0x1",
        }
        lines.append(json.dumps(line) + "\n")
    (manifest / "manifest.jsonl").write_text("".join(lines))
    return manifest
