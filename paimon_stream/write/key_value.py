"""Data files of tables with primary keys: rows sorted by key, each key once, at level 0 (format.md
§7.3). A file has the key columns under names of their own, then a sequence number and a row kind,
then the table's columns. Changelog files have the same columns, but all rows of a key and another
prefix in their names.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from zlib import crc32

import numpy as np
import pyarrow as pa

from paimon_stream import options as opt
from paimon_stream.errors import ConfigError
from paimon_stream.format.binary_columns import encode_columns
from paimon_stream.format.entries import EMPTY_ROW, DataFileMeta
from paimon_stream.format.file_format import FileFormat, file_format, waiting_format
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.stats import ColumnStats, StatsMode, encode_stats, parse_mode
from paimon_stream.format.types import DataField
from paimon_stream.merge.key_runs import flat
from paimon_stream.merge.spec import (
    DELETE,
    KIND,
    KIND_COLUMN,
    SEQUENCE,
    SEQUENCE_COLUMN,
    UPDATE_BEFORE,
)
from paimon_stream.runtime import Runtime
from paimon_stream.storage.base import Storage
from paimon_stream.write.data_file import BucketWriter, DataFileSettings, file_settings
from paimon_stream.write.file_stats import StatsPlan, file_schema
from paimon_stream.write.output import FileWriter

_KEY_PREFIX: Final = "_KEY_"
_FIRST_KEY_ID: Final = 1_073_741_823
_KEY_MODE: Final = "truncate(128)"
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.-]")
_LONGEST_USER: Final = 100


def key_value_schema(schema: TableSchema, *, thin: bool) -> TableSchema:
    """The columns of a key-value file of that table; thin files omit the key columns."""
    keys = [
        DataField(
            id=_FIRST_KEY_ID + one.id,
            name=_KEY_PREFIX + one.name,
            type=one.type.with_nullable(False),
        )
        for one in map(schema.field, schema.trimmed_primary_keys)
    ]
    return replace(
        schema, fields=(*(() if thin else keys), SEQUENCE_COLUMN, KIND_COLUMN, *schema.fields)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValueSettings:
    """What all key-value files of a table have in common. `keys` are the key columns in key order,
    `keys_at` the positions, in a file, of the columns that give their statistics, `values_at` that
    of the table's first column.
    """

    file: DataFileSettings
    keys: tuple[DataField, ...]
    key_mode: StatsMode
    keys_at: tuple[int, ...]
    values_at: int

    @classmethod
    def of(
        cls,
        schema: TableSchema,
        options: opt.Options,
        table: str = "",
        *,
        level: int = 0,
        changelog: bool = False,
    ) -> "KeyValueSettings":
        """The settings for data files of that level, or for its changelog files. Raises
        `ConfigError`s.
        """
        prefix = options.value(opt.CHANGELOG_FILE_PREFIX if changelog else opt.DATA_FILE_PREFIX)
        return cls._chosen(schema, options, _of_level(options, level, changelog), prefix, table)

    @classmethod
    def of_waiting(
        cls, schema: TableSchema, options: opt.Options, user: str, table: str = ""
    ) -> "KeyValueSettings":
        """The settings for the files of bucket -2 that this commit user writes (table-kinds.md
        §4.1). Their names tell Java's compactions which files they must read in the order of time.
        Raises `ConfigError`s.
        """
        avro = waiting_format(schema.fields, options) is FileFormat.AVRO
        own = {
            opt.FILE_FORMAT.key: (opt.FILE_FORMAT.key, "avro"),
            opt.STATS_MODE.key: (opt.STATS_MODE.key, "none"),
        }
        name = _NOT_IN_NAMES.sub("_", user).replace("-s-", "-S-")[:_LONGEST_USER]
        writer = f"{options.value(opt.DATA_FILE_PREFIX)}-u-{name}-s-{crc32(user.encode()) >> 1}-w-"
        return cls._chosen(
            schema, options, own if avro else _of_level(options, 0, False), writer, table
        )

    @classmethod
    def _chosen(
        cls,
        schema: TableSchema,
        options: opt.Options,
        chosen: Mapping[str, tuple[str, str]],
        prefix: str,
        table: str,
    ) -> "KeyValueSettings":
        """With `chosen`: for each of the table's options, the option that errors name in its place,
        and its value.
        """
        values = {general: value for general, (_, value) in chosen.items()}
        try:
            return cls._of(schema, opt.Options(options, values), prefix, table)
        except ConfigError as why:
            text = why.message
            for general, (own, _) in chosen.items():
                text = text.replace(general, own)
            raise type(why)(text, **why.context) from None

    @classmethod
    def _of(
        cls, schema: TableSchema, options: opt.Options, prefix: str, table: str
    ) -> "KeyValueSettings":
        thin = options.value(opt.THIN_MODE)
        stored = key_value_schema(schema, thin=thin)
        keys = tuple(schema.field(name) for name in schema.trimmed_primary_keys)
        stats, key_mode = _modes(schema, options, thin=thin)
        values_at = len(stored.fields) - len(schema.fields)
        keys_at = tuple(range(len(keys)))
        if thin:
            keys_at = tuple(values_at + schema.field_names.index(one.name) for one in keys)
        wanted = (*(True for _ in range(values_at - 2)), False, False, *stats.wanted)
        plain = DataFileSettings.of(schema, options, table)
        made = file_settings(stored, options, wanted, table)
        file = replace(plain, format=made, arrow=file_schema(stored), stats=stats, prefix=prefix)
        return cls(file=file, keys=keys, key_mode=key_mode, keys_at=keys_at, values_at=values_at)

    def stored(self, rows: pa.Table | pa.RecordBatch) -> pa.Table:
        """Rows of the table, each with its sequence number and kind, with the columns of the
        file.
        """
        arrow = self.file.arrow
        keys = self.values_at - 2
        names = [
            name.removeprefix(_KEY_PREFIX) if at < keys else name
            for at, name in enumerate(arrow.names)
        ]
        return pa.Table.from_arrays([rows.column(name) for name in names], schema=arrow)


def _of_level(options: opt.Options, level: int, changelog: bool) -> dict[str, tuple[str, str]]:
    """What the options say for files of this level: see `KeyValueSettings._chosen`."""
    chosen = {}
    for option, per_level, of_changelog in (
        (opt.FILE_FORMAT, opt.FILE_FORMAT_PER_LEVEL, opt.CHANGELOG_FILE_FORMAT),
        (opt.FILE_COMPRESSION, opt.FILE_COMPRESSION_PER_LEVEL, opt.CHANGELOG_FILE_COMPRESSION),
        (opt.STATS_MODE, opt.STATS_MODE_PER_LEVEL, opt.CHANGELOG_FILE_STATS),
    ):
        if changelog and options.is_set(of_changelog):
            chosen[option.key] = of_changelog.key, options.value(of_changelog)
        elif level in options.value(per_level):
            chosen[option.key] = per_level.key, options.value(per_level)[level]
    return chosen


def _modes(schema: TableSchema, options: opt.Options, *, thin: bool) -> tuple[StatsPlan, StatsMode]:
    """The modes of the table's columns and of its keys, which have longer bounds except in Avro
    (format.md §4.5).
    """
    plan = StatsPlan.of(schema, options)
    key_mode = parse_mode(_KEY_MODE)
    if file_format(options) is FileFormat.AVRO:
        key_mode = parse_mode(options.value(opt.STATS_MODE))
    if thin:
        keys = schema.trimmed_primary_keys
        modes = tuple(
            key_mode
            if one.name in keys and f"fields.{one.name}.stats-mode" not in options
            else mode
            for one, mode in zip(plan.fields, plan.modes, strict=True)
        )
        plan = replace(plan, modes=modes)
    return plan, key_mode


class KeyValueWriter(BucketWriter):
    """Writes the rows of one (partition, bucket); see `BucketWriter`. The rows have the columns of
    `key_value_schema` and come in key order, also from file to file. Rows that wait for their
    buckets come in any order.
    """

    def __init__(
        self, settings: "KeyValueSettings", storage: Storage, runtime: Runtime, folder: str
    ) -> None:
        super().__init__(settings.file, storage, runtime, folder)
        self._keyed = settings
        self._first_key: bytes | None = None
        self._last_key = EMPTY_ROW
        self._least, self._most = 2**63 - 1, -1
        self._deletes = 0

    def add_rows(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Adds rows of the table, each with its sequence number and kind."""
        for batch in self._keyed.stored(rows).to_batches():
            self.add(batch)

    def _note(self, rows: pa.Table) -> None:
        sequence = rows.column(SEQUENCE).to_numpy()
        self._least = min(self._least, int(sequence.min()))
        self._most = max(self._most, int(sequence.max()))
        self._deletes += int(np.isin(rows.column(KIND).to_numpy(), (UPDATE_BEFORE, DELETE)).sum())
        if self._first_key is None:
            self._first_key = self._key(rows.slice(0, 1))
        self._last_key = self._key(rows.slice(rows.num_rows - 1))

    def _key(self, row: pa.Table) -> bytes:
        columns = [flat(row.column(one.name)) for one in self._keyed.keys]
        return len(columns).to_bytes(4, "big") + encode_columns(
            columns, [one.type for one in self._keyed.keys]
        ).row(0)

    def _described(self, file: FileWriter, columns: Sequence[ColumnStats]) -> DataFileMeta:
        keyed = self._keyed
        keys = [replace(one, type=one.type.with_nullable(True)) for one in keyed.keys]
        key_stats, _ = encode_stats(
            keys, [keyed.key_mode.apply(columns[at]) for at in keyed.keys_at], False
        )
        made = replace(
            super()._described(file, columns[keyed.values_at :]),
            key_stats=key_stats,
            min_key=self._first_key or EMPTY_ROW,
            max_key=self._last_key,
            min_sequence_number=self._least,
            max_sequence_number=self._most,
            delete_row_count=self._deletes,
        )
        self._first_key, self._last_key = None, EMPTY_ROW
        self._least, self._most, self._deletes = 2**63 - 1, -1, 0
        return made
