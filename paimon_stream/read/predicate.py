"""A condition on rows, given as a `pyarrow.compute.Expression`: its columns, and what it decides.
An expression cannot be looked into, so nothing here interprets one. What is known of some rows (of
a manifest, a file, a partition, a row group) is handed to Arrow as the guarantee of a dataset's
fragment that is never opened. Arrow says which fragments a scan with this condition would leave
out.

Why no row is lost:

- A guarantee is made only of statistics that hold for every row. Floats, bytes and nested types
  have no bounds here, unless there is only one row: NaN is beyond all bounds. An upper bound that
  ends in `?` is not used, because Java may write one that is too small (format.md §4.5). Nor are
  bounds that cannot be decoded. Those of CHAR are used without their padding, which ORC files have
  and their values do not. `known_of` in `scan.py` leaves out what cannot be trusted in a whole
  file.
- Arrow leaves nothing out by a range that also allows NULL. So rows with NULL are a fragment of
  their own: a file with NULLs in three columns is eight fragments, and is read if one of them is.
  Of further columns with NULLs nothing is said.
- What Arrow cannot conclude, or cannot compute, is read. Each batch is filtered exactly after that
  (`kept`).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import product, takewhile
from operator import and_
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import IncompatibleSchema, InvalidData, InvalidOption
from paimon_stream.format.arrow_types import arrow_schema
from paimon_stream.format.binary_columns import value_scalar
from paimon_stream.format.deletion_vectors import Positions
from paimon_stream.format.json_text import BROKEN
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.stats import ColumnStats
from paimon_stream.format.types import DataField, TypeRoot

_REFUSALS: Final = (
    pa.ArrowInvalid,
    pa.ArrowNotImplementedError,
    pa.ArrowKeyError,
    pa.ArrowTypeError,
)
_UNKNOWN: Final = re.compile(r"No match for FieldRef.Name\((.*?)\) in ", re.DOTALL)
_TEXTS: Final = re.compile(r'"(?:\\.|[^"\\])*"')
_BY_PLACE: Final = re.compile(r"(?<!\) FieldRef\.)\bFieldPath\(")
_POSITION: Final = "\0position"  # no column of a table has this name
_MOST_SPLIT: Final = 3

Known = tuple[Mapping[str, ColumnStats], int | None]
"""What is known of some rows: the statistics of columns, and how many rows there are."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition that fits a table's columns, of which it reads at least one. NULL does not fulfil
    it.
    """

    where: pc.Expression
    columns: tuple[DataField, ...]
    _table: pa.Schema

    @classmethod
    def of(cls, where: Any, schema: TableSchema, table: str, name: str = "where") -> "Predicate":
        """Raises `InvalidOption` for anything but an expression, `IncompatibleSchema` for one that
        the columns do not fit. `table` and `name`, that of the argument, are for messages.
        """
        if not isinstance(where, pc.Expression):
            text = f"{name} is {where!r}. Give a pyarrow.compute.Expression, such as pc.field('id') == 7."
            raise InvalidOption(text, option=name).of_table(table)
        if _BY_PLACE.search(
            _TEXTS.sub("", str(where))
        ):  # reads have the columns in another order, or some of them
            text = f"the condition {where} names a column by its position. Name it, such as pc.field('id')."
            raise InvalidOption(text, option=name).of_table(table)
        whole = arrow_schema(schema.fields)
        empty = whole.empty_table()
        why = _refusal(where, empty)
        if why is not None:
            unknown = _UNKNOWN.match(str(why))
            text = _first_line(why)
            if unknown:
                text = f"there is no column {unknown[1]!r}. The columns are: {', '.join(schema.field_names)}"
            text = f"the condition {where} does not fit the columns: {text}."
            raise IncompatibleSchema(text, column=unknown and unknown[1]).of_table(table)
        needed = [one for one in schema.fields if _refusal(where, empty.drop_columns([one.name]))]
        return cls(where, tuple(needed or schema.fields[:1]), whole)

    def possible(self, known: Iterable[Known]) -> list[bool]:
        """For each of these sets of rows, whether one of them can fulfil the condition; True in
        doubt.
        """
        from pyarrow.dataset import FileSystemDataset, ParquetFileFormat  # imports pandas

        kind, pieces, number = ParquetFileFormat(), [], -1
        for number, (stats, rows) in enumerate(known):
            of_columns = [
                _cases(one, stats[one.name], rows) for one in self.columns if one.name in stats
            ]
            split = [one for one in of_columns if len(one) == 2][:_MOST_SPLIT]
            named = pa.py_buffer(b"%d" % number)
            for case in product(*[one for one in of_columns if len(one) == 1], *split):
                pieces.append(
                    kind.make_fragment(
                        named, partition_expression=reduce(and_, case, pc.scalar(True))
                    )
                )
        whole = FileSystemDataset(pieces, self._table, kind)
        try:
            found = {int(one.buffer.to_pybytes()) for one in whole.get_fragments(filter=self.where)}
        except (
            pa.ArrowException
        ):  # the condition cannot be computed for a value; that is said when it is read
            return [True] * (number + 1)
        return [one in found for one in range(number + 1)]

    def kept(self, rows: pa.RecordBatch, table: str) -> pa.RecordBatch:
        """The rows that fulfil it, in their order. Raises `InvalidData` if it cannot be computed
        for a value.
        """
        try:
            found = self.positions(rows)
        except pa.ArrowException as why:
            text = f"the condition {self.where} cannot be computed for a row: {_first_line(why)}."
            raise InvalidData(text).of_table(table) from None
        return rows if len(found) == rows.num_rows else rows.take(pa.array(np.sort(found)))

    def positions(self, rows: pa.RecordBatch) -> Positions:
        """The rows that fulfil it, ascending. Raises `pyarrow.ArrowException` if it cannot be
        computed for a value.
        """
        numbered = pa.Table.from_batches([rows]).append_column(
            _POSITION, pa.array(np.arange(rows.num_rows))
        )
        found: Positions = numbered.filter(self.where).column(_POSITION).to_numpy()
        return found


def _refusal(where: pc.Expression, empty: pa.Table) -> Exception | None:
    """Why the condition does not fit these columns; None if it does."""
    try:
        empty.filter(where)
    except _REFUSALS as why:
        found: Exception = why
        return found
    return None


def _first_line(why: Exception) -> str:
    return str(why).splitlines()[0].rstrip(".")


def _cases(one: DataField, stats: ColumnStats, rows: int | None) -> list[pc.Expression]:
    """What holds for each value of the column, in up to two cases: Arrow prunes by no range that
    allows NULL.
    """
    column, low, high = pc.field(one.name), stats.min, stats.max
    if rows is not None and stats.null_count == rows:
        return [column.is_null()]
    nulls = [] if stats.null_count == 0 else [column.is_null()]
    is_float = one.type.is_float
    unordered = is_float or one.type.is_binary or one.type.is_nested  # NaN is beyond all bounds
    if one.type.root is TypeRoot.CHAR and low is not None:
        # The bounds of an ORC file are padded, and its values are not. Padded, a text comes before
        # its own beginning if it goes on with a character below the blank.
        low = "".join(takewhile(lambda character: character >= " ", low)).rstrip(" ")
    try:
        alone = (
            rows == 1 and low == high and not (is_float and low == 0)
        )  # 0.0 and -0.0 are equal, and not the same
        sure = low is not None and low <= high and (alone or not unordered)
        if sure and not (
            isinstance(high, str) and high.endswith("?")
        ):  # a bound of Java that may be too small
            bounds = [value_scalar(value, one.type) for value in (low, high)]
            known = (
                column == bounds[0]
                if low == high
                else (column >= bounds[0]) & (column <= bounds[1])
            )
            return [known, *nulls]
    except (*BROKEN, pa.ArrowException):
        pass
    return (
        [] if nulls or is_float else [column.is_valid()]
    )  # NaN is valid, but is_null(nan_is_null=True)
