"""The documents that a new user reads first are true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def test_the_snippet_of_the_readme_is_the_quickstart_example() -> None:
    snippet = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert snippet
    example = (ROOT / "examples" / "quickstart.py").read_text()
    assert example.split('"""\n\n', 1)[1] == snippet[1]


@pytest.mark.parametrize(
    "document",
    [
        "README.md",
        "docs/architecture.md",
        "docs/clusters.md",
        "docs/operations.md",
        "docs/stores.md",
        "checkpoints/README.md",
    ],
)
def test_every_local_link_and_path_exists(document: str) -> None:
    path = ROOT / document
    text = path.read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    for link in links:
        assert (path.parent / link).exists(), f"{document} links to {link}, which is not there"
    for named in re.findall(r"`((?:examples|tests|docs|paimon_stream)/[\w./]*)`", text):
        assert (ROOT / named).exists(), f"{document} names {named}, which is not there"


def test_every_module_that_the_architecture_names_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    package = ROOT / "paimon_stream"
    folders = "|".join(folder.name for folder in package.iterdir() if folder.is_dir())
    for named in re.findall(rf"\b(?:{folders})/\w+\.py", text):
        assert (package / named).is_file(), f"the architecture names {named}"


def test_every_module_in_backticks_exists() -> None:
    folders = ("paimon_stream", "tests", "benchmarks", "docs", "examples")
    there = {path.name for folder in folders for path in (ROOT / folder).rglob("*.py")}
    for text in [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "paimon_stream").rglob("*.py"),
    ]:
        gone = set(re.findall(r"`(?:[\w.]+/)*(\w+\.py)`", text.read_text())) - there
        assert not gone, f"{text.relative_to(ROOT)} names {gone}"


def test_every_make_target_that_the_readme_names_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for command in re.findall(
        r"(?:`|    )make ([\w -]+?)(?:`|  )", (ROOT / "README.md").read_text()
    ):
        assert set(command.split()) <= targets, f"the README says make {command}"
