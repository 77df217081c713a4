"""docs/runbooks.md is what its generator makes of a fresh run of the accidents."""

from __future__ import annotations

from pathlib import Path

from docs.generators import runbooks

ROOT = Path(__file__).parents[3]


def test_the_runbooks_are_what_a_run_of_the_accidents_shows() -> None:
    page = (ROOT / "docs" / "runbooks.md").read_text()
    assert page == runbooks.render(), "run: python -m docs.generators.runbooks > docs/runbooks.md"
