"""Data files of tables with primary keys. Their rows are sorted by key, and each key occurs once.
New files are at level 0 (format.md §7.3). A file has the key columns under separate names, then a
sequence number and a row kind, and then the table's columns. Changelog files have the same columns,
but they have all rows of a key, and their names have another prefix.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa

from paimon_stream import options as opt
from paimon_stream.errors import ConfigError
from paimon_stream.format.arrow_types import to_numbers
from paimon_stream.format.binary_columns import encode_columns
from paimon_stream.format.entries import EMPTY_ROW, DataFileMeta
from paimon_stream.format.file_format import FileFormat, file_format, waiting_format
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.stats import ColumnStats, StatsMode, encode_stats, parse_mode
from paimon_stream.format.types import DataField
from paimon_stream.merge.merge_order import flat
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
_SYSTEM_COLUMNS: Final = 2
"""The sequence number and the row kind, which stand between the keys and the table's columns."""


def key_value_schema(schema: TableSchema, *, thin: bool) -> TableSchema:
    """The columns of a key-value file of a table. `thin` files omit the key columns."""
    fields = (SEQUENCE_COLUMN, KIND_COLUMN, *schema.fields)
    if not thin:
        keys = [_key_column(schema.field(name)) for name in schema.trimmed_primary_keys]
        fields = (*keys, *fields)
    return replace(schema, fields=fields)


def _key_column(field: DataField) -> DataField:
    """The column of a key-value file that has the values of a key column."""
    return DataField(
        id=_FIRST_KEY_ID + field.id,
        name=_KEY_PREFIX + field.name,
        type=field.type.with_nullable(False),
    )


class _Choice(NamedTuple):
    """A value that replaces an option of the table for files of one kind.

    Attributes:
        key: the option that errors name.
        value: the value that is used.
    """

    key: str
    value: str


_Choices = dict[str, _Choice]
"""Choices by the keys of the options that they replace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValueSettings:
    """The settings that all key-value files of a table have in common.

    Attributes:
        file: the settings that other data files also have.
        keys: the key columns in key order.
        key_mode: the statistics mode of the key columns.
        keys_at: the positions, in a file, of the columns that give the statistics of the keys.
        values_at: the position, in a file, of the table's first column.
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
        """The settings for data files of a level, or for changelog files.

        Args:
            schema: the columns and keys of the table.
            options: the options of the table.
            table: the table, for messages.
            level: the level of the files.
            changelog: whether the files are changelog files.

        Raises:
            ConfigError: if options contradict each other or the columns.
        """
        choices = _choices_of_level(options, level)
        prefix = opt.DATA_FILE_PREFIX
        if changelog:
            choices |= _choices_of_changelogs(options)
            prefix = opt.CHANGELOG_FILE_PREFIX
        return cls._chosen(schema, options, choices, options.value(prefix), table)

    @classmethod
    def of_waiting(
        cls, schema: TableSchema, options: opt.Options, user: str, table: str = ""
    ) -> "KeyValueSettings":
        """The settings for the files of bucket -2 that this commit user writes (table-kinds.md
        §4.1). The names of these files tell Java's compactions which files they must read in the
        order of time. Raises `ConfigError`s.
        """
        if waiting_format(schema.fields, options) is not FileFormat.AVRO:
            choices = _choices_of_level(options, 0)
        else:
            choices = {
                opt.FILE_FORMAT.key: _Choice(opt.FILE_FORMAT.key, "avro"),
                opt.STATS_MODE.key: _Choice(opt.STATS_MODE.key, "none"),
            }
        # In the name, Java takes the text before the first "-s-" as the user. It parses the number
        # after it as an INT, which has no more than 31 bits besides its sign.
        user_name = _NOT_IN_NAMES.sub("_", user).replace("-s-", "-S-")[:_LONGEST_USER]
        user_number = crc32(user.encode()) >> 1
        prefix = f"{options.value(opt.DATA_FILE_PREFIX)}-u-{user_name}-s-{user_number}-w-"
        return cls._chosen(schema, options, choices, prefix, table)

    @classmethod
    def _chosen(
        cls,
        schema: TableSchema,
        options: opt.Options,
        choices: _Choices,
        prefix: str,
        table: str,
    ) -> "KeyValueSettings":
        """The settings that follow from the options, some of which are replaced by `choices`.
        Errors name the options that the choices came from.
        """
        values = {key: choice.value for key, choice in choices.items()}
        try:
            return cls._of(schema, opt.Options(options, values), prefix, table)
        except ConfigError as error:
            message = error.message
            for key, choice in choices.items():
                message = message.replace(key, choice.key)
            raise type(error)(message, **error.context) from None

    @classmethod
    def _of(
        cls, schema: TableSchema, options: opt.Options, prefix: str, table: str
    ) -> "KeyValueSettings":
        """The settings that these options alone ask for. `prefix` is the beginning of file names.
        Raises `ConfigError`s.
        """
        thin = options.value(opt.THIN_MODE)
        stored = key_value_schema(schema, thin=thin)
        keys = tuple(schema.field(name) for name in schema.trimmed_primary_keys)
        stats, key_mode = _modes(schema, options, thin=thin)
        values_at = len(stored.fields) - len(schema.fields)
        if thin:
            # The file has no separate columns for keys. The keys are among the value columns.
            keys_at = tuple(values_at + schema.field_names.index(key.name) for key in keys)
        else:
            keys_at = tuple(range(len(keys)))
        key_columns = values_at - _SYSTEM_COLUMNS
        wanted = (True,) * key_columns + (False,) * _SYSTEM_COLUMNS + stats.wanted
        file = replace(
            DataFileSettings.of(schema, options, table),
            format=file_settings(stored, options, wanted, table),
            arrow=file_schema(stored),
            stats=stats,
            prefix=prefix,
        )
        return cls(file=file, keys=keys, key_mode=key_mode, keys_at=keys_at, values_at=values_at)

    def stored(self, rows: pa.Table | pa.RecordBatch) -> pa.Table:
        """Adds the other columns of a file to rows of the table. Each row already has its sequence
        number and kind.
        """
        schema = self.file.arrow
        key_columns = self.values_at - _SYSTEM_COLUMNS
        names = [name.removeprefix(_KEY_PREFIX) for name in schema.names[:key_columns]]
        names += schema.names[key_columns:]
        return pa.Table.from_arrays([rows.column(name) for name in names], schema=schema)


