"""Processes that write the same loads at once, each load under its identity: every row is there
once.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from paimon_stream import PaimonTable
from tests.kits.seeds import examples
from tests.kits.store_writers import COLUMNS, Crowd, load_once

PROCESSES = 3
ROWS = 4


def test_processes_that_write_the_same_loads_write_each_once(tmp_path: Path) -> None:
    location = str(tmp_path / "shop.db" / "t")
    # Snapshots expire at once, so that only receipts tell of most loads.
    options = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"}
    table = PaimonTable.create(location, COLUMNS, options=options)
    loads = examples(12, 60)
    with Crowd(PROCESSES) as crowd:
        results = crowd.run(load_once, [(location, {}, loads, ROWS)] * PROCESSES)
    outcomes = Counter(outcome for result in results for outcome in result)
    ids = table.to_arrow()["id"].to_pylist()
    assert len(ids) == len(set(ids)) == loads * ROWS
    assert outcomes["committed"] <= loads
    assert table.verify().healthy
    folders = [path.name for path in (tmp_path / "shop.db" / "t" / "_paimon_stream").iterdir()]
    assert "once.receipts" in folders
