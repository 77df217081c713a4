"""Finds the (partition, bucket) of every row of a batch and splits the batch by it. All work is
done on whole columns: partition values become codes, and Paimon's hash turns keys into buckets.
Python code handles each distinct partition once, and never a single row. The bucket of a key is the
same in every engine (format.md §6.3 has the rules).
"""

from collections.abc import Iterator, Sequence
from decimal import Context, Decimal
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import ROWS, InvalidData, InvalidOption, UnsupportedFeature, ValueTooLong
from paimon_stream.format.binary_columns import column_values, encode_columns
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.entries import EMPTY_ROW
from paimon_stream.format.murmur import Hashes, hash_rows
from paimon_stream.format.names import LONGEST_NAME, POSTPONE_BUCKET
from paimon_stream.format.partition_path import partition_path
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, DataType, TypeRoot, arrow_type
from paimon_stream.options import BUCKET, BUCKET_FUNCTION, PARTITION_LEGACY_NAME, Options
from paimon_stream.write.dynamic_buckets import MOST_BUCKETS, Assigner, Numbers

GroupIds = npt.NDArray[np.int64]

UNAWARE: Final = -1
_FEW_CODES: Final = 2**16
_MOST_CODES: Final = 2**40
_LONGEST_NUMBER: Final = 64
_BYTES_PER_CHARACTER: Final = 4


class Group(NamedTuple):
    """Where rows go: the serialized partition row, and the bucket in that partition."""

    partition: bytes
    bucket: int