def _choices_of_level(options: opt.Options, level: int) -> _Choices:
    """The options that have another value for files of this level."""
    choices = {}
    for option, per_level in (
        (opt.FILE_FORMAT, opt.FILE_FORMAT_PER_LEVEL),
        (opt.FILE_COMPRESSION, opt.FILE_COMPRESSION_PER_LEVEL),
        (opt.STATS_MODE, opt.STATS_MODE_PER_LEVEL),
    ):
        value_of_level = options.value(per_level)
        if level in value_of_level:
            choices[option.key] = _Choice(per_level.key, value_of_level[level])
    return choices


def _choices_of_changelogs(options: opt.Options) -> _Choices:
    """The options that have another value for changelog files."""
    choices = {}
    for option, of_changelogs in (
        (opt.FILE_FORMAT, opt.CHANGELOG_FILE_FORMAT),
        (opt.FILE_COMPRESSION, opt.CHANGELOG_FILE_COMPRESSION),
        (opt.STATS_MODE, opt.CHANGELOG_FILE_STATS),
    ):
        if options.is_set(of_changelogs):
            choices[option.key] = _Choice(of_changelogs.key, options.value(of_changelogs))
    return choices


def _modes(schema: TableSchema, options: opt.Options, *, thin: bool) -> tuple[StatsPlan, StatsMode]:
    """The modes of the table's columns, and the mode of its keys. Keys have longer bounds, except
    in Avro (format.md §4.5). `thin` files have no separate columns for keys. In these files, the
    table's key columns get the mode of keys.
    """
    plan = StatsPlan.of(schema, options)
    key_mode = parse_mode(_KEY_MODE)
    if file_format(options) is FileFormat.AVRO:
        key_mode = parse_mode(options.value(opt.STATS_MODE))
    if not thin:
        return plan, key_mode
    keys = schema.trimmed_primary_keys
    modes = list(plan.modes)
    for position, field in enumerate(plan.fields):
        if field.name in keys and f"fields.{field.name}.stats-mode" not in options:
            modes[position] = key_mode
    return replace(plan, modes=tuple(modes)), key_mode


@dataclass(slots=True)
class _Content:
    """The facts about the rows of a key-value file that its manifest entry states.

    Attributes:
        first_key: the key of the first row; None if there are no rows.
        last_key: the key of the last row.
        least_sequence: the smallest sequence number.
        greatest_sequence: the largest sequence number.
        deletes: the number of -U and -D rows.
    """

    first_key: bytes | None = None
    last_key: bytes = EMPTY_ROW
    least_sequence: int = 2**63 - 1
    greatest_sequence: int = -1
    deletes: int = 0


class KeyValueWriter(BucketWriter):
    """Writes the rows of one (partition, bucket); see `BucketWriter`. The rows have the columns of
    `key_value_schema`. They come in key order, and this order continues from file to file. Only
    rows of bucket -2 may come in any order.
    """

    def __init__(
        self, settings: "KeyValueSettings", storage: Storage, runtime: Runtime, folder: str
    ) -> None:
        super().__init__(settings.file, storage, runtime, folder)
        self._keyed = settings
        self._content = _Content()

    def add_rows(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Adds rows of the table, each with its sequence number and kind."""
        for batch in self._keyed.stored(rows).to_batches():
            self.add(batch)

    def _note(self, rows: pa.Table) -> None:
        content = self._content
        sequence = to_numbers(flat(rows.column(SEQUENCE)))
        kinds = to_numbers(flat(rows.column(KIND)))
        content.least_sequence = min(content.least_sequence, int(sequence.min()))
        content.greatest_sequence = max(content.greatest_sequence, int(sequence.max()))
        content.deletes += int(np.isin(kinds, (UPDATE_BEFORE, DELETE)).sum())
        if content.first_key is None:
            content.first_key = self._key(rows.slice(0, 1))
        content.last_key = self._key(rows.slice(rows.num_rows - 1))

    def _key(self, row: pa.Table) -> bytes:
        """The serialized key of a row. `row` has only this one row."""
        keys = self._keyed.keys
        columns = [flat(row.column(key.name)) for key in keys]
        encoded = encode_columns(columns, [key.type for key in keys])
        return len(columns).to_bytes(4, "big") + encoded.row(0)

    def _describe(self, file: FileWriter, columns: Sequence[ColumnStats]) -> DataFileMeta:
        settings = self._keyed
        content = self._content
        self._content = _Content()
        keys = [replace(key, type=key.type.with_nullable(True)) for key in settings.keys]
        key_columns = [settings.key_mode.apply(columns[position]) for position in settings.keys_at]
        key_stats, _ = encode_stats(keys, key_columns, dense=False)
        return replace(
            super()._describe(file, columns[settings.values_at :]),
            key_stats=key_stats,
            min_key=content.first_key or EMPTY_ROW,
            max_key=content.last_key,
            min_sequence_number=content.least_sequence,
            max_sequence_number=content.greatest_sequence,
            delete_row_count=content.deletes,
        )
