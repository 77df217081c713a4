"""The merge engine aggregation: each column is merged by its function (semantics.md §6.5).

With `aggregation.remove-record-on-delete`, a -D row replaces everything before it with its own values, and
later rows build on them, as in Java.
"""

import numpy as np
import pyarrow as pa

from paimon_stream.merge.folds import folded
from paimon_stream.merge.key_runs import KeyRuns
from paimon_stream.merge.order import flat
from paimon_stream.merge.row_actions import ADD, RETRACT, SET, RowActions, picked
from paimon_stream.merge.spec import KIND, SEQUENCE, MergeSpec

_INSERT, _DELETE = 0, 3


def aggregated(spec: MergeSpec, table: pa.Table, runs: KeyRuns) -> list[pa.Array]:
    """The table's columns, with one row per key. Every key has several input rows. Raises `InvalidData`."""
    newest = runs.ends - 1
    codes = np.where(runs.retracts, RETRACT, ADD)
    deleted = np.zeros(len(runs.starts), np.bool_)
    if spec.remove_on_delete:
        codes[runs.deletes] = SET
        deleted = runs.deletes[newest]
    actions = RowActions(runs, codes)
    columns = []
    for name in table.column_names:
        column = flat(table.column(name))
        rule = spec.rules.get(name)
        if name == KIND:
            columns.append(pa.array(np.where(deleted, _DELETE, _INSERT), column.type))
        elif name == SEQUENCE or rule is None:
            columns.append(picked(column, runs, newest))
        else:
            columns.append(folded(spec.table, name, column, rule, actions))
    return columns
