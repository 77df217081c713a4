"""Finds the (partition, bucket) of every row of a batch, and splits the batch into one part for
each (partition, bucket). All work is done on whole columns: partition values become codes, and
Paimon's hash turns keys into buckets. Python code handles each distinct partition once, and never a
single row. The bucket of a key is the same in every engine (format.md §6.3 has the rules).
"""

from collections.abc import Iterator, Sequence
from decimal import Context, Decimal
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import ROWS, InvalidData, InvalidOption, UnsupportedFeature, ValueTooLong
from paimon_stream.format.arrow_types import from_numbers, to_numbers
from paimon_stream.format.binary_columns import column_values, encode_columns
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.entries import EMPTY_ROW
from paimon_stream.format.murmur import Hashes, hash_rows
from paimon_stream.format.names import LONGEST_NAME, POSTPONE_BUCKET
from paimon_stream.format.partition_path import partition_path
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, DataType, TypeRoot, arrow_type, parse_type
from paimon_stream.options import BUCKET, BUCKET_FUNCTION, PARTITION_LEGACY_NAME, Options
from paimon_stream.write.dynamic_buckets import MOST_BUCKETS, Assigner, Numbers

GroupIds = npt.NDArray[np.int64]

UNAWARE: Final = -1
_FEW_CODES: Final = 2**16
"""Up to this bound, codes are counted in an array that has a place for each code."""
_MOST_CODES: Final = 2**40
"""If codes would grow beyond this bound, they are renumbered before, so that they fit into 64
bits.
"""
_LONGEST_NUMBER: Final = 64
_BYTES_PER_CHARACTER: Final = 4


class Group(NamedTuple):
    """A partition and a bucket to which rows belong.

    Attributes:
        partition: the serialized partition row.
        bucket: the bucket in that partition.
    """

    partition: bytes
    bucket: int