class Router:
    """Numbers a table's groups in the order of their first rows; `groups[number]` is one. Holds no
    single rows.
    """

    def __init__(
        self,
        schema: TableSchema,
        options: Options,
        table: str = "",
        assigner: Assigner | None = None,
    ) -> None:
        """`assigner` finds dynamic buckets. Raises `UnsupportedFeature` unless buckets are fixed,
        -1 or -2.
        """
        self.groups: list[Group] = []
        self.total_buckets = options.value(BUCKET)
        waits = self.total_buckets == POSTPONE_BUCKET and bool(schema.primary_keys)
        if self.total_buckets < 1 and self.total_buckets != UNAWARE and not waits:
            text = (
                f"Table {table} has bucket = {self.total_buckets}; only -1, fixed numbers of buckets and, with a "
                "primary key, -2 can be written. Write it with another engine."
            )
            raise UnsupportedFeature(text, table=table, option=BUCKET.key)
        self.names_folders = True
        self._table = table
        self._numbers: dict[Group, int] = {}
        self._partition = schema.partition_fields
        self._assigner = assigner
        self._only = POSTPONE_BUCKET if waits else 0  # without keys
        has_keys = self.total_buckets > 0 or assigner is not None
        self._keys = tuple(schema.field(name) for name in schema.bucket_keys) if has_keys else ()
        self._function = options.value(BUCKET_FUNCTION)
        self._legacy_name = options.value(PARTITION_LEGACY_NAME)

    def assign(self, batch: pa.RecordBatch) -> int | GroupIds:
        """The group number of each row, or one for all. Raises `ValueTooLong` for values that
        cannot name a folder.
        """
        if not self._partition and not self._keys:
            return self._number(Group(EMPTY_ROW, self._only))
        codes, partitions = self._partition_codes(batch)
        buckets_of = max(1, self.total_buckets)
        if self._keys:
            keys, types = (
                batch.select([one.name for one in self._keys]),
                [one.type for one in self._keys],
            )
            if self._assigner is not None:
                buckets_of = MOST_BUCKETS
                codes = codes * buckets_of + self._dynamic(
                    self._assigner, codes, partitions, key_hashes(keys, types)
                )
            else:
                codes = codes * buckets_of + assign_buckets(
                    keys, types, self.total_buckets, self._function
                )
        below = len(partitions) * buckets_of
        found = _distinct(codes, below)
        groups = (
            Group(partitions[code // buckets_of], self._only + int(code % buckets_of))
            for code in found
        )
        numbers = np.fromiter(map(self._number, groups), np.int64)
        return int(numbers[0]) if len(numbers) == 1 else _replaced(codes, found, numbers, below)

    def _dynamic(
        self, assigner: Assigner, codes: GroupIds, partitions: Sequence[bytes], hashes: Numbers
    ) -> Numbers:
        """The bucket of each row, by its partition's code and the hash of its key."""
        if len(partitions) == 1:
            return assigner.assign(partitions[0], hashes)
        buckets, order = np.empty(len(codes), np.int32), np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(partitions)))
        for partition, start, end in zip(
            partitions, [0, *ends.tolist()], ends.tolist(), strict=False
        ):
            rows = order[start:end]
            buckets[rows] = assigner.assign(partition, hashes[rows])
        return buckets

    def _number(self, group: Group) -> int:
        number = self._numbers.get(group)
        if number is None:
            number = self._numbers[group] = len(self.groups)
            self.groups.append(group)
        return number

    def _partition_codes(self, batch: pa.RecordBatch) -> tuple[GroupIds, list[bytes]]:
        """A code for each row, and the serialized partition row of each code."""
        codes = np.zeros(batch.num_rows, dtype=np.int64)
        if not self._partition:
            return codes, [EMPTY_ROW]
        most = 1
        columns = [batch.column(one.name) for one in self._partition]
        for column in columns:
            own = _bits(column).dictionary_encode(null_encoding="encode")
            if most * len(own.dictionary) > _MOST_CODES:
                found, codes = np.unique(codes, return_inverse=True)
                most = len(found)
            codes = codes * len(own.dictionary) + own.indices.to_numpy(zero_copy_only=False)
            most *= len(own.dictionary)
        found = _distinct(codes, most)
        if len(found) < most:
            codes = _replaced(codes, found, np.arange(len(found)), most)
        first_rows = np.empty(len(found), dtype=np.int64)
        first_rows[codes[::-1]] = np.arange(batch.num_rows - 1, -1, -1)
        return codes, self._partition_rows(
            [column.take(pa.array(first_rows)) for column in columns], codes
        )

    def _partition_rows(self, columns: Sequence[pa.Array], codes: GroupIds) -> list[bytes]:
        types = [one.type for one in self._partition]
        values = []
        for one, column in zip(self._partition, columns, strict=True):
            values.append(column_values(column, one.type))
            if self.names_folders:
                self._check_folder_names(one, values[-1], codes)
        return [serialize(types, row) for row in zip(*values, strict=True)]

    def _check_folder_names(self, one: DataField, values: Sequence[Any], codes: GroupIds) -> None:
        """Refuses values that cannot name a folder (format.md §1.4). `values[code]` is a code's
        value.
        """
        sizes = {
            code: size
            for code, value in enumerate(values)
            if (size := self._name_bytes(one, value))
        }
        if sizes:
            text = (
                f"Partition column {one.name!r} of {self._table or 'the table'} has a value in {ROWS} that is too "
                f"long: a partition's folder is named after its value. The name may take {LONGEST_NAME} bytes, and one "
                f"would take {max(sizes.values()):,}. Shorten the value, or partition by another column."
            )
            raise ValueTooLong(
                text,
                table=self._table,
                column=one.name,
                count=int(np.isin(codes, list(sizes)).sum()),
            )

    def _name_bytes(self, one: DataField, value: Any) -> int:
        """The number of bytes in the folder's name if it is too long, else 0."""
        most = len(value) * _BYTES_PER_CHARACTER if isinstance(value, str) else _LONGEST_NUMBER
        if most + len(one.name) * _BYTES_PER_CHARACTER < LONGEST_NAME or value is None:
            return 0
        size = len(
            partition_path((one.name,), (one.type,), (value,), legacy=self._legacy_name).encode()
        )
        return size if size > LONGEST_NAME else 0


