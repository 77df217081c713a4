"""Merges the rows of a source into the rows of a target: what MERGE of SQL does, as a function of
Arrow's tables.

The target comes in parts, and the source is in memory. Keys decide which rows meet (`merge_keys.py`);
only rows of which a clause says something are put together.

Invariants:

- The first clause that holds for a row decides. A predicate is computed only for rows for which no
  earlier one held, and values only for rows that get them.
- No target row is changed twice. If two rows of the source would change it, that is an error.
- A row of the source is matched if it meets a target row and `on` holds, whether or not a clause
  then holds.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.change.merge_clauses import (
    SOURCE,
    TARGET,
    Action,
    MergePlan,
    PlannedClause,
    When,
)
from paimon_stream.change.merge_keys import Ints, SourceKeys
from paimon_stream.errors import AmbiguousMerge, IncompatibleSchema, InvalidData, UnsupportedFeature
from paimon_stream.format.arrow_types import arrow_schema, from_arrow
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataType, arrow_type
from paimon_stream.read.sql_values import column_of
from paimon_stream.write.conform import ColumnPlan

_MOST_PAIRS: Final = 1_000_000
"""How many pairs of rows are put together at once, unless one target row has more."""
MOST_LISTED: Final = 300
"""With more keys, files are chosen by the lowest and the highest key."""
_SHOWN: Final = 3
"""How many keys a message shows."""
_NO_CLAUSE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedPart:
    """What a merge does with a part of the target.

    Attributes:
        updated: the new values of the updated rows.
        updated_at: the places of these rows in the part, in the order of `updated`.
        deleted_at: the places of the rows that are deleted, ascending.
        met_at: the places of the rows that match a row of the source, ascending. Some of them may
            stay as they are.
    """

    updated: pa.Table
    updated_at: Ints
    deleted_at: Ints
    met_at: Ints


def source_rows(
    rows: pa.Table, schema: TableSchema, location: str
) -> tuple[pa.Table, Mapping[str, DataType]]:
    """The rows of a source in types with which values are computed, and the types of its columns.

    Args:
        rows: the rows.
        schema: the schema of the target. Nested columns get the types that it has for their names.
        location: where the table is, for messages.

    Raises:
        IncompatibleSchema: a name comes twice, or a nested column does not fit the table's.
        UnsupportedFeature: a column has a type without a counterpart.
        InvalidData: a value does not fit.
    """
    names = rows.column_names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise IncompatibleSchema(
            f"the source has the column {twice[0]!r} more than once. Name every column once.",
            column=twice[0],
        ).of_table(location)
    columns = []
    types = {}
    for name in names:
        column, types[name] = _source_column(rows, name, schema, location)
        columns.append(column)
    return pa.Table.from_arrays(columns, names=names), types


def _source_column(
    rows: pa.Table, name: str, schema: TableSchema, location: str
) -> tuple[pa.ChunkedArray, DataType]:
    """A column of the source, and its type."""
    column = rows.column(name)
    field = schema.by_name.get(name)
    try:
        type_ = from_arrow(column.type)
    except UnsupportedFeature:
        if field is None:
            raise UnsupportedFeature(
                f"the source's column {name!r} is of Arrow's type {column.type}, which is not computed with. Cast or drop "
                "it.",
                column=name,
            ).of_table(location) from None
        type_ = field.type
    if field is not None and type_.is_nested == field.type.is_nested is True:
        type_ = field.type
    wanted = arrow_type(type_)
    if column.type == wanted:
        return column, type_
    if field is None or type_ is not field.type:
        try:
            return column.cast(wanted), type_
        except pa.ArrowException as error:
            raise InvalidData(
                f"the source's column {name!r} cannot be read as {type_}: {_first_line(error)}.",
                column=name,
            ).of_table(location) from None
    plan = ColumnPlan(
        table=location,
        fields=(field,),
        arrow=pa.schema([pa.field(name, wanted)]),
        defaults=(None,),
    )
    batches = [plan.conform(batch) for batch in rows.select([name]).to_batches()]
    return pa.Table.from_batches(batches, plan.arrow).column(0), type_


class MergeRows:
    """Merges one source into the rows of a target, part by part.

    Attributes:
        updated: how many rows were updated so far.
        deleted: how many rows were deleted so far.
    """

    def __init__(self, plan: MergePlan, source: pa.Table, location: str) -> None:
        """`source` has the rows of the source, as `source_rows` returns them. `location` is where
        the table is, for messages.
        """
        self._plan = plan
        self._location = location
        self._source = source.rename_columns([SOURCE + name for name in source.column_names])
        sources = [pair.source for pair in plan.keys]
        self._source_keys = key_columns(self._source, sources, location)
        self._keys = SourceKeys(self._source_keys, [pair.null_equals_null for pair in plan.keys])
        self._is_matched = np.zeros(source.num_rows, np.bool_)
        self._schema = arrow_schema(plan.schema.fields)
        self.updated = 0
        self.deleted = 0

    def of_target(self, rows: pa.Table) -> MergedPart:
        """What the merge does with a part of the target. `rows` has at least the columns
        `MergePlan.target_columns`. Each row is given once.

        Raises:
            AmbiguousMerge: two rows of the source would change one row.
            InvalidData: a value cannot be computed.
        """
        target = rows.rename_columns([TARGET + name for name in rows.column_names])
        numbers = self._keys.numbered(self.target_keys(target))
        if self._every_pair_changes():  # equal keys on both sides may make very many pairs
            self._refuse_several(np.flatnonzero(self._keys.counts(numbers) > 1), target)
        target_places, source_places = self._keys.pairs(numbers)
        is_met = np.zeros(rows.num_rows, np.bool_)
        outcome = _Outcome(self._schema)
        for part in _slices(target_places):
            self._matched(target, target_places[part], source_places[part], is_met, outcome)
        clauses = self._plan.of(When.NOT_MATCHED_BY_SOURCE)
        if clauses:
            (alone,) = np.nonzero(~is_met)
            decided = self._decided(clauses, target.take(pa.array(alone)))
            self._act(clauses, decided, target, alone, None, outcome)
        merged = outcome.merged(is_met)
        self.updated += len(merged.updated_at)
        self.deleted += len(merged.deleted_at)
        return merged

    def concerns(self, rows: pa.Table) -> bool:
        """Whether one of these rows has a key of the source, or a clause about rows without a match
        holds for it. `rows` has at least the columns `MergePlan.deciding_columns`. They are not
        merged. Raises `InvalidData`.
        """
        target = rows.rename_columns([TARGET + name for name in rows.column_names])
        if self._keys.counts(self._keys.numbered(self.target_keys(target))).any():
            return True
        clauses = self._plan.of(When.NOT_MATCHED_BY_SOURCE)
        return bool((self._decided(clauses, target) != _NO_CLAUSE).any())

    def possible_keys(self) -> pc.Expression | None:
        """A condition that each row fulfils that has a key of the source, for the statistics of
        files; None if there is no such condition.
        """
        conditions = []
        for pair, keys in zip(self._plan.keys, self._source_keys, strict=True):
            if pair.column is None or pair.null_equals_null:
                continue
            values = values_in(keys, self._schema.field(pair.column).type)
            if values is not None:
                conditions.append(one_of(pc.field(pair.column), values))
        return reduce(and_, conditions) if conditions else None

    def inserted(self) -> pa.Table:
        """The rows that are inserted, after the whole target was given. Raises `InvalidData`."""
        clauses = self._plan.of(When.NOT_MATCHED)
        (alone,) = np.nonzero(~self._is_matched)
        tables = []
        if clauses and len(alone):
            rows = self._source.take(pa.array(alone))
            decided = self._decided(clauses, rows)
            for number, planned in enumerate(clauses):
                chosen = rows.filter(pa.array(decided == number))
                if chosen.num_rows:
                    tables.append(self._values(planned, chosen))
        return pa.concat_tables([_nullable(self._schema).empty_table(), *tables])

    def target_keys(self, target: pa.Table) -> list[pa.Array]:
        """The key columns of target rows, whose columns have the prefix. Raises `InvalidData`."""
        return key_columns(target, [pair.target for pair in self._plan.keys], self._location)

    def _computed(self, rows: pa.Table, expression: pc.Expression, place: str) -> pa.ChunkedArray:
        return _computed(rows, expression, place, self._location)

    def _matched(
        self,
        target: pa.Table,
        target_places: Ints,
        source_places: Ints,
        is_met: npt.NDArray[np.bool_],
        outcome: "_Outcome",
    ) -> None:
        """Tries the clauses for some pairs of rows with the same keys."""
        pairs = self._pairs(target, target_places, source_places)
        if self._plan.rest is not None:
            holds = _flags(self._computed(pairs, self._plan.rest, "on"))
            pairs = pairs.filter(pa.array(holds))
            target_places = target_places[holds]
            source_places = source_places[holds]
        is_met[target_places] = True
        self._is_matched[source_places] = True
        clauses = self._plan.of(When.MATCHED)
        if not clauses:
            return
        decided = self._decided(clauses, pairs)
        changed = target_places[decided != _NO_CLAUSE]
        self._refuse_several(np.unique(changed[1:][changed[1:] == changed[:-1]]), target)
        self._act(clauses, decided, target, target_places, source_places, outcome)

    def _pairs(self, target: pa.Table, target_places: Ints, source_places: Ints) -> pa.Table:
        columns = self._plan.columns_of_pairs
        left = target.select([name for name in target.column_names if name in columns])
        right = self._source.select([name for name in self._source.column_names if name in columns])
        return _beside(
            left.take(pa.array(target_places)),
            right.take(pa.array(source_places)),
            len(target_places),
        )

    def _every_pair_changes(self) -> bool:
        """Whether two rows with the same keys always match, and a clause then always holds."""
        clauses = self._plan.of(When.MATCHED)
        return self._plan.rest is None and any(planned.predicate is None for planned in clauses)

    def _refuse_several(self, rows: Ints, target: pa.Table) -> None:
        """Raises `AmbiguousMerge` if there are rows: those that several rows of the source would
        change.
        """
        if not len(rows):
            return
        shown = target.take(pa.array(rows[:_SHOWN]))
        keys = [self._computed(shown, pair.target, "on").to_pylist() for pair in self._plan.keys]
        names = ", ".join(
            repr(values[0] if len(values) == 1 else values) for values in zip(*keys, strict=True)
        )
        raise AmbiguousMerge(
            f"several rows of the source would change the same row, so it is open which values it gets. The keys of "
            f"such rows: {names}. Nothing was changed. Give the source one row for each key, or let a predicate choose.",
            count=len(rows),
        ).of_table(self._location)

    def _decided(self, clauses: Sequence[PlannedClause], rows: pa.Table) -> Ints:
        """For each row the number of the first clause that holds; `_NO_CLAUSE` if none does."""
        decided = np.full(rows.num_rows, _NO_CLAUSE, np.int64)
        for number, planned in enumerate(clauses):
            (open_rows,) = np.nonzero(decided == _NO_CLAUSE)
            if planned.predicate is None:
                decided[open_rows] = number
                break
            candidates = rows
            if len(open_rows) < rows.num_rows:
                candidates = rows.take(pa.array(open_rows))
            place = f"the predicate of {planned.clause.name}"
            holds = _flags(self._computed(candidates, planned.predicate, place))
            decided[open_rows[holds]] = number
        return decided

    def _act(
        self,
        clauses: Sequence[PlannedClause],
        decided: Ints,
        target: pa.Table,
        target_places: Ints,
        source_places: Ints | None,
        outcome: "_Outcome",
    ) -> None:
        """Does what the clauses say. `target_places` and `source_places` are the rows for which
        they were decided.
        """
        for number, planned in enumerate(clauses):
            (chosen,) = np.nonzero(decided == number)
            if not len(chosen):
                continue
            places = target_places[chosen]
            if planned.clause.action is Action.DELETE:
                outcome.delete(places)
                continue
            rows = target.take(pa.array(places))
            if source_places is not None:
                rows = _beside(
                    rows, self._source.take(pa.array(source_places[chosen])), len(places)
                )
            outcome.update(places, self._values(planned, rows))

    def _values(self, planned: PlannedClause, rows: pa.Table) -> pa.Table:
        """The rows that the clause makes, with the columns of the table."""
        columns = []
        for field in self._schema:
            place = f"{planned.clause.name}: {field.name}"
            column = self._computed(rows, planned.values[field.name], place)
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.Table.from_arrays(columns, schema=_nullable(self._schema))


class _Outcome:
    """Collects what a merge does with a part of the target."""

    def __init__(self, schema: pa.Schema) -> None:
        self._updated = [_nullable(schema).empty_table()]
        self._updated_at: list[Ints] = [np.empty(0, np.int64)]
        self._deleted_at: list[Ints] = [np.empty(0, np.int64)]

    def update(self, places: Ints, rows: pa.Table) -> None:
        """Notes the new values of rows."""
        self._updated_at.append(places)
        self._updated.append(rows)

    def delete(self, places: Ints) -> None:
        """Notes rows that are deleted."""
        self._deleted_at.append(places)

    def merged(self, is_met: npt.NDArray[np.bool_]) -> MergedPart:
        """All that was noted. `is_met` says for each row of the part whether it has a match."""
        return MergedPart(
            updated=pa.concat_tables(self._updated),
            updated_at=np.concatenate(self._updated_at),
            deleted_at=np.sort(np.concatenate(self._deleted_at)),
            met_at=np.flatnonzero(is_met),
        )


def key_columns(
    rows: pa.Table, expressions: Sequence[pc.Expression], location: str
) -> list[pa.Array]:
    """The values by which rows are matched. Their columns have a prefix. Raises `InvalidData`."""
    return [contiguous(_computed(rows, expression, "on", location)) for expression in expressions]


def _computed(
    rows: pa.Table, expression: pc.Expression, place: str, location: str
) -> pa.ChunkedArray:
    """The value of each row. `place` is where the expression stands, for the message."""
    try:
        return column_of(rows, expression)
    except pa.ArrowException as error:
        raise InvalidData(
            f"{place} cannot be computed for a row: {_first_line(error)}. Nothing was changed."
        ).of_table(location) from None


def _slices(target_places: Ints) -> Iterator[slice]:
    """Parts of the pairs. All pairs of a target row are in one part."""
    start = 0
    while start < len(target_places):
        end = min(start + _MOST_PAIRS, len(target_places))
        if end < len(target_places):
            first = int(np.searchsorted(target_places, target_places[end]))
            end = (
                first
                if first > start
                else int(np.searchsorted(target_places, target_places[end], "right"))
            )
        yield slice(start, end)
        start = end


def _beside(left: pa.Table, right: pa.Table, rows: int) -> pa.Table:
    """A table with the columns of both."""
    arrays = [*left.columns, *right.columns]
    if not arrays:
        arrays = [pa.nulls(rows)]
        return pa.Table.from_arrays(arrays, names=[""])
    return pa.Table.from_arrays(arrays, names=[*left.column_names, *right.column_names])


def values_in(keys: pa.Array, type_: pa.DataType) -> pa.Array | None:
    """Those keys that a column of this type can have, each once; None if that is not certain."""
    values = pc.unique(keys.drop_null())
    if pa.types.is_integer(type_) and pa.types.is_integer(keys.type):
        limits = np.iinfo(type_.to_pandas_dtype())
        fits = pc.and_(
            pc.greater_equal(values, pa.scalar(limits.min, pa.int64())),
            pc.less_equal(values, pa.scalar(limits.max, pa.int64())),
        )
        return values.filter(fits).cast(type_)
    # NaN and -0.0 have no place among statistics.
    return values if keys.type == type_ and not pa.types.is_floating(type_) else None


def one_of(column: pc.Expression, values: pa.Array) -> pc.Expression:
    """A condition that the column fulfils if it is one of the values."""
    is_ordered = not (pa.types.is_binary(values.type) or pa.types.is_boolean(values.type))
    if len(values) <= MOST_LISTED or not is_ordered:
        return column.isin(values)
    bounds = pc.min_max(values)
    return (column >= bounds["min"]) & (column <= bounds["max"])


def contiguous(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array."""
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):  # pyarrow 18 returns one for an empty column
        return (
            pa.concat_arrays(combined.chunks) if combined.num_chunks else pa.array([], column.type)
        )
    return combined


def _flags(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Which values are true; NULL is not."""
    flags: npt.NDArray[np.bool_] = contiguous(column.fill_null(False)).to_numpy(
        zero_copy_only=False
    )
    return flags


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".")
