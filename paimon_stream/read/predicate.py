"""A condition on rows, given as a `pyarrow.compute.Expression`: its columns, and what it decides."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import IncompatibleSchema, InvalidOption
from paimon_stream.format.arrow_types import arrow_schema
from paimon_stream.format.binary_columns import value_scalar
from paimon_stream.format.deletion_vectors import Positions
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField

_REFUSALS: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError, pa.ArrowTypeError)
_POSITION: Final = "\0position"  # no column of a table has this name


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition that fits a table's columns. A row for which it is NULL does not fulfil it. `columns` are those
    that it reads; one at least."""

    where: pc.Expression
    columns: tuple[DataField, ...]
    _table: pa.Schema

    @classmethod
    def of(cls, where: Any, schema: TableSchema, table: str) -> "Predicate":
        """Raises `InvalidOption` for anything but an expression, `IncompatibleSchema` for one that the columns do
        not fit. `table` is for messages."""
        if not isinstance(where, pc.Expression):
            raise InvalidOption(
                f"where is {where!r}. Give a pyarrow.compute.Expression, such as pc.field('id') == 7.", option="where"
            ).of_table(table)
        whole = arrow_schema(schema.fields)
        empty = whole.empty_table()
        try:
            empty.filter(where)
        except _REFUSALS as why:
            raise IncompatibleSchema(
                f"the condition {where} does not fit the columns: {str(why).splitlines()[0].rstrip('.')}."
            ).of_table(table) from None
        needed = [one for one in schema.fields if not _fits(where, empty.drop_columns([one.name]))]
        return cls(where, tuple(needed or schema.fields[:1]), whole)

    def may_hold(self, values: Mapping[str, Any], schema: TableSchema) -> bool:
        """Whether rows of a partition can fulfil it. `values` are those of the partition columns, in their
        internal form."""
        known = [
            pc.field(name).is_null()
            if value is None
            else pc.field(name) == value_scalar(value, schema.field(name).type)
            for name, value in values.items()
            if value == value  # nothing is known of NaN
        ]
        if not known:
            return True
        import pyarrow.dataset as ds  # imports pandas

        kind = ds.ParquetFileFormat()
        piece = kind.make_fragment(pa.BufferReader(b""), partition_expression=reduce(and_, known))
        whole = ds.FileSystemDataset([piece], self._table, kind)
        return any(True for _ in whole.get_fragments(filter=self.where))

    def positions(self, rows: pa.RecordBatch) -> Positions:
        """Which rows fulfil it, ascending. `rows` have the columns. Raises `pyarrow.ArrowException` for a value that
        the condition cannot be computed for."""
        numbered = pa.Table.from_batches([rows]).append_column(_POSITION, pa.array(np.arange(rows.num_rows)))
        found: Positions = numbered.filter(self.where).column(_POSITION).to_numpy()
        return found


def _fits(where: pc.Expression, empty: pa.Table) -> bool:
    try:
        empty.filter(where)
    except _REFUSALS:
        return False
    return True
