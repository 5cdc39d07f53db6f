"""The targets of the pages' links exist: headings, files and modules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from demo.console import blocks
from docs import pipeline_yml
from handlers.platform.settings import APP_FOLDER
from tests.local.documented.test_documented import RUN_HERE

PAGES = [
    page
    for pattern in ("*.md", "*/*.md", "docs/*/*.md", "localazure/docs/*.md")
    for page in sorted(APP_FOLDER.glob(pattern))
]
TARGETS = set(re.findall(r"^([\w-]+):", (APP_FOLDER / "Makefile").read_text("utf-8"), re.MULTILINE))
# The pages also name files of other repositories.
ELSEWHERE = {"tests/orchestrator", "tests/endtoend", "tests/extension_tests"}
PACKAGES_IN = {
    **{name: f"{name}/src" for name in ("landfall_cli", "localazure", "replay_guard")},
    "trainers": "trainers",
}


def prose(page: Path) -> str:
    """Without what is shown to be typed or answered."""
    return re.sub(r"^ *```.*?^ *```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """A heading's anchor, as GitHub makes it."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def folders() -> set[str]:
    """The folders at the root that git keeps."""
    made = {"build", "outputs", "__pycache__"}
    found = {each.name for each in APP_FOLDER.iterdir() if each.is_dir()}
    return {name for name in found - made if not name.startswith(".")}


def missing_module(dotted: str) -> bool:
    """Whether neither a module nor something that a module holds goes by the name."""
    parts = dotted.split(".")
    root = APP_FOLDER / PACKAGES_IN.get(parts[0], "")
    for length in range(len(parts), 0, -1):
        place = root.joinpath(*parts[:length])
        file = place.with_suffix(".py") if not place.is_dir() else place / "__init__.py"
        if place.is_dir() and length == len(parts):
            return False
        if file.is_file():
            rest = parts[length : length + 1]
            return bool(rest) and not re.search(rf"\b{rest[0]}\b", file.read_text("utf-8"))
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(APP_FOLDER)))
def test_every_link_leads_somewhere(page: Path) -> None:
    dead: list[str] = []
    text = re.sub(r"`[^`\n]*`", "", prose(page))  # without code, such as a regular expression
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = page.parent / path if path else page
        if not place.exists() or (anchor and anchor not in anchors(place)):
            dead.append(target)
    assert dead == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(APP_FOLDER)))
def test_every_file_and_module_that_is_named_is_there(page: Path) -> None:
    roots = "|".join(folders())
    text = prose(page)
    files = set(re.findall(rf"`((?:{roots})/[\w./-]*)`", text)) - ELSEWHERE
    modules = re.findall(rf"`(?:python -m )?((?:{roots})(?:\.\w+)+)`", text)
    assert [each for each in sorted(files) if not (APP_FOLDER / each).exists()] == []
    assert [each for each in modules if missing_module(each)] == []


def test_the_architecture_page_has_every_folder() -> None:
    page = (APP_FOLDER / "docs" / "architecture.md").read_text("utf-8")
    (tree,) = re.findall(r"^## The folders\n(.*?)^## ", page, re.DOTALL | re.MULTILINE)
    named = set(re.findall(r"^\| `([\w.]+)/` \|", tree, re.MULTILINE))
    assert named == folders()


def test_the_reference_of_pipeline_yml_is_up_to_date() -> None:
    assert pipeline_yml.PAGE.read_text("utf-8") == pipeline_yml.page(), "write it: make docs"


def test_every_command_is_run_or_needs_azure() -> None:
    for block in blocks(PAGES):
        made = [re.match(r"make ([\w-]+)", each.text) for each in block.commands]
        targets = {each[1] for each in made if each}
        # tests/local/operators/test_tasks_by_command.py runs those of the tasks.
        task = block.page == "docs/operators.md" and re.match(r"\d+\. ", block.section)
        run = block in RUN_HERE or task or all(made)
        if block.run_by:
            run = "run_by(__file__)" in (APP_FOLDER / block.run_by).read_text("utf-8")
        needs = {"azure"} if block.page != "CONTRIBUTING.md" else {block.needs}
        assert run or block.needs in needs, f"{block.place}: run, or <!-- needs: azure -->"
        assert targets <= TARGETS, block.place
