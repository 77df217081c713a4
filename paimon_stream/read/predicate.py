"""A condition on rows, given as a `pyarrow.compute.Expression`: which columns it reads, and which
rows it keeps.

This module does not decide which values fulfil a condition. Arrow decides that. The facts known
about the rows of a manifest, file, partition or row group become the guarantee of a fragment of an
Arrow dataset. This fragment is never opened. Arrow says which fragments a scan with this condition
would leave out.

Why no row is lost:

- A guarantee is made only of statistics that hold for every row.
  - Floats, bytes and nested types have no bounds here, unless there is only one row: NaN is beyond
    all bounds.
  - An upper bound that ends in `?` is not used, because Java may write one that is too small
    (format.md §4.5).
  - Bounds that cannot be decoded are not used.
  - A lower bound of CHAR is used without its padding. ORC files have the padding in the bounds, but
    not in the values.
  - `known_of` in `scan.py` leaves out what cannot be trusted in a whole file.
- Arrow leaves nothing out by a range that also allows NULL. So rows with NULL are a fragment of
  their own: a file with NULLs in three columns is eight fragments, and it is read if one of them
  is. If more columns have NULLs, nothing is said of the others.
- If Arrow cannot conclude anything, or cannot compute the condition, the rows are read. Afterwards
  each batch is filtered exactly (`kept`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from paimon_stream.format.types import DataField, DataType, TypeRoot
from paimon_stream.read.condition import Condition

_MISFITS: Final = (
    pa.ArrowInvalid,
    pa.ArrowNotImplementedError,
    pa.ArrowKeyError,
    pa.ArrowTypeError,
)
"""What Arrow raises for a condition that does not fit the columns."""
_UNKNOWN_COLUMN: Final = re.compile(r"No match for FieldRef.Name\((.*?)\) in ", re.DOTALL)
_STRING_LITERALS: Final = re.compile(r'"(?:\\.|[^"\\])*"')
_BY_POSITION: Final = re.compile(r"(?<!\) FieldRef\.)\bFieldPath\(")
_POSITION: Final = "\0position"  # no column of a table has this name
_MOST_SPLIT: Final = 3
"""The most columns in which rows with NULL are a case of their own."""

Known = tuple[Mapping[str, ColumnStats], int | None]
"""What is known of some rows: the statistics of columns by their names, and how many rows there
are; None if that is unknown.
"""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition that fits a table's columns. NULL does not fulfil it.

    Attributes:
        where: the condition.
        columns: the columns that it reads, at least one.
    """

    where: pc.Expression
    columns: tuple[DataField, ...]
    _shorter: pc.Expression
    """Keeps the same rows."""
    _schema: pa.Schema
    """Of these columns."""

    @classmethod
    def of(
        cls, where: object, schema: TableSchema, location: str, name: str = "where"
    ) -> "Predicate":
        """Makes a predicate of a condition.

        Args:
            where: the condition that the caller gave.
            schema: the schema with the columns.
            location: where the table is, for messages.
            name: the name of the caller's argument, for messages.

        Raises:
            InvalidOption: `where` is not an expression, or it names a column by its position.
            IncompatibleSchema: the condition does not fit the columns.
        """
        if not isinstance(where, pc.Expression):
            raise InvalidOption(
                f"{name} is {where!r}. Give a pyarrow.compute.Expression, such as "
                "pc.field('id') == 7.",
                option=name,
            ).of_table(location)
        if _BY_POSITION.search(_STRING_LITERALS.sub("", str(where))):
            # In a read, the columns may be in another order, or only some of them are read.
            raise InvalidOption(
                f"the condition {where} names a column by its position. Name it, such as "
                "pc.field('id').",
                option=name,
            ).of_table(location)
        empty = arrow_schema(schema.fields).empty_table()
        misfit = _misfit(where, empty)
        if misfit is not None:
            raise _does_not_fit(where, schema, misfit).of_table(location)
        parts = Condition.of(where)
        names = _names_read(where, empty, empty.column_names) if parts is None else parts.columns
        columns = [column for column in schema.fields if column.name in names]
        columns = columns or [schema.fields[0]]
        arrow = arrow_schema(columns)
        return cls(where, tuple(columns), where if parts is None else parts.folded(arrow), arrow)

    def possible(self, known: Iterable[Known]) -> list[bool]:
        """Says for each of these sets of rows whether at least one row can fulfil the condition. In
        doubt, the answer is True.
        """
        from pyarrow.dataset import FileSystemDataset, ParquetFileFormat  # imports pandas

        parquet = ParquetFileFormat()
        fragments = []
        count = 0
        for number, (stats, rows) in enumerate(known):
            content = pa.py_buffer(b"%d" % number)
            for guarantee in self._guarantees(stats, rows):
                fragments.append(parquet.make_fragment(content, partition_expression=guarantee))
            count = number + 1
        dataset = FileSystemDataset(fragments, self._schema, parquet)
        try:
            left = {
                int(fragment.buffer.to_pybytes())
                for fragment in dataset.get_fragments(filter=self._shorter)
            }
        except pa.ArrowException:
            # The condition cannot be computed for a value. The error is raised later, when the rows
            # are read.
            return [True] * count
        return [number in left for number in range(count)]

    def _guarantees(
        self, stats: Mapping[str, ColumnStats], rows: int | None
    ) -> Iterator[pc.Expression]:
        """Some conditions. Each of the rows fulfils at least one of them."""
        cases_by_column = [
            _cases(column, stats[column.name], rows)
            for column in self.columns
            if column.name in stats
        ]
        certain = [cases for cases in cases_by_column if len(cases) == 1]
        split = [cases for cases in cases_by_column if len(cases) == 2]
        for combination in product(*certain, *split[:_MOST_SPLIT]):
            yield reduce(and_, combination, pc.scalar(True))

    def kept(self, rows: pa.RecordBatch, location: str) -> pa.RecordBatch:
        """The rows that fulfil the condition, in their order. `location` is where the table is, for
        the message. Raises `InvalidData` if the condition cannot be computed for a value.
        """
        try:
            positions = self.positions(rows)
        except pa.ArrowException as error:
            raise InvalidData(
                f"the condition {self.where} cannot be computed for a row: {_first_line(error)}."
            ).of_table(location) from None
        if len(positions) == rows.num_rows:
            return rows
        return rows.take(pa.array(np.sort(positions)))

    def positions(self, rows: pa.RecordBatch) -> Positions:
        """The positions of the rows that fulfil the condition, ascending. Raises
        `pyarrow.ArrowException` if the condition cannot be computed for a value.
        """
        read = pa.Table.from_batches([rows.select(self._schema.names)])
        numbered = read.append_column(_POSITION, pa.array(np.arange(rows.num_rows)))
        positions: Positions = numbered.filter(self._shorter).column(_POSITION).to_numpy()
        return positions