def split(batch: pa.RecordBatch, numbers: GroupIds) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each group in their order, by group number. A part is a copy, so it keeps no
    others in memory.
    """
    if int(numbers.max(initial=0)) < _FEW_CODES:
        order = np.argsort(numbers.astype(np.uint16), kind="stable")
        counts = np.bincount(numbers)
        found = np.flatnonzero(counts)
        counts = counts[found]
    else:
        order = np.argsort(numbers, kind="stable")
        found, counts = np.unique(numbers[order], return_counts=True)
    end = 0
    for number, count in zip(found.tolist(), counts.tolist(), strict=True):
        start, end = end, end + count
        yield number, batch.take(pa.array(order[start:end]))


def _distinct(codes: GroupIds, below: int) -> GroupIds:
    """The distinct codes, ascending. All codes are below `below`."""
    return (
        np.flatnonzero(np.bincount(codes, minlength=1)) if below <= _FEW_CODES else np.unique(codes)
    )


def _replaced(codes: GroupIds, found: GroupIds, numbers: GroupIds, below: int) -> GroupIds:
    """The number of each code. `found` are the distinct codes, ascending; all of them are below
    `below`.
    """
    if below > _FEW_CODES:
        return numbers[np.searchsorted(found, codes)]
    table = np.zeros(below, dtype=np.int64)
    table[found] = numbers
    return table[codes]


def _bits(column: pa.Array) -> pa.Array:
    """Floats as their bits. Partition rows are compared by bytes, so 0.0 is not -0.0 (format.md
    §11, 16).
    """
    if pa.types.is_floating(column.type):
        return column.view(pa.int64() if column.type.bit_width == 64 else pa.int32())
    return column


# -- buckets by the keys of rows
# ------------------------------------------------------------------------
_BLOCK: Final = 1 << 15
"""Rows hashed at once. Their words fit into the processor's cache."""
_FACTOR: Final = 31
_MASK: Final = 0xFFFFFFFF
_WIDE: Final = Context(prec=50)


def assign_buckets(
    batch: pa.RecordBatch, types: Sequence[DataType], count: int, function: str = "default"
) -> Numbers:
    """The bucket of every row, 0 to `count` - 1. `batch` has the columns of `bucket-key`, in its
    order, with these `types`. `function` is the option `bucket-function.type`. Raises
    `UnsupportedFeature` for nested types, `InvalidOption` if the key does not suit the function,
    `InvalidData` for columns that do not fit their type.
    """
    if function == "mod":
        return _mod(batch, types, count)
    if function == "hive":
        return _hive(batch, types, count)
    # As in Java, the remainder has the sign of the hash, and its absolute value is the bucket.
    rest: Numbers = np.fmod(key_hashes(batch, types), np.int32(count))
    return np.abs(rest, out=rest)


def key_hashes(keys: pa.RecordBatch, types: Sequence[DataType]) -> Numbers:
    """Paimon's hash of every row. The columns are those of the key, and `types` their types."""
    blocks = (keys.slice(start, _BLOCK) for start in range(0, keys.num_rows, _BLOCK))
    return np.concatenate(
        [hash_rows(encode_columns(one.columns, types)) for one in blocks] or [np.zeros(0, np.int32)]
    )


def _mod(batch: pa.RecordBatch, types: Sequence[DataType], num_buckets: int) -> Numbers:
    """Floor modulo of the one key column; NULL counts as 0."""
    if len(types) != 1 or types[0].root not in (TypeRoot.INT, TypeRoot.BIGINT):
        found = f"not {', '.join(str(type_) for type_ in types) or 'none'}."
        text = (
            f"bucket-function.type = mod needs one bucket key column of type INT or BIGINT, {found}"
        )
        raise InvalidOption(text, option="bucket-function.type", value="mod")
    values = np.asarray(batch.column(0).cast(pa.int64()).fill_null(0))
    buckets: Numbers = np.mod(values, num_buckets).astype(np.int32)
    return buckets