class Router:
    """Gives numbers to a table's groups, in the order in which their first rows come. Does not keep
    rows.

    Attributes:
        groups: the groups by number.
        total_buckets: the option `bucket`.
    """

    def __init__(
        self,
        schema: TableSchema,
        options: Options,
        table: str = "",
        assigner: Assigner | None = None,
        *,
        checks_folder_names: bool = True,
    ) -> None:
        """Decides by the schema and the options how rows are grouped.

        Args:
            schema: the columns and keys of the table.
            options: the options of the table.
            table: the table, for messages.
            assigner: the assigner that finds dynamic buckets; None if buckets are not dynamic.
            checks_folder_names: whether values that cannot name a folder are refused.

        Raises:
            UnsupportedFeature: for numbers of buckets that cannot be written.
        """
        self.groups: list[Group] = []
        self.total_buckets = options.value(BUCKET)
        is_fixed = self.total_buckets >= 1
        is_unaware = self.total_buckets == UNAWARE
        is_postponed = self.total_buckets == POSTPONE_BUCKET and bool(schema.primary_keys)
        if not (is_fixed or is_unaware or is_postponed):
            raise UnsupportedFeature(
                f"Table {table} has bucket = {self.total_buckets}; only -1, fixed numbers of buckets and, with a "
                "primary key, -2 can be written. Write it with another engine.",
                table=table,
                option=BUCKET.key,
            )
        self._checks_folder_names = checks_folder_names
        self._table = table
        self._numbers: dict[Group, int] = {}
        self._partition_fields = schema.partition_fields
        self._assigner = assigner
        self._keys: tuple[DataField, ...] = ()
        if is_fixed or assigner is not None:
            self._keys = tuple(schema.field(name) for name in schema.bucket_keys)
        self._bucket_without_keys = POSTPONE_BUCKET if is_postponed else 0
        self._function = options.value(BUCKET_FUNCTION)
        self._legacy_name = options.value(PARTITION_LEGACY_NAME)

    def assign(self, batch: pa.RecordBatch) -> int | GroupIds:
        """The group number of each row, or one number for all rows. Raises `ValueTooLong` for
        values that cannot name a folder, and what `assign_buckets` and `Assigner.assign` raise.
        """
        if not self._partition_fields and not self._keys:
            return self._number(Group(EMPTY_ROW, self._bucket_without_keys))
        partition_codes, partitions = self._partition_codes(batch)
        if not self._keys:
            buckets_of_partition = max(1, self.total_buckets)
            codes = partition_codes
        else:
            keys = batch.select([field.name for field in self._keys])
            types = [field.type for field in self._keys]
            if self._assigner is not None:
                buckets_of_partition = MOST_BUCKETS
                buckets = self._dynamic(
                    self._assigner, partition_codes, partitions, key_hashes(keys, types)
                )
            else:
                buckets_of_partition = self.total_buckets
                buckets = assign_buckets(keys, types, self.total_buckets, self._function)
            codes = partition_codes * buckets_of_partition + buckets
        below = len(partitions) * buckets_of_partition
        distinct = _distinct(codes, below)
        groups = (
            Group(
                partitions[code // buckets_of_partition],
                self._bucket_without_keys + int(code % buckets_of_partition),
            )
            for code in distinct
        )
        numbers = np.fromiter(map(self._number, groups), np.int64)
        if len(numbers) == 1:
            return int(numbers[0])
        return _replaced(codes, distinct, numbers, below)

    def _dynamic(
        self, assigner: Assigner, codes: GroupIds, partitions: Sequence[bytes], hashes: Numbers
    ) -> Numbers:
        """The bucket of each row. `codes` are the positions of the rows' partitions in
        `partitions`. `hashes` are the hashes of the rows' keys.
        """
        if len(partitions) == 1:
            return assigner.assign(partitions[0], hashes)
        buckets = np.empty(len(codes), np.int32)
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(partitions))).tolist()
        start = 0
        for partition, end in zip(partitions, ends, strict=True):
            rows = order[start:end]
            buckets[rows] = assigner.assign(partition, hashes[rows])
            start = end
        return buckets

    def _number(self, group: Group) -> int:
        """Returns the number of a group. A new group gets the next number."""
        number = self._numbers.get(group)
        if number is None:
            number = len(self.groups)
            self._numbers[group] = number
            self.groups.append(group)
        return number

    def _partition_codes(self, batch: pa.RecordBatch) -> tuple[GroupIds, list[bytes]]:
        """A code for each row, and the serialized partition row of each code."""
        codes = np.zeros(batch.num_rows, dtype=np.int64)
        if not self._partition_fields:
            return codes, [EMPTY_ROW]
        below = 1
        columns = [batch.column(field.name) for field in self._partition_fields]
        for column in columns:
            encoded = _bits(column).dictionary_encode(null_encoding="encode")
            values = len(encoded.dictionary)
            if below * values > _MOST_CODES:
                distinct, codes = np.unique(codes, return_inverse=True)
                below = len(distinct)
            codes = codes * values + to_numbers(encoded.indices)
            below *= values
        distinct = _distinct(codes, below)
        if len(distinct) < below:
            codes = _replaced(codes, distinct, np.arange(len(distinct)), below)
        # Rows are assigned from the last to the first, so the first row of each code is assigned
        # last and is kept.
        first_rows = np.empty(len(distinct), dtype=np.int64)
        first_rows[codes[::-1]] = np.arange(batch.num_rows - 1, -1, -1)
        values_of_codes = [column.take(from_numbers(first_rows)) for column in columns]
        return codes, self._partition_rows(values_of_codes, codes)

    def _partition_rows(self, columns: Sequence[pa.Array], codes: GroupIds) -> list[bytes]:
        """The serialized partition row of each code. `columns` have one value per code."""
        types = [field.type for field in self._partition_fields]
        values_of_columns = []
        for field, column in zip(self._partition_fields, columns, strict=True):
            values = column_values(column, field.type)
            if self._checks_folder_names:
                self._check_folder_names(field, values, codes)
            values_of_columns.append(values)
        return [serialize(types, row) for row in zip(*values_of_columns, strict=True)]

    def _check_folder_names(self, field: DataField, values: Sequence[Any], codes: GroupIds) -> None:
        """Refuses values that cannot name a folder (format.md §1.4). `values[code]` is the value of
        a code.
        """
        bytes_of_code = {code: self._name_bytes(field, value) for code, value in enumerate(values)}
        too_long = [code for code, size in bytes_of_code.items() if size > LONGEST_NAME]
        if too_long:
            longest = max(bytes_of_code.values())
            raise ValueTooLong(
                f"Partition column {field.name!r} of {self._table or 'the table'} has a value in {ROWS} that is too "
                f"long: a partition's folder is named after its value. The name may have {LONGEST_NAME} bytes, and the "
                f"longest would have {longest:,}. Shorten the value, or partition by another column.",
                table=self._table,
                column=field.name,
                count=int(np.isin(codes, too_long).sum()),
            )

    def _name_bytes(self, field: DataField, value: Any) -> int:
        """The number of bytes in the name of the folder for a value. It is 0 if the name is
        certainly short enough. In that case, the name is not computed.
        """
        most_bytes = _LONGEST_NUMBER + len(field.name) * _BYTES_PER_CHARACTER
        if isinstance(value, str):
            most_bytes = (len(value) + len(field.name)) * _BYTES_PER_CHARACTER
        if most_bytes < LONGEST_NAME or value is None:
            return 0
        name = partition_path((field.name,), (field.type,), (value,), legacy=self._legacy_name)
        return len(name.encode())


