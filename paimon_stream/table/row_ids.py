"""Row tracking gives each row of an append table an id. The row keeps its id when a compaction
moves it (table-kinds.md §5.1).
"""

from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import FormatError
from paimon_stream.format.deletion_vectors import Positions
from paimon_stream.format.entries import DataFileMeta
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.merge.spec import SEQUENCE, SEQUENCE_COLUMN

ROW_ID: Final = "_ROW_ID"
ROW_ID_COLUMN: Final = DataField(id=2_147_483_642, name=ROW_ID, type=parse_type("BIGINT NOT NULL"))


def tracked(schema: TableSchema) -> TableSchema:
    """The schema of the files that a compaction writes in a table with row tracking."""
    return replace(schema, fields=(*schema.fields, ROW_ID_COLUMN, SEQUENCE_COLUMN))


def fill_row_ids(batch: pa.RecordBatch, file: DataFileMeta, positions: Positions) -> pa.RecordBatch:
    """The rows of a batch, with their ids and sequence numbers filled in. `positions` are the
    places of the rows in the file. Raises `FormatError` if the file has no row ids.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    if columns[ROW_ID].null_count:
        if file.first_row_id is None:
            raise FormatError("its rows have no ids, which row-tracking.enabled requires")
        ids = pa.array(positions + file.first_row_id)
        columns[ROW_ID] = pc.coalesce(columns[ROW_ID], ids)
    columns[SEQUENCE] = pc.coalesce(columns[SEQUENCE], pa.scalar(file.max_sequence_number))
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)
