"""What the driver knows of the source of a merge whose rows are elsewhere: the hashes of its keys, and
the bounds of their values. Rows with equal keys also meet by their hashes.

Invariant: equal keys have equal hashes in every process, whatever their rows have beside them. A hash
has 64 bits. If two keys have the same one, a merge is computed anew without need, or two keys are in
one share; no row is changed for that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.change.merge_clauses import SOURCE, TARGET, KeyPair, MergePlan
from paimon_stream.change.merge_keys import as_numbers
from paimon_stream.change.merge_rows import MOST_LISTED, MergeRows, key_columns, one_of, values_in
from paimon_stream.format.types import arrow_type

Hashes = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

_WORD: Final = 8
_NULL: Final = np.uint64(0x9E3779B97F4A7C15)


def _mixed(numbers: Hashes) -> Hashes:
    """Spreads the bits of each number, by the last steps of SplitMix64."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Hashes = numbers ^ (numbers >> np.uint64(31))
    return mixed


def _hashes_of_bytes(column: pa.Array) -> Hashes:
    """The hash of each text or sequence of bytes, word by word."""
    texts = column.cast(pa.large_binary())
    _, offsets_of, bytes_of = texts.buffers()
    offsets = np.frombuffer(offsets_of, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(bytes_of or b"\0", np.uint8)
    starts = offsets[:-1]
    ends = offsets[1:]
    lengths = ends - starts
    hashes = lengths.astype(np.uint64)
    for place in range(0, int(lengths.max()), _WORD):
        (longer,) = np.nonzero(lengths > place)
        at = starts[longer, np.newaxis] + place + np.arange(_WORD)
        is_inside = at < ends[longer, np.newaxis]
        block = np.where(is_inside, data[np.minimum(at, len(data) - 1)], 0).astype(np.uint8)
        words = np.ascontiguousarray(block).view(np.uint64)[:, 0]
        hashes[longer] = _mixed(hashes[longer] ^ words)
    return hashes


def _hashes_of_values(column: pa.Array) -> Hashes:
    """The hash of each value; any hash for NULL."""
    if not len(column):
        return np.empty(0, np.uint64)
    numbers = as_numbers(column)
    if numbers is not None:
        return _mixed(numbers.view(np.uint64))
    if pa.types.is_decimal(column.type):
        words = column.type.bit_width // 64
        data = np.frombuffer(column.buffers()[1], np.uint64)
        rows = data[column.offset * words : (column.offset + len(column)) * words]
        parts = rows.reshape(len(column), words)
        return reduce(lambda hashes, part: _mixed(hashes ^ part), parts.T[1:], _mixed(parts[:, 0]))
    return _hashes_of_bytes(column)


def key_hashes(columns: Sequence[pa.Array], pairs: Sequence[KeyPair]) -> tuple[Hashes, Flags]:
    """The hash of each row's key, and which rows have a key that can match. `columns` are the key
    columns of the rows of one side.
    """
    hashes = np.zeros(len(columns[0]), np.uint64)
    has_key = np.ones(len(columns[0]), np.bool_)
    for column, pair in zip(columns, pairs, strict=True):
        values = _hashes_of_values(column)
        if column.null_count:
            is_null = column.is_null().to_numpy(zero_copy_only=False)
            values[is_null] = _NULL
            if not pair.null_equals_null:
                has_key &= ~is_null
        hashes = _mixed(hashes * np.uint64(31) + values)
    return hashes, has_key


def source_hashes(plan: MergePlan, rows: pa.Table, location: str) -> tuple[Hashes, Flags]:
    """`key_hashes` of rows of the source, as `source_rows` returns them. Raises `InvalidData`."""
    return key_hashes(source_keys(plan, rows, location), plan.keys)


def source_keys(plan: MergePlan, rows: pa.Table, location: str) -> list[pa.Array]:
    """The key columns of rows of the source. Raises `InvalidData`."""
    named = rows.rename_columns([SOURCE + name for name in rows.column_names])
    return key_columns(named, [pair.source for pair in plan.keys], location)


def target_hashes(plan: MergePlan, rows: pa.Table, location: str) -> tuple[Hashes, Flags]:
    """`key_hashes` of rows of the target. Raises `InvalidData`."""
    named = rows.rename_columns([TARGET + name for name in rows.column_names])
    return key_hashes(key_columns(named, [pair.target for pair in plan.keys], location), plan.keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class PossibleValues:
    """The values that a key column of the target may have in a match.

    Attributes:
        values: the values of the source; if they are many, only the lowest and the highest one.
        are_bounds: whether they are the lowest and the highest one.
    """

    values: pa.Array
    are_bounds: bool = False

    @classmethod
    def of(cls, keys: pa.Array, type_: pa.DataType) -> "PossibleValues | None":
        """The values of the source's keys for a column of this type; None if not known, or if there
        are many that have no order.
        """
        values = values_in(keys, type_)
        return None if values is None else cls(values=values)._short()

    @classmethod
    def together(cls, parts: "Sequence[PossibleValues | None]") -> "PossibleValues | None":
        """The values of all parts of a source."""
        known = [part for part in parts if part is not None]
        if not known or len(known) < len(parts):
            return None
        values = pc.unique(pa.concat_arrays([part.values for part in known]))
        return cls(values=values, are_bounds=any(part.are_bounds for part in known))._short()

    def _short(self) -> "PossibleValues | None":
        if not self.are_bounds and len(self.values) <= MOST_LISTED:
            return self
        if pa.types.is_binary(self.values.type) or pa.types.is_boolean(self.values.type):
            return self if not self.are_bounds and len(self.values) <= MOST_LISTED else None
        bounds = pc.min_max(self.values)
        ends = pa.array([bounds["min"], bounds["max"]], self.values.type)
        return PossibleValues(values=ends, are_bounds=True)

    def condition(self, column: pc.Expression) -> pc.Expression:
        """What each such value fulfils."""
        if not self.are_bounds:
            return one_of(column, self.values)
        return (column >= self.values[0]) & (column <= self.values[1])


@dataclass(frozen=True, slots=True)
class SourceDigest:
    """What is known of all keys of a source, or of some of its rows.

    Attributes:
        hashes: the hashes of the keys, ascending, each once.
        possible: for each pair of `MergePlan.keys` the values of the target's column; None if they
            are not known.
    """

    hashes: Hashes
    possible: tuple[PossibleValues | None, ...]

    @classmethod
    def of(cls, plan: MergePlan, rows: pa.Table, location: str) -> "SourceDigest":
        """The digest of some rows. Raises `InvalidData`."""
        keys = source_keys(plan, rows, location)
        hashes, has_key = key_hashes(keys, plan.keys)
        possible = tuple(
            None
            if pair.column is None or pair.null_equals_null
            else PossibleValues.of(values, arrow_type(plan.schema.field(pair.column).type))
            for pair, values in zip(plan.keys, keys, strict=True)
        )
        return cls(np.unique(hashes[has_key]), possible)

    @classmethod
    def joined(
        cls,
        hashes: Sequence[Hashes],
        possible: Sequence[Sequence[PossibleValues | None]],
    ) -> "SourceDigest":
        """The digest of several parts of a source, of which each list has those of each part."""
        of_all = np.concatenate([np.empty(0, np.uint64), *hashes])
        return cls(np.unique(of_all), tuple(map(PossibleValues.together, possible)))

    def has(self, hashes: Hashes) -> Flags:
        """Which of these hashes are among those of the source."""
        if not len(self.hashes):
            return np.zeros(len(hashes), np.bool_)
        places = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        is_there: Flags = self.hashes[places] == hashes
        return is_there


class DistantRows:
    """A merge of rows that are elsewhere, as far as the driver has to know it. It stands in for
    `MergeRows`.

    Attributes:
        updated: how many rows were updated.
        deleted: how many rows were deleted.
    """

    def __init__(
        self, plan: MergePlan, digest: SourceDigest, empty: pa.Table, location: str
    ) -> None:
        """`empty` has the columns of the source and no rows."""
        self._plan = plan
        self._digest = digest
        self._without_source = MergeRows(plan, empty, location)
        self._location = location
        self.updated = 0
        self.deleted = 0

    @property
    def digest(self) -> SourceDigest:
        """What is known of the source's keys."""
        return self._digest

    def concerns(self, rows: pa.Table) -> bool:
        """See `MergeRows.concerns`. It may also be true for a row whose key has the hash of another
        one. Raises `InvalidData`.
        """
        hashes, has_key = target_hashes(self._plan, rows, self._location)
        return bool(self._digest.has(hashes[has_key]).any()) or self._without_source.concerns(rows)

    def possible_keys(self) -> pc.Expression | None:
        """See `MergeRows.possible_keys`."""
        conditions = [
            values.condition(pc.field(pair.column))
            for pair, values in zip(self._plan.keys, self._digest.possible, strict=True)
            if pair.column is not None and values is not None
        ]
        return reduce(and_, conditions) if conditions else None
