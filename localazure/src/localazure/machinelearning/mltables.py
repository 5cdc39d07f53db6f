"""Reads a folder with a file `MLTable`: its files, and the table that they form.

It covers paths below the folder, and the transformations in `_TRANSFORMATIONS`. The job's
environment needs pandas and PyYAML.

https://learn.microsoft.com/azure/machine-learning/reference-yaml-mltable
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pandas as pd

FILE_NAME: Final = "MLTable"
_HEADERS: Final = {
    "no_header": None,
    "from_first_file": "infer",
    "all_files_same_headers": "infer",
    "all_files_different_headers": "infer",
}
"""MLTable's `header` → the `header` of pandas."""
_PART: Final = re.compile(r"\{(?P<name>\w+)\}")


class MLTableError(Exception):
    """The file cannot be read or is not covered; the message has the cause."""


@dataclass(frozen=True)
class MLTable:
    """The content of a file `MLTable`.

    Attributes:
        folder: the folder of the file.
        files: the table's files, sorted by name.
        transformations: names and options, in the order of the file.
    """

    folder: Path
    files: tuple[Path, ...]
    transformations: tuple[tuple[str, Any], ...]

    @classmethod
    def read(cls, folder: Path) -> MLTable:
        """Read the file of a folder.

        Raises:
            MLTableError: the file is wrong or not covered.
        """
        import yaml  # noqa: PLC0415 - of the job's environment

        content: Any = yaml.safe_load((folder / FILE_NAME).read_text())
        if not isinstance(content, dict):
            raise MLTableError(f"{folder / FILE_NAME} is not a mapping")
        document: dict[str, Any] = content
        files = [file for entry in document.get("paths") or () for file in _files(folder, entry)]
        transformations: list[tuple[str, Any]] = []
        for entry in document.get("transformations") or ():
            named: dict[str, Any] = {entry: None} if isinstance(entry, str) else entry
            for name, options in named.items():
                if name not in _TRANSFORMATIONS and name not in _READERS:
                    known = ", ".join([*_READERS, *_TRANSFORMATIONS])
                    raise MLTableError(f"transformation {name!r} is not covered; {known} are")
                transformations.append((name, options))
        return cls(folder, tuple(dict.fromkeys(files)), tuple(transformations))

    @property
    def is_tabular(self) -> bool:
        """Whether one of the transformations reads the files into a table."""
        return any(name in _READERS for name, _ in self.transformations)

    def to_frame(self) -> pd.DataFrame:
        """The table.

        Raises:
            MLTableError: a transformation names a missing column.
        """
        import pandas as pd  # noqa: PLC0415 - of the job's environment

        (name, options), *others = self.transformations
        frames: list[pd.DataFrame] = []
        for file in self.files:
            frame = _read(name, file, options or {})
            for other, given in others:
                frame = _TRANSFORMATIONS[other](frame, given, file.relative_to(self.folder))
            frames.append(frame)
        return pd.concat(frames, ignore_index=True)


def _files(folder: Path, entry: Mapping[str, str]) -> list[Path]:
    ((kind, text),) = entry.items()
    if "://" in text or not (folder / text).resolve().is_relative_to(folder.resolve()):
        raise MLTableError(f"path {text!r} is not covered; use paths below the folder of the file")
    if kind == "pattern":
        found = folder.glob(text.removeprefix("./"))
    else:
        path = folder / text
        found = path.rglob("*") if path.is_dir() else iter([path])
    return sorted(each for each in found if each.is_file() and each.name != FILE_NAME)


def _read(name: str, file: Path, options: Mapping[str, Any]) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415 - as above

    match name:
        case "read_parquet":
            return pd.read_parquet(file)
        case "read_json_lines":
            return pd.read_json(file, lines=True, encoding=options.get("encoding", "utf8"))
        case _:
            header = options.get("header", "all_files_same_headers")
            if header not in _HEADERS:
                raise MLTableError(f"header {header!r} is not one of {', '.join(_HEADERS)}")
            given: dict[str, Any] = {
                "sep": options.get("delimiter", ","),
                "encoding": options.get("encoding", "utf8"),
                "header": _HEADERS[header],
            }
            return pd.read_csv(file, **given)


def _extract_columns(
    frame: pd.DataFrame, options: Mapping[str, str], relative: Path
) -> pd.DataFrame:
    """Columns from the last parts of a path: pattern `{Store}/{Brand}/{file_name}.{extension}`."""
    partition_format = options["partition_format"].strip("/")
    literals = _PART.split(partition_format)[::2]
    names = [match["name"] for match in _PART.finditer(partition_format)]
    groups = [*(f"(?P<{name}>[^/]+)" for name in names), ""]
    pattern = "".join(re.escape(text) + group for text, group in zip(literals, groups, strict=True))
    found = re.search(rf"(?:^|/){pattern}$", relative.as_posix())
    if found is None:
        raise MLTableError(f"{relative} has not the form {partition_format!r}")
    return frame.assign(**found.groupdict())


def _drop_columns(frame: pd.DataFrame, names: str | Sequence[str], _file: Path) -> pd.DataFrame:
    dropped = [names] if isinstance(names, str) else [*names]
    return frame.drop(columns=dropped, errors="ignore")


def _keep_columns(frame: pd.DataFrame, names: str | Sequence[str], file: Path) -> pd.DataFrame:
    kept = [names] if isinstance(names, str) else [*names]
    if missing := [name for name in kept if name not in frame.columns]:
        raise MLTableError(f"{file} has no column {', '.join(missing)}")
    return frame.filter(items=kept)


_READERS: Final = ("read_delimited", "read_parquet", "read_json_lines")
_TRANSFORMATIONS: Final[dict[str, Callable[[pd.DataFrame, Any, Path], pd.DataFrame]]] = {
    "extract_columns_from_partition_format": _extract_columns,
    "drop_columns": _drop_columns,
    "keep_columns": _keep_columns,
}
