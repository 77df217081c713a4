"""Parts of the documentation that a run writes, between two marks."""

from __future__ import annotations


def written_into(page: str, part: str, text: str) -> str:
    """The page with this text between the marks of the part. Raises `ValueError` if it has no such
    part.
    """
    begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    before, found, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"the page has no part {part!r} between {begin} and {end}")
    return f"{before}{begin}\n{text}\n{end}{after}"
