"""Rows that come in two forms: one for data files, and one for the changelog."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import BadRowKind
from paimon_stream.merge.spec import KIND
from paimon_stream.write.key_task import ONLY_LOGGED, write_keyed_task
from paimon_stream.write.task import WriteSpec

_NUMBER = itertools.count()
INPUT = {"bucket": "1", "changelog-producer": "input"}
PARTIAL = {**INPUT, "merge-engine": "partial-update"}


def written(
    options: dict[str, str], rows: list[tuple[int, str | None, int, bool]]
) -> tuple[list[dict[str, object]], list[str]]:
    """The rows of a table after these, and the kinds in its changelog. A row is a key, a value, a
    kind, and whether it is for the changelog only.
    """
    table = PaimonTable.create(
        f"memory://two-forms-{next(_NUMBER)}/db.db/t",
        [("k", "INT NOT NULL"), ("v", "STRING")],
        primary_keys=["k"],
        options=options,
    )
    inner = table._table
    batch = pa.RecordBatch.from_pydict(
        {
            "k": pa.array([row[0] for row in rows], pa.int32()),
            "v": pa.array([row[1] for row in rows], pa.string()),
            KIND: pa.array([row[2] for row in rows], pa.int8()),
            ONLY_LOGGED: pa.array([row[3] for row in rows]),
        }
    )
    spec = WriteSpec(storage=inner.storage, schema=inner.schema, options=inner.options)
    table.new_commit("u").commit(1, write_keyed_task(spec, [batch], first_sequence=0).messages)
    if options.get("changelog-producer") != "input":
        return table.to_arrow().to_pylist(), []
    since = {"incremental-between": "0,1", "read.changelog": "true"}
    log = table.to_arrow(columns=["rowkind", "k"], options=since)
    return table.to_arrow().to_pylist(), log.column(0).to_pylist()


@pytest.mark.parametrize("options", [INPUT, PARTIAL])
def test_rows_for_the_changelog_are_in_no_data_file_and_never_merged(
    options: dict[str, str],
) -> None:
    rows = [(1, "new", 2, False), (1, "old", 1, True), (1, "new", 2, True)]
    there, kinds = written(options, rows)
    assert there == [{"k": 1, "v": "new"}]
    assert kinds == ["-U", "+U"]


def test_rows_for_the_changelog_of_a_table_without_one_are_left_out() -> None:
    rows = [(1, "new", 2, False), (1, "old", 1, True)]
    table = {"bucket": "1"}
    there, _ = written(table, rows)
    assert there == [{"k": 1, "v": "new"}]


def test_kinds_that_the_table_ignores_are_not_in_its_changelog_either() -> None:
    rows = [(1, "new", 2, False), (1, "old", 1, True), (1, "new", 2, True)]
    _, kinds = written({**INPUT, "ignore-update-before": "true"}, rows)
    assert kinds == ["+U"]


def test_a_row_for_data_files_that_nobody_could_merge_is_refused() -> None:
    with pytest.raises(BadRowKind, match="partial-update cannot take back"):
        written(PARTIAL, [(1, "old", 3, False)])
