"""Spark's expressions that leave rows out: rows beyond a partition's share of a small batch, and
rows that are too wide for the driver or for an Arrow batch.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import array, explode, monotonically_increasing_id, when

from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import MAX_LENGTH, DataField, DataType, TypeRoot
from paimon_stream.spark.map_arrow import fixed_row_bytes, guarded, narrow_row
from paimon_stream.spark.write_plan import Share
from paimon_stream.write.arrow_batches import JOINED_ROWS

_TEXT: Final = DataType(root=TypeRoot.VARCHAR, precision=MAX_LENGTH)
_PLACE_BITS: Final = 2**33 - 1
"""The bits of `monotonically_increasing_id` that count the earlier rows of the partition."""


@dataclass(slots=True)
class LimitExpressions:
    """Spark's expressions for the limits that were used so far. Spark takes half the time for an
    expression that exists already, so the expressions are kept. `partitions` is the number of
    partitions of the last batch.
    """

    partitions: int = 1
    _places: dict[int, Column] = field(default_factory=dict)
    _rows: dict[tuple[Share, int, str | None], Column] = field(default_factory=dict)
    _guarded: dict[tuple[int, int, str | None], list[Column]] = field(default_factory=dict)

    def within_share(
        self, frame: DataFrame, share: Share, schema: TableSchema, operation: str | None
    ) -> Any:
        """The rows of the frame that are in the shares of their partitions, and one more row of
        each partition. NULL stands in the place of a row that is too wide.
        """
        rows = self.narrow_rows(share, schema, operation)
        if rows is None or _is_filtered(share):
            frame = frame.where(self.places(share))
        return frame if rows is None else frame.select(rows)

    def places(self, share: Share) -> Column:
        """Whether a row is in the share of its partition, or is the first row after it."""
        if share.rows not in self._places:
            self._places[share.rows] = _place() <= share.rows
        return self._places[share.rows]

    def narrow_rows(
        self, share: Share, schema: TableSchema, operation: str | None
    ) -> Column | None:
        """The rows as structs. The struct of a row that is too wide is NULL. The result is None if
        no row of the table can be too wide. `operation` names the text column that says what a row
        does. That column is added to the table's columns.

        If no filter has left out the rows beyond the share, this expression does: `explode` makes
        no row of a NULL.
        """
        fixed = fixed_row_bytes(schema)
        if (
            operation is None
            and fixed is not None
            and fixed <= min(share.usual_bytes, share.other_bytes)
        ):
            return None
        key = (share, schema.id, operation)
        if key not in self._rows:
            most = when(_place() < share.usual, share.usual_bytes).otherwise(share.other_bytes)
            row = narrow_row(_fields(schema, operation), most)
            if not _is_filtered(share):
                row = explode(when(self.places(share), array(row)))
            self._rows[key] = row
        return self._rows[key]

    def guarded(
        self, frame: DataFrame, most_bytes: int, schema: TableSchema, operation: str | None
    ) -> DataFrame:
        """The frame, with a column that says which rows have more than `most_bytes`
        (`map_arrow.guarded`). `operation` names the text column that says what a row does, if there
        is one.
        """
        key = (most_bytes, schema.id, operation)
        if key not in self._guarded:
            self._guarded[key] = guarded(_fields(schema, operation), most_bytes)
        return frame.select(*self._guarded[key])


def _is_filtered(share: Share) -> bool:
    """Whether a filter of its own leaves out the rows beyond the share. Spark analyses the frame
    once more for it. `explode` saves that, but it copies each row once more. So it is for few rows:
    at most as many as an Arrow batch has.
    """
    return share.rows > JOINED_ROWS


def _fields(schema: TableSchema, operation: str | None) -> list[DataField]:
    """The columns of the table, then the column that says what a row does, if there is one."""
    fields = [*schema.fields]
    if operation is not None:
        fields.append(DataField(id=-1, name=operation, type=_TEXT))
    return fields


def _place() -> Column:
    """The number of earlier rows in the row's partition."""
    return monotonically_increasing_id().bitwiseAND(_PLACE_BITS)