def split(batch: pa.RecordBatch, numbers: GroupIds) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The number and the rows of each group. The rows keep their order. Each part is a copy, so
    that it does not hold other rows in memory.
    """
    if int(numbers.max(initial=0)) < _FEW_CODES:
        order = np.argsort(numbers.astype(np.uint16), kind="stable")
        counts = np.bincount(numbers)
        distinct = np.flatnonzero(counts)
        counts = counts[distinct]
    else:
        order = np.argsort(numbers, kind="stable")
        distinct, counts = np.unique(numbers[order], return_counts=True)
    start = 0
    for number, count in zip(distinct.tolist(), counts.tolist(), strict=True):
        yield number, batch.take(from_numbers(order[start : start + count]))
        start += count


def _distinct(codes: GroupIds, below: int) -> GroupIds:
    """The distinct codes in ascending order. All codes are below `below`."""
    if below <= _FEW_CODES:
        return np.flatnonzero(np.bincount(codes, minlength=1))
    return np.unique(codes)


def _replaced(codes: GroupIds, distinct: GroupIds, numbers: GroupIds, below: int) -> GroupIds:
    """The number of each code.

    Args:
        codes: the codes, all below `below`.
        distinct: the distinct codes, ascending.
        numbers: the number of each distinct code.
        below: a number that is above all codes.
    """
    if below > _FEW_CODES:
        return numbers[np.searchsorted(distinct, codes)]
    number_of_code = np.zeros(below, dtype=np.int64)
    number_of_code[distinct] = numbers
    return number_of_code[codes]


def _bits(column: pa.Array) -> pa.Array:
    """The bits of floats. Partition rows are compared byte by byte, so 0.0 and -0.0 differ
    (format.md §11, 16).
    """
    if pa.types.is_floating(column.type):
        integer = pa.int64() if column.type.bit_width == 64 else pa.int32()
        return column.view(integer)
    return column


# -- buckets by the keys of rows ------------------------------------------------------------------

_BLOCK: Final = 1 << 15
"""Rows hashed at once. Their words fit into the processor's cache."""

_FACTOR: Final = 31
"""Java multiplies a hash by this number before it adds the next hash."""

_MASK: Final = 0xFFFFFFFF
_WIDE: Final = Context(prec=50)


def assign_buckets(
    batch: pa.RecordBatch,
    types: Sequence[DataType | str],
    count: int,
    function: str = "default",
) -> Numbers:
    """The bucket of every row of a table with fixed buckets, as an array of int32: 0 to `count` - 1.
    A program that sorts or splits rows by bucket before it writes them needs it.

    Args:
        batch: the columns of `bucket-key`, in the order of that option.
        types: the types of the columns, also as Paimon writes them: `"BIGINT NOT NULL"`.
        count: how many buckets there are.
        function: the option `bucket-function.type`.

    Raises:
        UnsupportedFeature: for nested types.
        InvalidOption: if the function cannot be used with the key.
        InvalidData: for columns that do not fit their type.
    """
    parsed = [parse_type(type_) if isinstance(type_, str) else type_ for type_ in types]
    if function == "mod":
        return _mod(batch, parsed, count)
    if function == "hive":
        return _hive(batch, parsed, count)
    # As in Java, the remainder has the sign of the hash, and its absolute value is the bucket.
    remainders: Numbers = np.fmod(key_hashes(batch, parsed), np.int32(count))
    return np.abs(remainders, out=remainders)


def key_hashes(keys: pa.RecordBatch, types: Sequence[DataType]) -> Numbers:
    """Paimon's hash of every row.

    Args:
        keys: the columns of the key.
        types: the types of the columns.

    Raises:
        UnsupportedFeature: for nested types.
        InvalidData: for columns that do not fit their type.
    """
    blocks = (keys.slice(start, _BLOCK) for start in range(0, keys.num_rows, _BLOCK))
    hashes = [hash_rows(encode_columns(block.columns, types)) for block in blocks]
    return np.concatenate(hashes) if hashes else np.zeros(0, np.int32)


def _mod(batch: pa.RecordBatch, types: Sequence[DataType], count: int) -> Numbers:
    """The floor modulo of the only key column. NULL counts as 0."""
    if len(types) != 1 or types[0].root not in (TypeRoot.INT, TypeRoot.BIGINT):
        key_types = ", ".join(map(str, types)) or "none"
        raise InvalidOption(
            f"bucket-function.type = mod needs one bucket key column of type INT or BIGINT, not {key_types}.",
            option="bucket-function.type",
            value="mod",
        )
    values = np.asarray(batch.column(0).cast(pa.int64()).fill_null(0))
    buckets: Numbers = np.mod(values, count).astype(np.int32)
    return buckets