def _misfit(where: pc.Expression, empty: pa.Table) -> Exception | None:
    """Arrow's error if the condition does not fit the columns of an empty table; None if it
    does.
    """
    misfit: Exception | None = None
    try:
        empty.filter(where)
    except _MISFITS as error:
        misfit = error
    return misfit


def _names_read(where: pc.Expression, empty: pa.Table, names: Sequence[str]) -> set[str]:
    """The names of those columns of an empty table that the condition reads. Without such a column,
    the condition does not fit the table.
    """
    if _misfit(where, empty.drop_columns(names)) is None:
        return set()
    if len(names) == 1:
        return set(names)
    half = len(names) // 2
    return _names_read(where, empty, names[:half]) | _names_read(where, empty, names[half:])


def _does_not_fit(
    where: pc.Expression, schema: TableSchema, misfit: Exception
) -> IncompatibleSchema:
    unknown = _UNKNOWN_COLUMN.match(str(misfit))
    if unknown is None:
        return IncompatibleSchema(
            f"the condition {where} does not fit the columns: {_first_line(misfit)}.", column=None
        )
    return IncompatibleSchema(
        f"the condition {where} does not fit the columns: there is no column {unknown[1]!r}. The "
        f"columns are: {', '.join(schema.field_names)}.",
        column=unknown[1],
    )


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".")


def _cases(column: DataField, stats: ColumnStats, rows: int | None) -> list[pc.Expression]:
    """Conditions for the values of a column. Each value fulfils one of them. There are one or two
    conditions, or none if nothing is certain. NULL has a condition of its own, because Arrow leaves
    nothing out by a range that also allows NULL.
    """
    reference = pc.field(column.name)
    if rows is not None and stats.null_count == rows:
        return [reference.is_null()]
    may_be_null = stats.null_count != 0
    in_bounds = _in_bounds(column, stats, rows)
    if in_bounds is not None:
        return [in_bounds, reference.is_null()] if may_be_null else [in_bounds]
    if may_be_null or column.type.is_float:
        # A float may be NaN. Such a float is valid, and yet is_null(nan_is_null=True) is true for
        # it.
        return []
    return [reference.is_valid()]


def _in_bounds(column: DataField, stats: ColumnStats, rows: int | None) -> pc.Expression | None:
    """The condition that a value is within the bounds of the statistics; None if that is not
    certain for all values.
    """
    low = stats.min
    high = stats.max
    if low is None:
        return None
    if column.type.root is TypeRoot.CHAR:
        # The bounds of an ORC file are padded, and its values are not. A padded bound can sort
        # after a longer text that begins with the same characters. This happens if that text
        # continues with a character below the blank.
        low = "".join(takewhile(lambda character: character >= " ", low)).rstrip(" ")
    try:
        if not _holds_for_all(column.type, low, high, rows):
            return None
        reference = pc.field(column.name)
        first = value_scalar(low, column.type)
        last = value_scalar(high, column.type)
        if low == high:
            return reference == first
        return (reference >= first) & (reference <= last)
    except (*BROKEN, pa.ArrowException):
        return None  # the bounds cannot be compared or decoded


def _holds_for_all(type_: DataType, low: Any, high: Any, rows: int | None) -> bool:
    """Whether all values of a column that are not NULL are within these bounds, which are in
    internal form. Raises one of `BROKEN` if the bounds cannot be compared.
    """
    if type_.is_float or type_.is_binary or type_.is_nested:
        # The bounds of these types do not limit all values, because NaN is beyond all bounds. Only
        # in a file of one row are equal bounds certain.
        is_any_zero = type_.is_float and low == 0  # 0.0 and -0.0 are equal, and not the same
        if rows != 1 or low != high or is_any_zero:
            return False
    # Java may write an upper bound that is too small. Java marks such a bound.
    is_cut = isinstance(high, str) and high.endswith("?")
    return bool(low <= high) and not is_cut
