"""A part of a page is replaced, and nothing else."""

from __future__ import annotations

import pytest

from tests.kits.pages import written_into

PAGE = "# Title\n<!-- a: begin -->\nold\n<!-- a: end -->\n<!-- b: begin -->\n<!-- b: end -->\nend"


def test_only_the_named_part_is_replaced() -> None:
    page = written_into(PAGE, "a", "new")
    assert page == PAGE.replace("old", "new")
    assert written_into(page, "b", "more").endswith("<!-- b: begin -->\nmore\n<!-- b: end -->\nend")


def test_a_page_without_the_part_is_refused() -> None:
    with pytest.raises(ValueError, match="no part 'c'"):
        written_into(PAGE, "c", "new")
