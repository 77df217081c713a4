"""The page on formats shows what the matrix of changed types has."""

from __future__ import annotations

from tests.kits.conversions import PAGE, rendered


def test_the_page_shows_the_refused_and_differing_conversions_of_the_matrix() -> None:
    page = PAGE.read_text()
    assert rendered(page) == page, "run: python -m tests.kits.conversions"
