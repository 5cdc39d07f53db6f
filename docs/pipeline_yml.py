"""Write docs/pipeline-yml.md, the reference of all keys of pipeline.yml: `make docs`.

Keys, types, limits and defaults are those of the schema,
`orchestrations.configuration.pipeline.Pipeline`. The sentences are the docstrings of its classes,
and those below their fields.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from orchestrations.configuration.pipeline import Pipeline
from orchestrations.configuration.section import Section

PAGE: Final = Path(__file__).with_name("pipeline-yml.md")
EXAMPLE: Final = "pipelines/digits-live/pipeline.yml"
TEXT: Final = """\
# pipeline.yml: all keys

A pipeline is a folder with `pipeline.yml` and an Azure ML `job.yml`; the folder's name is the
pipeline's. The app checks all files when it starts, and `landfall check` does so before a
deployment. An unknown key, a value outside its limits, or keys that contradict each other are
errors; the message names file, line, key and value.

`make docs` writes this page from the schema. A key without a default must be there.

## A whole file

[{example}](../{example}); the [README](../README.md#add-a-pipeline) has a shorter one.

```yaml
{yaml}```

## The file

{tables}
"""
TYPES: Final = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
}
UNITS: Final = ("seconds", "minutes", "hours", "days")
LIMITS: Final = {
    "exclusiveMinimum": "more than {}",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minItems": "{} or more items",
    "maxItems": "at most {} items",
    "maxLength": "at most {} characters",
    "pattern": "matches `{}`",
}
Schema = Mapping[str, Any]
SCHEMA: Final[Schema] = Pipeline.model_json_schema()


def page() -> str:
    """The page's text.

    Raises:
        KeyError: a key has no docstring.
    """
    tables = "\n".join(_tables("", "", SCHEMA, _docstrings()))
    yaml = (PAGE.parents[1] / EXAMPLE).read_text("utf-8")
    return TEXT.format(example=EXAMPLE, yaml=yaml, tables=tables)


def _docstrings() -> Mapping[tuple[str, str], str]:
    """(Class, field) → the docstring below the field.

    Pydantic could keep them in the schema, but would parse the sources whenever the app starts.
    """
    found: dict[tuple[str, str], str] = {}
    for model in Section.__subclasses__():
        (definition,) = ast.parse(inspect.getsource(model)).body
        assert isinstance(definition, ast.ClassDef)
        for pair in pairwise(definition.body):
            match pair:
                case (
                    ast.AnnAssign(target=ast.Name(id=key)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[model.__name__, key] = " ".join(text.split())
                case _:
                    pass
    return found


def _tables(
    path: str, kind: str, model: Schema, docstrings: Mapping[tuple[str, str], str]
) -> Iterator[str]:
    """The table of a section's keys, then the sections in it.

    Args:
        path: of the section; empty for the file.
        kind: the end of its title, where sections of several kinds can stand.
        model: the section's schema.
        docstrings: of the fields of all sections.
    """
    inner: list[tuple[str, str, Schema]] = []
    yield "| key | value | default | meaning |\n|---|---|---|---|"
    for key, field in model["properties"].items():
        if (model["title"], key) == ("Pipeline", "name"):
            continue  # the folder's
        place = f"{path}.{key}".lstrip(".")
        sections = list(_sections(place, kind, field))
        inner += sections
        links = [f"[{title}](#{_anchor(title)})" for title in map(_title, sections)]
        value = ", ".join(
            [" or ".join(links) or " or ".join(map(_type, _choices(field))), *_limits(key, field)]
        )
        default = "" if key in model.get("required", ()) else _shown(field["default"])
        name = (model["title"], key)
        is_told_below = sections and name not in docstrings
        meaning = sections[0][2]["description"] if is_told_below else docstrings[name]
        yield f"| `{place}` | {value} | {default} | {meaning.splitlines()[0]} |"
    for section in inner:
        place, kind, model = section
        yield f"\n## {_title(section)}\n\n{model['description']}\n"
        yield from _tables(place, kind, model, docstrings)


def _sections(place: str, kind: str, field: Schema) -> Iterator[tuple[str, str, Schema]]:
    """Path, kind and schema of each section that can stand in a place."""
    if "$ref" in field:
        model = SCHEMA["$defs"][field["$ref"].rpartition("/")[2]]
        const = model["properties"].get("kind", {}).get("const")
        yield place, f" of kind `{const}`" if const else kind, model
    if "items" in field:
        yield from _sections(f"{place}[]", kind, field["items"])
    for each in field.get("patternProperties", {}).values():
        yield from _sections(f"{place}.<name>", kind, each)
    for each in field.get("anyOf") or field.get("oneOf", ()):
        yield from _sections(place, kind, each)


def _title(section: tuple[str, str, Schema]) -> str:
    return f"`{section[0]}`{section[1]}"


def _anchor(title: str) -> str:
    """The link to a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _choices(field: Schema) -> list[Schema]:
    return [each for each in field.get("anyOf", [field]) if each.get("type") != "null"]


def _type(schema: Schema) -> str:
    if values := schema.get("enum"):
        return f"one of {', '.join(map(_shown, values))}"
    if "const" in schema:
        return _shown(schema["const"])
    if "items" in schema:
        items = schema["items"]
        return "list of values" if "anyOf" in items else f"list of {_type(items)}s"
    return TYPES[schema["type"]]


def _limits(key: str, field: Schema) -> Iterator[str]:
    """Unit and limits of a key's value, or of each item of it."""
    if key.endswith("_ms"):
        yield "in milliseconds"
    yield from (f"in {word}" for word in key.split("_") if word in UNITS)
    (first, *_) = _choices(field)
    bounds = {**first.get("items", {}), **first}
    for name, text in LIMITS.items():
        if name in bounds:
            yield text.format(bounds[name]).replace("|", "\\|")


def _shown(value: Any) -> str:
    """A value as it stands in the file."""
    match value:
        case None:
            return "none"
        case dict():
            return "as below" if value else "none"
        case str():
            return f"`{value}`" if value else '`""`'
        case _:
            return f"`{re.sub(r'[.]0(?=[],]|$)', '', json.dumps(value))}`"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