def _hive(batch: pa.RecordBatch, types: Sequence[DataType], count: int) -> Numbers:
    """The bucket of every row by the function `hive`. NULL hashes to 0. Raises `UnsupportedFeature`
    for timestamps and nested types, and `InvalidData` for columns that do not fit their type.
    """
    hashes = np.zeros(batch.num_rows, np.uint32)
    for column, type_ in zip(batch.columns, types, strict=True):
        hashes *= np.uint32(_FACTOR)
        hashes += _hive_hashes(column, type_)
    hashes &= np.uint32(0x7FFFFFFF)  # the sign is dropped
    hashes %= np.uint32(count)
    return hashes.view(np.int32)


def _hive_hashes(column: pa.Array, type_: DataType) -> Hashes:
    """The hash of each value; NULL hashes to 0."""
    if type_.is_timestamp or type_.is_nested:
        raise UnsupportedFeature(
            f"bucket-function.type = hive does not take {type_} as a bucket key.", type=str(type_)
        )
    if not column.type.equals(arrow_type(type_)):
        raise InvalidData(f"A bucket key of type {type_} came as {column.type}.", type=str(type_))
    if type_.is_string or type_.is_binary:
        return _hive_byte_hashes(column.cast(pa.binary()).fill_null(b""))
    if type_.root is TypeRoot.DECIMAL:
        encoded = column.dictionary_encode()
        hash_of_code = np.array(
            [_hive_decimal_hash(value, type_.scale) for value in encoded.dictionary.to_pylist()]
            + [0],
            np.uint32,
        )
        null_code = len(hash_of_code) - 1
        decimals: Hashes = hash_of_code[encoded.indices.fill_null(null_code).to_numpy()]
        return decimals
    if type_.root in (TypeRoot.DATE, TypeRoot.TIME):
        column = column.view(pa.int32())
    if type_.root is TypeRoot.BOOLEAN:
        column = column.cast(pa.int8())
    return _hive_number_hashes(column.fill_null(0).to_numpy(zero_copy_only=False))


def _hive_number_hashes(numbers: npt.NDArray[Any]) -> Hashes:
    """The hash of each integer or float."""
    if numbers.dtype.kind == "f":
        float_ = numbers.dtype.type
        numbers = np.where(numbers == 0, float_(0), numbers)  # -0.0 is 0.0
        numbers = np.where(np.isnan(numbers), float_(np.nan), numbers)  # Java knows one NaN
        integer = np.int64 if numbers.dtype == np.float64 else np.int32
        numbers = numbers.view(integer)
    if numbers.dtype == np.int64:  # as Java's `Long.hashCode`
        numbers = numbers ^ (numbers.view(np.uint64) >> np.uint64(32)).view(np.int64)
    hashes: Hashes = numbers.astype(np.int32, casting="unsafe").view(np.uint32)
    return hashes


def _hive_byte_hashes(column: pa.Array) -> Hashes:
    """The hash of each value. It is computed from the signed bytes: hash = 31 * hash + byte. Values
    of the same length are hashed together.
    """
    hashes = np.zeros(len(column), np.uint32)
    lengths = pc.binary_length(column).to_numpy()
    for length in np.unique(lengths[lengths > 0]).tolist():
        rows = np.flatnonzero(lengths == length)
        fixed = column.take(from_numbers(rows)).cast(pa.binary(length))
        values = np.frombuffer(fixed.buffers()[1], np.int8).reshape(-1, length).astype(np.uint32)
        # The weights of the bytes are powers of the factor. The last byte has the weight 1.
        factors = np.full(length, _FACTOR, np.uint32)
        factors[0] = 1
        weights = np.cumprod(factors, dtype=np.uint32)[::-1]
        hashes[rows] = (values * weights).sum(axis=1, dtype=np.uint32)
    return hashes


def _hive_decimal_hash(value: Decimal, scale: int) -> int:
    """The hash that Java's `BigDecimal.hashCode` returns for the value without trailing zeros in
    its fraction.
    """
    unscaled = int(value.scaleb(scale, _WIDE))
    while scale and unscaled % 10 == 0:
        unscaled //= 10
        scale -= 1
    magnitude = 0  # the hash of the absolute value, by its words of 32 bits, the highest first
    for shift in (96, 64, 32, 0):
        magnitude = _FACTOR * magnitude + ((abs(unscaled) >> shift) & _MASK)
    signed = -magnitude if unscaled < 0 else magnitude
    return (_FACTOR * signed + scale) & _MASK
