"""Folders of small images, with their manifests."""

from __future__ import annotations

import dataclasses
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


def entry_of(path: str, content: bytes, etag: str | None = None) -> Entry:
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return Entry(path=path, size=len(content), md5=md5, etag=etag)


def lay_down(folder: Path, files: dict[str, bytes]) -> Manifest:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    entries = (entry_of(name, content) for name, content in sorted(files.items()))
    return Manifest(version="v1", entries=tuple(entries))


def write_manifest(path: Path, manifest: Manifest) -> Path:
    lines = [json.dumps(dataclasses.asdict(entry)) + "\n" for entry in manifest.entries]
    path.write_text("".join(lines))
    return path


def freeze(data: Path, manifest: Path) -> Path:
    """Write manifest.jsonl of all files in `data`, as Landfall does."""
    manifest.mkdir(parents=True, exist_ok=True)
    files = {path.relative_to(data).as_posix(): path.read_bytes() for path in data.rglob("*.*")}
    entries = (entry_of(path, content, "0x1") for path, content in sorted(files.items()))
    write_manifest(
        manifest / "manifest.jsonl", Manifest(version="of the lines", entries=tuple(entries))
    )
    return manifest
