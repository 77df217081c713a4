"""Every rule that code, tests and documents cite is in docs/spec."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SPEC = ROOT / "docs" / "spec"
PAGES = sorted(page.name for page in SPEC.glob("*.md"))
ITEM = r"(?:§ ?\d+(?:\.\d+)*|RC?\d+\.\d+)"
JOINT = r"(?:[\s,;]+|\s*-\s*|\s+and\s+|\s+or\s+|\s+steps? \d+(?:(?:-| and |, )\d+)*)"
CITATION = re.compile(rf"([a-z][\w-]*\.md)((?:{JOINT}*{ITEM})*)")
UNMARKED = re.compile(rf"\b({'|'.join(re.escape(page) for page in PAGES)}),? \d")


def citing_files() -> list[Path]:
    """The files of the project that may cite the specification, itself included."""
    code = [
        path
        for folder in ("paimon_stream", "tests", "benchmarks", "examples")
        for path in (ROOT / folder).rglob("*.py")
    ]
    return [*code, *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]


def citations(text: str) -> Iterator[tuple[str, str]]:
    """Each cited (page, section or rule) of a text whose lines may break anywhere."""
    text = re.sub(r"\s*\n[\s#]*", " ", text)
    for page, items in CITATION.findall(text):
        if page in PAGES:
            for item in re.findall(ITEM, items):
                yield page, item.replace("§ ", "§")


@cache
def all_citations() -> list[tuple[Path, str, str]]:
    """Each cited (page, section or rule) of the project, with the file that cites it."""
    return [
        (path, page, item) for path in citing_files() for page, item in citations(path.read_text())
    ]


def defined(page: str) -> set[str]:
    """The sections (`§4.5`) and rules (`R2.3`) that a page of the specification has."""
    text = (SPEC / page).read_text()
    sections = re.findall(r"^#{2,3} (\d+(?:\.\d+)*)\.? ", text, re.MULTILINE)
    return {f"§{section}" for section in sections} | set(re.findall(r"\*\*(RC?\d+\.\d+)\*\*", text))


def test_the_reader_of_citations_finds_them() -> None:
    text = "as format.md §4.5 and §7\n    # .2 has it (semantics.md R2.3, §5.1 step 3, §6), not other.md §9"
    assert list(citations(text)) == [
        ("format.md", "§4.5"),
        ("format.md", "§7"),
        ("semantics.md", "R2.3"),
        ("semantics.md", "§5.1"),
        ("semantics.md", "§6"),
    ]


@pytest.mark.parametrize("page", PAGES)
def test_every_cited_section_and_rule_exists(page: str) -> None:
    there = defined(page)
    missing = sorted(
        f"{path.relative_to(ROOT)} cites {page} {item}"
        for path, cited, item in all_citations()
        if cited == page and item not in there
    )
    assert not missing, "\n".join(missing)


def test_sections_are_cited_with_their_sign() -> None:
    unmarked = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in citing_files()
        for found in UNMARKED.finditer(re.sub(r"\s*\n[\s#]*", " ", path.read_text()))
    ]
    assert not unmarked, "\n".join(unmarked)


def test_every_rule_that_is_named_alone_exists() -> None:
    rules = {item for page in PAGES for item in defined(page) if item.startswith("R")}
    missing = sorted(
        f"{path.relative_to(ROOT)} names {rule}"
        for path in (ROOT / "paimon_stream").rglob("*.py")
        for rule in set(re.findall(r"\bR\d{1,2}\.\d+\b", path.read_text()))
        if rule not in rules
    )
    assert not missing, "\n".join(missing)
