"""The job of the smoke test: reads each file of the manifest, and leaves their number.

    python count_files.py --data FOLDER --manifest FOLDER --champion FOLDER|none --output-dir FOLDER

The "model" is the list of what was read, and is scored by its length. Standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path


def main(data: Path, manifest: Path, champion: Path | None, output: Path) -> None:
    """Count the files whose size and MD5 are what the manifest says.

    Raises:
        ValueError: a file is not what the manifest says.
    """
    lines = (manifest / "manifest.jsonl").read_text("utf-8").splitlines()
    files = [json.loads(line) for line in lines]
    for each in files:
        content = (data / each["path"]).read_bytes()
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if (len(content), md5) != (each["size"], each["md5"] or md5):
            raise ValueError(f"{each['path']} is not what the manifest says")
    (output / "model").mkdir(parents=True, exist_ok=True)
    (output / "model" / "model.json").write_text(json.dumps([each["path"] for each in files]))
    metrics = {"files": len(files)}
    if champion is not None:
        metrics["champion_files"] = len(json.loads((champion / "model.json").read_text("utf-8")))
    (output / "metrics.json").write_text(json.dumps(metrics))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("--data", "--manifest", "--output-dir"):
        parser.add_argument(option, type=Path, required=True)
    parser.add_argument("--champion", required=True)
    options = parser.parse_args()
    champion = None if options.champion == "none" else Path(options.champion)
    main(options.data, options.manifest, champion, options.output_dir)
