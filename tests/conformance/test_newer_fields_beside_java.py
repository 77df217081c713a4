"""Java 1.4.2 reads metadata in which we have kept what a newer writer put there, and goes on."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from paimon_stream import PaimonTable
from tests.kits.reading import assert_rows, java_rows
from tests.kits.seeds import seeds
from tests.property.test_unknown_fields import NewerTable


@pytest.mark.parametrize("seed", seeds(2, 20))
def test_java_reads_it_and_commits_to_it(kinds: Any, tmp_path: Path, seed: int) -> None:
    newer = NewerTable(tmp_path / "db.db/t", Random(seed), of_paimon=True)
    newer.table.compact_manifests()
    newer.table.create_branch("b", "old")
    table = PaimonTable.load(newer.table.location)
    rows = table.to_arrow()
    assert rows.num_rows == 8
    assert_rows(rows, table.schema.fields, java_rows(kinds, table))
    kinds.write(newer.location, [{"p": 1, "k": 99, "r": None}], "w", 1)
    newer.append(5)
    newer.table.compact_manifests()
    rows = table.to_arrow()
    assert rows.num_rows == 12
    assert_rows(rows, table.schema.fields, java_rows(kinds, table))
