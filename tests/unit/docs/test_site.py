"""The site has every page, and the pages that must be complete are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import paimon_stream
from docs.generators import changing_rows, compatibility
from paimon_stream.metrics.commits import METRICS

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
LINK = re.compile(r"\]\(([^)\s]+)\)")


def test_the_navigation_has_every_page_once() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n", 1)[1]
    assert sorted(re.findall(r": ([\w/-]+\.md)$", navigation, re.MULTILINE)) == PAGES


def test_the_readme_leads_to_the_start_and_the_start_to_every_page() -> None:
    assert "](docs/index.md)" in (ROOT / "README.md").read_text()
    start = (DOCS / "index.md").read_text()
    pages = {page for page in PAGES if "/" not in page} - {"index.md", "releasing.md"}
    assert {page for page in pages if f"]({page}" not in start} == set()


def test_a_warning_of_the_build_is_an_error() -> None:
    """With --quiet, MkDocs counts no warnings, and --strict has no effect."""
    command = re.search(r"^\t.*mkdocs build(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert command
    assert command[1].split() == ["--strict"]
    site = (ROOT / "mkdocs.yml").read_text()
    assert site.count(": warn\n") == 7, "every kind of broken link is a warning"


@pytest.mark.parametrize("page", PAGES)
def test_no_link_leaves_the_documentation(page: str) -> None:
    """So each works on GitHub and in the site. Other files of the checkout are named by their
    path.
    """
    path = DOCS / page
    for link in LINK.findall(path.read_text()):
        if "://" not in link and not link.startswith("#"):
            target = (path.parent / link.partition("#")[0]).resolve()
            assert target.is_relative_to(DOCS), f"{page} links to {link}, which is not in docs/"
            assert target.is_file(), f"{page} links to {link}, which is not there"


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_exists(page: str) -> None:
    for named in re.findall(
        r"`((?:examples|tests|docs|benchmarks|paimon_stream)/[\w./-]*)`", (DOCS / page).read_text()
    ):
        assert (ROOT / named).exists(), f"{page} names {named}, which is not there"


def test_the_page_of_compatibility_is_current() -> None:
    page = (DOCS / "compatibility.md").read_text()
    assert page == compatibility.render(), (
        "run: python -m docs.generators.compatibility > docs/compatibility.md"
    )


def test_the_page_of_changed_keys_is_current() -> None:
    page = (DOCS / "changing-keyed-rows.md").read_text()
    assert page == changing_rows.render(), (
        "run: python -m docs.generators.changing_rows > docs/changing-keyed-rows.md"
    )


def test_the_page_of_monitoring_names_every_metric_and_no_other() -> None:
    table = (DOCS / "monitoring.md").read_text().split("| metric |", 1)[1].split("\n\n", 1)[0]
    named: list[str] = []
    for row in table.splitlines()[2:]:
        for name in re.findall(r"`([\w.]+)`", row.split("|")[1]):
            named.append(f"{named[-1].partition('.')[0]}{name}" if name.startswith(".") else name)
    assert sorted(named) == sorted(METRICS)


def test_the_page_of_python_has_every_public_name() -> None:
    page = (DOCS / "api.md").read_text()
    for name in paimon_stream.__all__:
        assert f"\n| `{name}` |" in page, name
        assert f"\n::: paimon_stream.{name}\n" in page or name.startswith("_"), name


@pytest.mark.parametrize("page", PAGES)
def test_every_list_is_a_list_in_the_site_too(page: str) -> None:
    """GitHub takes a list that follows a text at once. The site needs an empty line before it, and
    four spaces in nested lists.
    """
    before, in_list, fenced = "", False, False
    for number, line in enumerate((DOCS / page).read_text().splitlines(), 1):
        fenced ^= line.startswith("```")
        item = None if fenced else re.match(r"( *)(?:[-*]|\d+\.) ", line)
        if item:
            indent = len(item[1])
            assert in_list or not before.strip(), (
                f"{page}, line {number}: put an empty line before the list"
            )
            assert indent == 0 or indent >= 4, (
                f"{page}, line {number}: indent the nested list by four spaces"
            )
        in_list = bool(item) or (in_list and bool(line.strip()))
        before = line
