"""What users may rely on is what the committed list says, and nothing of it goes unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest

FROZEN = Path(__file__).parents[2] / "persisted" / "surface.txt"


def test_names_options_commands_and_documents_are_those_of_the_committed_list() -> None:
    pytest.importorskip("click", reason="the commands need the extra cli")
    pytest.importorskip("rich", reason="the commands need the extra cli")
    pytest.importorskip("pyspark.sql.datasource", reason="one name needs Spark 4")
    from tests.kits.surface import surface

    promised = FROZEN.read_text().splitlines()
    present = surface().splitlines()
    gone = [line for line in promised if line not in present]
    added = [line for line in present if line not in promised]
    assert (gone, added) == ([], []), (
        "docs/promise.md says what may change. If this change may be made, it is in CHANGELOG.md, "
        "and python -m tests.kits.surface > tests/persisted/surface.txt renders the list."
    )
    assert len(promised) == len(set(promised))