def _hive(batch: pa.RecordBatch, types: Sequence[DataType], num_buckets: int) -> Numbers:
    """By the hash of every row for the function `hive`; NULL hashes to 0. Raises
    `UnsupportedFeature` for timestamps and nested types, and `InvalidData` for columns that do not
    fit their type.
    """
    h = np.zeros(batch.num_rows, np.uint32)
    for column, type_ in zip(batch.columns, types, strict=True):
        h *= np.uint32(_FACTOR)
        h += _column(column, type_)
    h &= np.uint32(0x7FFFFFFF)
    h %= np.uint32(num_buckets)
    return h.view(np.int32)


def _column(column: pa.Array, type_: DataType) -> Hashes:
    if type_.is_timestamp or type_.is_nested:
        raise UnsupportedFeature(
            f"bucket-function.type = hive does not take {type_} as a bucket key.", type=str(type_)
        )
    if not column.type.equals(arrow_type(type_)):
        raise InvalidData(f"A bucket key of type {type_} came as {column.type}.", type=str(type_))
    if type_.is_string or type_.is_binary:
        return _bytes(column.cast(pa.binary()).fill_null(b""))
    if type_.root is TypeRoot.DECIMAL:
        found = column.dictionary_encode()
        hashes = np.array(
            [_decimal(one, type_.scale) for one in found.dictionary.to_pylist()] + [0], np.uint32
        )
        decimals: Hashes = hashes[found.indices.fill_null(len(hashes) - 1).to_numpy()]
        return decimals
    if type_.root in (TypeRoot.DATE, TypeRoot.TIME):
        column = column.view(pa.int32())
    values = column.cast(pa.int8() if type_.root is TypeRoot.BOOLEAN else column.type).fill_null(0)
    numbers = values.to_numpy(zero_copy_only=False)
    if type_.is_float:
        kind = numbers.dtype.type
        numbers = np.where(numbers == 0, kind(0), numbers)  # -0.0 is 0.0
        numbers = np.where(np.isnan(numbers), kind(np.nan), numbers)  # Java knows one NaN
        numbers = numbers.view(np.int64 if type_.root is TypeRoot.DOUBLE else np.int32)
    if numbers.dtype == np.int64:
        numbers = numbers ^ (numbers.view(np.uint64) >> np.uint64(32)).view(np.int64)
    made: Hashes = numbers.astype(np.int32, casting="unsafe").view(np.uint32)
    return made


def _bytes(column: pa.Array) -> Hashes:
    """The hash of the signed bytes, h = 31 * h + byte. Rows of the same length are hashed
    together.
    """
    made = np.zeros(len(column), np.uint32)
    lengths = pc.binary_length(column).to_numpy()
    for length in np.unique(lengths[lengths > 0]).tolist():
        rows = np.flatnonzero(lengths == length)
        fixed = column.take(pa.array(rows)).cast(pa.binary(length))
        values = np.frombuffer(fixed.buffers()[1], np.int8).reshape(-1, length).astype(np.uint32)
        weights = np.full(length, _FACTOR, np.uint32)
        weights[0] = 1
        made[rows] = (values * np.cumprod(weights, dtype=np.uint32)[::-1]).sum(
            axis=1, dtype=np.uint32
        )
    return made


def _decimal(value: Decimal, scale: int) -> int:
    """Java's `BigDecimal.hashCode` of the value without trailing zeros in its fraction."""
    unscaled = int(value.scaleb(scale, _WIDE))
    while scale and unscaled % 10 == 0:
        unscaled, scale = unscaled // 10, scale - 1
    h = 0
    for shift in (96, 64, 32, 0):
        h = _FACTOR * h + (abs(unscaled) >> shift & _MASK)
    return (_FACTOR * (-h if unscaled < 0 else h) + scale) & _MASK
