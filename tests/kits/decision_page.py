"""The facts and the rows of the judgement, as the page of the protocol shows them:

.venv/bin/python -m tests.kits.decision_page
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import groupby
from pathlib import Path
from typing import Final

from paimon_stream.stream.facts import FIRST_BATCH, LATER_BATCH
from paimon_stream.stream.judgement import NEXT_ROWS, ROWS, Outcome, Row
from tests.kits.judged_facts import IMPOSSIBLE, IMPOSSIBLE_NEXT, Impossible
from tests.kits.pages import written_into

PAGE: Final = Path(__file__).parents[2] / "docs" / "spec" / "exactly-once.md"


def facts_in_words(facts: Sequence[type[Enum]]) -> str:
    """A table of the facts, with their values and what they prove."""
    lines = ["| fact | values | what it proves, and where it is missing |", "|---|---|---|"]
    for fact in facts:
        question, _, rest = (inspect.getdoc(fact) or "").partition("\n\n")
        values = "; ".join(f"`{one.name}`: {one.value}" for one in fact)
        about = _one_line(rest).replace("|", "\\|")
        lines.append(f"| **{fact.__name__}**: {_one_line(question)} | {values} | {about} |")
    return "\n".join(lines)


def rows_in_words(rows: Sequence[Row]) -> str:
    """A table of the rows, a line above each step."""
    lines = [
        "| if | the answer | if an operator continues | why |",
        "|---|---|---|---|",
    ]
    for step, of_step in groupby(rows, key=lambda row: row.step):
        lines.append(f"| **{step.name}**: *{step.value}* | | | |")
        for row in of_step:
            lines.append(
                f"| {values_in_words(row.when.items())} | {row.outcome.value} | {_then(row)} | {row.why} |"
            )
    return "\n".join(lines)


def _then(row: Row) -> str:
    """What follows, in words. A warning asks nobody."""
    if row.then is None:
        return ""
    follows = row.then.value if isinstance(row.then, Outcome) else f"→ {row.then.name}"
    return f"(always) {follows}" if row.outcome is Outcome.WARNING else follows


def impossible_in_words(impossible: Sequence[Impossible]) -> str:
    """A table of the combinations that cannot be."""
    lines = ["| cannot be | why |", "|---|---|"]
    lines += [f"| {values_in_words(one.box.items())} | {one.why} |" for one in impossible]
    return "\n".join(lines)


def values_in_words(values: Iterable[tuple[type[Enum], frozenset[Enum]]]) -> str:
    """The values of facts, in the order of their enumerations."""
    return ", ".join(
        f"{fact.__name__} " + " or ".join(f"`{one.name}`" for one in fact if one in allowed)
        for fact, allowed in values
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())


PARTS: Final = {
    "facts of a first batch": facts_in_words(FIRST_BATCH),
    "rows of a first batch": rows_in_words(ROWS),
    "impossible in a first batch": impossible_in_words(IMPOSSIBLE),
    "facts of a later batch": facts_in_words(LATER_BATCH),
    "rows of a later batch": rows_in_words(NEXT_ROWS),
    "impossible in a later batch": impossible_in_words(IMPOSSIBLE_NEXT),
}


def written(page: str) -> str:
    """The page with all parts."""
    for part, text in PARTS.items():
        page = written_into(page, part, text)
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
