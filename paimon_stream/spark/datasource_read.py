"""The batch read of `format("paimon_stream")`: it reads one snapshot, or the changes between two
snapshots, and is planned on the driver (docs/reading.md, "In Spark").

Invariant: one action reads one snapshot. The reader plans the scan when Spark makes it, and tasks
plan nothing (splits.py). The reader has the scan without its files, and each split has its own
files. A task reads data files and index files. It also reads the schemas of files that were written
under another schema. `schema_of` plans with a filter that nothing fulfils, so no manifest is
opened.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StringType, StructField, StructType

from paimon_stream import options as opt
from paimon_stream.catalogs.opening import open_storage
from paimon_stream.errors import IncompatibleSchema, InvalidOption, naming
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataType
from paimon_stream.merge.spec import ROW_KIND, ROW_KIND_COLUMN
from paimon_stream.options.option import size
from paimon_stream.read.changes import CHANGE_OPTIONS, RANGES, READ_CHANGELOG, plan_read
from paimon_stream.read.condition_text import TypedCondition, condition_in_text
from paimon_stream.read.scan import NEWEST, PointInTime, Scan, plan_scan
from paimon_stream.read.scan_mode import INCREMENTAL, MODE, NEEDED
from paimon_stream.spark.datasource_options import SourceOptions, divided
from paimon_stream.spark.reused_worker import prepare_worker
from paimon_stream.spark.splits import (
    SPLIT_BYTES,
    arrow_of,
    rows_of_split,
    splits_of,
    without_files,
)
from paimon_stream.spark.types import same_but_nulls, spark_type
from paimon_stream.table.table import Table, load_table

_SNAPSHOT_ID: Final = ("snapshot-id", "scan.snapshot-id")
_TAG: Final = ("tag", "scan.tag-name")
_TIMESTAMP: Final = ("timestamp", "scan.timestamp", "scan.timestamp-millis")
_COLUMNS: Final = ("columns",)
_PARTITION: Final = ("partition",)
_WHERE: Final = ("where",)
_SPLIT_SIZE: Final = ("split-size", "source.split.target-size")
_KEYS: Final = (_SNAPSHOT_ID, _TAG, _TIMESTAMP, _COLUMNS, _PARTITION, _WHERE, _SPLIT_SIZE)
"""The options of a read. Each is a tuple of keys: ours first, then those that Paimon has for the
same option.
"""

_START_NAMES: Final = {
    "snapshot_id": "a snapshot id (scan.snapshot-id)",
    "tag": "a tag (scan.tag-name)",
    "timestamp": "a time (scan.timestamp-millis)",
}
"""The attributes of `PointInTime`, for messages."""

_NO_START: Final = "no snapshot, tag or time"

_FOLLOWED: Final = [option.key for option in (MODE, *CHANGE_OPTIONS)]
"""The keys of table options that a batch read follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What the options of a read say. A value that the options do not name is None.

    Attributes:
        at: the point in time that is read. If the user gave a snapshot id that is not a number, the
            id is a text, which `plan_scan` refuses.
        columns: the names of the wanted columns.
        partition: the wanted partition, as the user writes it.
        where: the condition that wanted rows fulfil, as the user writes it.
        split_bytes: about how many bytes of files are in a split.
    """

    at: PointInTime = NEWEST
    columns: list[str] | None = None
    partition: str | None = None
    where: str | None = None
    split_bytes: int

    def of_newest_snapshot(self) -> "ReadOptions":
        """These options without a point in time: the newest snapshot is read."""
        return replace(self, at=NEWEST)


def schema_of(options: dict[str, str]) -> StructType:
    """The columns of the table, or those that the option `columns` names. Raises the errors of
    `PaimonTable.to_arrow`.
    """
    source, chosen = _divided(options)
    if MODE.key in options:
        chosen = chosen.of_newest_snapshot()
    # Spark does not say whether it reads a stream, which may have kinds without a range.
    asked = {key: text for key, text in source.table.items() if key != READ_CHANGELOG.key}
    scan = _scan(source, chosen, asked=asked, filter=pc.scalar(False))
    if chosen.where is not None and MODE.key not in options:
        with naming(source.location):  # raises if the text is not a condition on the columns
            condition_in_text(chosen.where, scan.schema, "where")
    columns = [
        StructField(field.name, spark_type(field.type), field.type.nullable)
        for field in scan.columns
    ]
    if scan.table.options.value(READ_CHANGELOG) and ROW_KIND_COLUMN not in scan.columns:
        columns.insert(0, StructField(ROW_KIND, StringType(), False))
    return StructType(columns)


class _SnapshotReader(DataSourceReader):  # type: ignore[misc]
    """Reads the splits of a scan.

    Attributes:
        options: what the options of the read say.
        scan: the scan, without its files.
        arrow: the types in which Spark expects the rows.
    """

    def __init__(
        self,
        options: dict[str, str],
        schema: StructType,
        *,
        filter: Any = None,
        of_stream: Iterable[str] | None = None,
    ) -> None:
        """Plans the scan. `of_stream` has the keys of the further options that a stream read uses;
        None for a batch read. A stream read chooses the snapshots itself.
        """
        source, read_options = _divided(options)
        self.options = read_options
        chosen = replace(read_options, columns=schema.names)
        with naming(source.location):
            opt.check_unfollowed_reads(source.table, of_stream or _FOLLOWED)
        if of_stream is None:
            _check_mode(source, read_options.at)
            _check_columns(source, read_options, schema.names)
            scan = _scan(source, chosen, asked=source.table)
        else:
            _check_of_stream(source, read_options)
            scan = plan_scan(
                _table(source),
                columns=schema.names,
                filter=filter,
                partition=read_options.partition,
            )
        for field, wanted in zip(scan.columns, schema.fields, strict=True):
            if not same_but_nulls(spark_type(field.type), wanted.dataType):
                raise IncompatibleSchema(
                    f"column {field.name!r} is {field.type}, which is no "
                    f"{wanted.dataType.simpleString()} in Spark.",
                    column=field.name,
                ).of_table(scan.table.location)
        self._splits = splits_of(scan, self.options.split_bytes)
        self.scan = without_files(scan)
        self.arrow = arrow_of(schema)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_splits": []}  # Spark sends each task its own

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition((CommitMessage.VERSION, split)) for split in self._splits]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if partition is None or partition.value is None:
            # There are no splits. In this case Spark 4.0 passes None, and later versions pass a
            # partition whose value is None.
            return
        prepare_worker()
        version, data = partition.value
        yield from rows_of_split(self.scan, self.arrow, data, version)


reader_of: Final = _SnapshotReader
"""Makes a reader of the snapshot that the options choose now, with exactly the columns of a schema.
Raises the errors of `PaimonTable.to_arrow`.
"""


def _divided(options: dict[str, str]) -> tuple[SourceOptions, ReadOptions]:
    """The options, divided by what they concern, and the values of the options of the read. Raises
    `InvalidOption`.
    """
    source = divided(options, chain.from_iterable(_KEYS))
    texts = {keys: _text_of(source, keys) for keys in _KEYS}
    at = PointInTime.of(
        source.location,
        _number_or_text(texts[_SNAPSHOT_ID]),
        texts[_TAG],
        _number_or_text(texts[_TIMESTAMP]),
    )
    column_names = texts[_COLUMNS]
    columns = None
    if column_names is not None:
        columns = [name.strip() for name in column_names.split(",")]
    split_size = texts[_SPLIT_SIZE]
    if split_size is None:
        split_size = SPLIT_BYTES
    try:
        split_bytes = size(split_size)
    except ValueError as wrong:
        raise InvalidOption(f"split-size is {wrong}.", option="split-size").of_table(
            source.location
        ) from None
    return source, ReadOptions(
        at=at,
        columns=columns,
        partition=texts[_PARTITION],
        where=texts[_WHERE],
        split_bytes=split_bytes,
    )


def _check_mode(source: SourceOptions, at: PointInTime) -> None:
    """Raises `InvalidOption` if the `scan.mode` of a batch read contradicts the point in time that
    the other options name.
    """
    options = opt.Options(source.table, location=source.location)
    mode = options.value(MODE)
    if mode == "default":
        return
    _check_range(source, mode, [option.key for option in RANGES if options.is_set(option)])
    if mode == INCREMENTAL:
        return
    allowed = [NEEDED[mode]] if mode in NEEDED else []
    if allowed == ["snapshot_id"]:
        allowed.append("tag")  # a tag is the name of a snapshot
    check_start(source.location, mode, allowed, at.said_by)


def _check_range(source: SourceOptions, mode: str, ranges: Sequence[str]) -> None:
    """Raises `InvalidOption` if the options name a range of changes and the mode is for a snapshot.
    Also raises it for a mode that needs a range, if no range is named.
    """
    if (mode == INCREMENTAL) == bool(ranges):
        return
    keys = ", ".join(option.key for option in RANGES)
    raise InvalidOption(
        f"cannot be read: scan.mode = {mode}, and {'one' if ranges else 'none'} of {keys} is given. "
        "Leave scan.mode out.",
        option=MODE.key,
    ).of_table(source.location, subject=True)


def check_start(location: str, mode: str, allowed: Sequence[str], named: Sequence[str]) -> None:
    """Raises `InvalidOption` if the options name another start than a mode needs.

    Args:
        location: the location of the table.
        mode: the value of `scan.mode`.
        allowed: the attributes of `PointInTime` of which the mode needs one. Empty: the mode needs
            none.
        named: the attributes that the options set.
    """
    is_right = not named
    if allowed:
        is_right = len(named) == 1 and named[0] in allowed
    if is_right:
        return
    needed = " or ".join(_START_NAMES[name] for name in allowed)
    options = " and ".join(_START_NAMES[name] for name in named)
    raise InvalidOption(
        f"cannot be read: scan.mode = {mode} needs {needed or _NO_START}, but the options name "
        f"{options or _NO_START}.",
        option=MODE.key,
    ).of_table(location, subject=True)


def _check_columns(source: SourceOptions, options: ReadOptions, names: Sequence[str]) -> None:
    """Raises `InvalidOption` if Spark was told the columns that the table has today, and the older
    snapshot that is read has others. `schema_of` tells today's columns if there is a `scan.mode`,
    because Spark does not say beforehand whether it reads a stream, which has these columns.
    Without this check, columns that were dropped since would silently be missing.
    """
    if MODE.key not in source.table or options.at == NEWEST or options.columns is not None:
        return
    scan = _scan(source, options, asked=source.table, filter=pc.scalar(False))
    columns_of_today = _nullable_types(scan.table.schema)
    columns_of_snapshot = _nullable_types(scan.schema)
    are_of_today = set(names) - {ROW_KIND} == set(columns_of_today)
    if are_of_today and columns_of_snapshot != columns_of_today:
        raise InvalidOption(
            "cannot be read with scan.mode: the snapshot has the columns "
            f"{', '.join(columns_of_snapshot)}, and the table has {', '.join(columns_of_today)} today. Leave "
            "scan.mode out, or name columns that both have in the option 'columns'.",
            option=MODE.key,
        ).of_table(source.location, subject=True)


def _nullable_types(schema: TableSchema) -> dict[str, DataType]:
    """The types of the columns by name. In them, each column may be NULL."""
    return {field.name: field.type.with_nullable(True) for field in schema.fields}


def _check_of_stream(source: SourceOptions, options: ReadOptions) -> None:
    """Raises `InvalidOption` for an option that a stream read does not follow."""
    if options.where is not None:
        raise InvalidOption(
            "cannot be read as a stream with the option where, which is for batch reads. Leave it "
            "out, and filter the stream by DataFrame.where.",
            option="where",
        ).of_table(source.location, subject=True)


def _text_of(source: SourceOptions, keys: Sequence[str]) -> str | None:
    """The text of the one key among `keys` that is set; None if none is set. Raises `InvalidOption`
    if several are set.
    """
    keys_set = [key for key in keys if key in source.own]
    if len(keys_set) > 1:
        raise InvalidOption(
            f"{' and '.join(keys_set)} mean the same. Give one of them.", option=keys_set[1]
        ).of_table(source.location)
    return source.own[keys_set[0]] if keys_set else None


def _number_or_text(text: str | None) -> Any:
    return int(text) if text is not None and text.isdecimal() else text


def _table(source: SourceOptions) -> Table:
    return load_table(open_storage(source.location, source.storage), source.table)


def _scan(
    source: SourceOptions,
    chosen: ReadOptions,
    *,
    asked: Mapping[str, str],
    filter: pc.Expression | None = None,
) -> Scan:
    """The plan of a batch read. `asked` is passed to `plan_read`. `filter` takes the place of the
    condition that the options name.
    """
    condition = None if chosen.where is None else TypedCondition(chosen.where, "where")
    return plan_read(
        _table(source),
        at=chosen.at,
        asked=asked,
        columns=chosen.columns,
        filter=condition if filter is None else filter,
        partition=chosen.partition,
    )
