"""The page of the protocol shows the facts and the rows as the code has them."""

from __future__ import annotations

from tests.kits.decision_page import PAGE, written


def test_the_page_shows_the_decision_as_it_is() -> None:
    page = PAGE.read_text()
    assert written(page) == page, "run: .venv/bin/python -m tests.kits.decision_page"
