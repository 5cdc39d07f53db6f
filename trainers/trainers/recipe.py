"""Recipes: options of `trainers.train` in a YAML file, each with its source.

| key | holds |
|---|---|
| options | names without dashes in front, as `batch-size: 256`; `true` for a flag |
| sources | name → URL, of the numbers and of what was published |
| published | the result of the training that the options are from |
| measured | the result with these trainers; `unknown` until somebody has run it |
| differs | what that training had and these trainers have not |
| time, cost | for numbers of GPUs, as far as somebody has published them |
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

_KEYS = ("options", "sources", "published", "measured", "differs", "time", "cost")


def options_of(file: Path, known: Collection[str]) -> list[str]:
    """Return the options of a recipe as arguments; `known` are their names, with underscores.

    Raises:
        ValueError: the file is no recipe, or has keys that are none of a recipe or no options.
    """
    try:
        import yaml  # noqa: PLC0415  # only recipes need it
    except ImportError as error:
        raise ValueError(
            "--recipe needs PyYAML, which timm installs: pip install pyyaml"
        ) from error
    try:
        document: Any = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"--recipe {file} cannot be read: {error}") from error
    options: Any = document.get("options") if isinstance(document, dict) else None
    if not isinstance(options, dict):
        raise ValueError(  # noqa: TRY004  # of the file's content
            f"--recipe {file} has no mapping `options`: write options below it"
        )
    names = {name.replace("_", "-") for name in known}
    unknown = [key for key in document if key not in _KEYS]
    unknown += [f"options.{key}" for key in options if key not in names]
    if unknown:
        raise ValueError(
            f"--recipe {file} has keys that nothing reads: {', '.join(unknown)}; a recipe has "
            f"{', '.join(_KEYS)}, and its options are those of --help without the dashes in front"
        )
    flags = {True: "--{}", False: "--no-{}"}
    return [
        flags[value].format(key) if isinstance(value, bool) else f"--{key}={value}"
        for key, value in options.items()
    ]
