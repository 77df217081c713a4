"""A table as one value: its location, its schema and its options in force. This module also decides
which tables can be written.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final

from paimon_stream import errors
from paimon_stream import options as opt
from paimon_stream.format.avro_file import compressor
from paimon_stream.format.file_format import (
    check_columns,
    compression,
    file_format,
    waiting_format,
    warn_of_ignored,
)
from paimon_stream.format.names import POSTPONE_BUCKET
from paimon_stream.format.partition_path import check_partition_key
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, DataType
from paimon_stream.merge.spec import MergeSpec
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import BranchStorage, branch_of, whole_of
from paimon_stream.storage.uri import with_roots
from paimon_stream.table.creation import check_buckets, check_types, first_schema
from paimon_stream.table.layout import SCHEMA_FOLDER, Layout, external_roots
from paimon_stream.table.option_rules import check_overrides, check_possible
from paimon_stream.table.partition_spellings import with_spellings, without_spellings
from paimon_stream.table.references import histories
from paimon_stream.table.schema import SchemaStore, no_such_branch
from paimon_stream.table.schema_change import SchemaChange, altered
from paimon_stream.table.snapshots import SnapshotStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """An immutable description of a table at one moment.

    Attributes:
        storage: the table's folder, or the branch's folder.
        schema: the newest schema at that moment.
        options: the options of the schema with the writer's overrides.
        layout: where the files of the table are.
    """

    storage: Storage
    schema: TableSchema
    options: opt.Options
    layout: Layout

    @property
    def location(self) -> str:
        """The table's folder, as a user would write it, without credentials. For a branch other
        than main, it names the branch, too.
        """
        return self.storage.location

    @property
    def folder(self) -> str:
        """The table's folder, in which the data files of all its branches are, without
        credentials.
        """
        return whole_of(self.storage).location

    @property
    def partition_types(self) -> tuple[DataType, ...]:
        """The types of the partition columns, in partition key order."""
        return self.layout.partition_types

    @property
    def is_bucket_unaware(self) -> bool:
        """Whether the table has neither a primary key nor fixed buckets, which is Java's mode
        BUCKET_UNAWARE.
        """
        return not self.schema.primary_keys and self.options.value(opt.BUCKET) <= 0

    @property
    def is_postponed(self) -> bool:
        """Whether rows wait in bucket -2 until a compaction gives them their buckets
        (table-kinds.md §4).
        """
        return bool(self.options.value(opt.BUCKET) == POSTPONE_BUCKET)

    @property
    def least_bucket(self) -> int:
        """The lowest bucket whose files an overwrite replaces. If rows wait in bucket -2 for their
        buckets, it is that bucket.
        """
        return POSTPONE_BUCKET if self.is_postponed else 0

    @property
    def has_dynamic_buckets(self) -> bool:
        """Whether a hash index says in which bucket of its partition a key is (table-kinds.md
        §2).
        """
        keys = self.schema.primary_keys
        return (
            bool(keys)
            and self.options.value(opt.BUCKET) == -1
            and set(self.schema.partition_keys) <= set(keys)
        )


def load_table(storage: Storage, overrides: Mapping[str, str] | None = None) -> Table:
    """The table at the storage's root, with its newest schema. Raises `CorruptMetadata`,
    `UnknownVersion`, `StorageError`, `NotFound` if there is no table, and `InvalidOption` for
    overrides of options that apply to all writers.
    """
    if isinstance(storage, BranchStorage) and storage.is_noted():
        raise no_such_branch(storage)
    return table_of(storage, SchemaStore(storage).latest(), overrides)


def create_table(
    storage: Storage,
    fields: Sequence[DataField],
    *,
    partition_keys: Sequence[str] = (),
    primary_keys: Sequence[str] = (),
    options: Mapping[str, object] | None = None,
    comment: str = "",
    runtime: Runtime | None = None,
) -> Table | None:
    """Creates a table at the storage's root by creating its first schema atomically; None if there
    is already a table, even with another schema. Raises `StorageError`. Raises `IncompatibleSchema`
    or `InvalidOption` for a table that Java could not write either. After an error, nothing is
    created.
    """
    schema = first_schema(
        fields,
        partition_keys=partition_keys,
        primary_keys=primary_keys,
        options=options,
        comment=comment,
        time_millis=(runtime or system()).clock.now_millis(),
    )
    table = table_of(storage, schema, None)
    check_definition(table)
    schemas = SchemaStore(storage)
    if schemas.latest_id() is None and schemas.create(schema):
        return table
    return None


def table_of(
    storage: Storage, schema: TableSchema, overrides: Mapping[str, str] | None = None
) -> Table:
    """The table at the storage's root. Raises `InvalidOption` for overrides of options that apply
    to all writers.

    A sink option counts only among the overrides. Any engine can store such an option in the schema
    while a stream runs. The stored option would then switch the journal off although the register
    says that the journal is complete, or decide for an operator (exactly-once.md §1).
    `warn_of_sink_options` names the sink options that are stored.
    """
    check_overrides(storage.location, schema.options, overrides or {})
    options = _options_in_force(
        tuple(opt.of_table(schema.options).items()),
        tuple((overrides or {}).items()),
        storage.location,
    )
    layout = layout_of(storage, schema, options)
    storage = without_spellings(storage)
    if layout.external is not None:
        storage = with_roots(storage, layout.roots)
    storage = with_spellings(storage, layout)
    return Table(storage=storage, schema=schema, options=options, layout=layout)


@lru_cache(64)
def _options_in_force(
    stored: tuple[tuple[str, str], ...], overrides: tuple[tuple[str, str], ...], location: str
) -> opt.Options:
    """The options of a table, overridden by those of one writer. A table is loaded again for each
    batch and each command, mostly with the same options, and `Options` keeps the values that it has
    parsed.
    """
    return opt.Options(dict(stored), dict(overrides), location)


def layout_of(storage: Storage, schema: TableSchema, options: opt.Options) -> Layout:
    """The layout of a table, with the external paths of all its earlier schemas. Raises what
    `Layout.of` raises.
    """
    layout = Layout.of(schema, options)
    if layout.external is None:
        return layout
    return replace(layout, external=replace(layout.external, earlier=_EarlierRoots(storage)))


class _EarlierRoots:
    """Finds the external paths that any schema of the table or of one of its branches has. The
    schemas are read at the first call. Tasks of Spark get the table with this object, so it can be
    pickled.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __call__(self) -> frozenset[str]:
        return self._roots

    @cached_property
    def _roots(self) -> frozenset[str]:
        roots: set[str] = set()
        for schemas in map(SchemaStore, histories(self._storage)):
            for schema_id in schemas.ids():
                # If a schema cannot be read, the code that needs the schema reports the error.
                with suppress(errors.FormatError, errors.InvalidOption, errors.UnsupportedFeature):
                    roots.update(external_roots(opt.Options(schemas.get(schema_id).options)))
        return frozenset(roots)


# -- what can be written --------------------------------------------------------------------------
# Options that, if true, require something that a commit of this release would silently leave out.
_UNSORTED: Final = "files that are not sorted by the key"
_NOT_BUILT: Final[Mapping[opt.Option[Any], str]] = {
    opt.PK_CLUSTERING_OVERRIDE: _UNSORTED,
    opt.PRIMARY_KEY_NULLABLE: "keys that may be NULL",
    opt.BLOB_FIELD: "BLOBs",
    opt.BLOB_DESCRIPTOR_FIELD: "BLOBs",
    opt.BLOB_VIEW_FIELD: "BLOBs of other tables",
    opt.VIDEO_FRAME_FIELD: "frames of videos",
    opt.VECTOR_FIELD: "vectors",
}


def check_committable(table: Table) -> None:
    """Raises `UnsupportedFeature` if commit messages of any origin cannot be committed to the table
    as its definition requires. The reason is its kind, an option or a partition column.
    """
    _check_type(table)
    _check_evolution(table)
    _check_places(table)
    _check_partition_columns(table)


def check_definition(table: Table) -> None:
    """Raises `IncompatibleSchema` if no engine, Java included, could open a table with these
    columns, and `InvalidOption` if none could write or merge its rows, because its options
    contradict its columns or each other.
    """
    check_types(table.schema.fields)
    check_buckets(table.schema, table.options)
    # Other engines may have features that this release lacks.
    with suppress(errors.UnsupportedFeature):
        _check_merging(table)


def check_table_kind(table: Table) -> None:
    """Raises an error if this release cannot write the table as its definition requires. It is
    called before anything is written. The error is `UnsupportedFeature` for the table's kind, a
    column, an option or an aggregate function. It is `InvalidOption` for options that contradict
    the schema or each other (semantics.md §6.1, §6.5), or `IncompatibleSchema`.
    `stream/writable.py` calls this first and then judges what only a compaction can do.
    """
    with errors.naming(table.location):
        _check_kind(table)
        _check_options(table)
        _check_partition_columns(table)
        check_types(table.schema.fields)
        check_buckets(table.schema, table.options)
        _check_merging(table)


def _check_merging(table: Table) -> None:
    if table.schema.primary_keys:
        # The call raises an error for options that contradict each other or the columns.
        MergeSpec.of(table.schema, table.options, table=table.location)


def _check_type(table: Table) -> None:
    kind = table.options.value(opt.TABLE_TYPE)
    if kind != "table":
        raise _refusal(
            table,
            opt.TABLE_TYPE,
            f"is of type {kind!r}; only ordinary tables can be written. "
            "Write to a table without the option 'type'.",
            kind,
        )


def _check_kind(table: Table) -> None:
    _check_type(table)
    schema = table.schema
    buckets = table.options.value(opt.BUCKET)
    keys_stay_in_partition = set(schema.partition_keys) <= set(schema.primary_keys)
    if not schema.primary_keys or buckets > 0 or keys_stay_in_partition:
        return
    raise _refusal(
        table,
        opt.BUCKET,
        f"has a primary key ({', '.join(schema.primary_keys)}) without all partition keys, and bucket = {buckets}: a "
        "key may move to another partition (cross-partition). A writer would need a map of all keys of the table, so "
        "this package does not write such tables. Create the table with all partition keys in its primary key, or "
        "without partitions.",
        buckets,
        primary_keys=schema.primary_keys,
    )


def _check_options(table: Table) -> None:
    for option, feature in _NOT_BUILT.items():
        if table.options.value(option):
            raise _unsupported(table, option, f"uses {feature}, which this release does not write")
    check_map_layouts(table)
    _check_evolution(table)
    _check_places(table)
    format_ = file_format(table.options)
    compression(table.options, format_)  # raises for one that cannot be written
    if table.is_postponed:
        compression(table.options, waiting_format(table.schema.fields, table.options))
    check_columns(format_, table.schema.fields, table.options, table.location)
    warn_of_ignored(table.options, format_)


def _check_places(table: Table) -> None:
    """Checks where the table keeps data and history, and how manifests are written."""
    check_branch_option(table)
    for root in table.layout.roots:
        # The call raises an error if the store cannot be opened or asked.
        table.storage.exists(f"{root}{SCHEMA_FOLDER}")
        if table.layout.index_beside_data:
            raise _unsupported(
                table,
                opt.INDEX_IN_DATA_DIR,
                "keeps index files beside data files outside the table, which this release does not write",
            )
    if table.options.get(opt.MANIFEST_FORMAT.key, "avro").strip().lower() != "avro":
        raise _unsupported(
            table,
            opt.MANIFEST_FORMAT,
            "is of a file format that this release does not write",
        )
    # The call raises an error for a compression that cannot be written.
    compressor(table.options.value(opt.MANIFEST_COMPRESSION), table.options.value(opt.ZSTD_LEVEL))


def _check_evolution(table: Table) -> None:
    """Refuses a table with data evolution whose rows would get no ids. Java does not create such a
    table.
    """
    if table.options.value(opt.DATA_EVOLUTION) and not table.options.value(opt.ROW_TRACKING):
        raise _unsupported(
            table,
            opt.DATA_EVOLUTION,
            "uses data evolution without row-tracking.enabled, so no engine could join the columns of its rows",
        )


def check_map_layouts(table: Table) -> None:
    """Raises `UnsupportedFeature` if files of the table hold a MAP in another form than that of its
    type.
    """
    for key, text in table.options.items():
        is_layout = key.startswith("fields.") and key.endswith(".map.storage-layout")
        if is_layout and text.strip().lower() != "default":
            raise errors.UnsupportedFeature(
                f"has {key} = {text!r}: its files hold the MAP in columns of another form, which this release neither "
                "reads nor writes. Use an engine that does, or a table without the option.",
                option=key,
                value=text,
            ).of_table(table.location, subject=True)


def check_branch_option(table: Table) -> None:
    """Raises `UnsupportedFeature` if the option `branch` names another branch than the one that is
    open: other engines would read and write that branch.
    """
    named = table.options.value(opt.BRANCH)
    opened = branch_of(table.storage)
    if table.options.is_set(opt.BRANCH) and named != opened:
        raise _refusal(
            table,
            opt.BRANCH,
            f"has the option branch = {named!r}, and branch {opened!r} is open. Nothing was changed. "
            "Remove the option, or open the branch that is meant.",
            named,
        )


def _unsupported(table: Table, option: opt.Option[Any], problem: str) -> errors.UnsupportedFeature:
    """The error for an option that this release does not support. `problem` is a sentence without
    its subject, which is the table.
    """
    key = option.key
    value = table.options.get(key)
    if option.default:
        remedy = f"Set {key!r} to {option.default!r} if the table may change"
    else:
        remedy = f"Remove the option {key!r} if the table may change"
    return _refusal(
        table,
        option,
        f"{problem} ({key} = {value!r}). {remedy}, or write to another table.",
        value,
    )


def _refusal(
    table: Table, option: opt.Option[Any], message: str, value: Any, **context: Any
) -> errors.UnsupportedFeature:
    error = errors.UnsupportedFeature(message, option=option.key, value=value, **context)
    return error.of_table(table.location, subject=True)


def _check_partition_columns(table: Table) -> None:
    legacy = table.options.value(opt.PARTITION_LEGACY_NAME)
    for field in table.schema.partition_fields:
        check_partition_key(field.name, field.type, legacy=legacy, table=table.location)


# -- new schemas ----------------------------------------------------------------------------------
#
# A schema is published before the rows that need it. If no rows follow (the batch failed, the
# process was killed), the schema is harmless: it only adds columns, and the next attempt finds
# nothing left to change.


Merge = Callable[[TableSchema], TableSchema]
"""Maps the newest schema to the wanted one, which has the next id; returns the same object if
nothing is new.
"""

_ATTEMPTS: Final = 20


def alter_table(
    storage: Storage,
    changes: Sequence[SchemaChange],
    runtime: Runtime | None = None,
    publish_schema: Callable[[], object] | None = None,
) -> Table:
    """The table after the changes, all of them in one new schema, or none. A catalog may
    publish the schema itself (`publish_schema`), after it was checked here. Raises
    `IncompatibleSchema`, `InvalidOption`, `StorageError`, and `CommitContended` if others keep
    changing the schema.
    """
    now = (runtime or system()).clock.now_millis()

    def merge(schema: TableSchema) -> TableSchema:
        has_snapshots = SnapshotStore(storage).latest_id() is not None
        changed = altered(schema, changes, used=has_snapshots, time_millis=now)
        changed_table = table_of(storage, changed)
        check_definition(changed_table)
        check_possible(changed, opt.Options(changed.options))
        try:
            check_table_kind(table_of(storage, schema))
        except errors.ConfigError:
            return changed
        # Java refuses such a change, too, or this package could no longer write the table.
        check_table_kind(changed_table)
        return changed

    with errors.naming(storage.location):
        table = load_table(storage)
        if publish_schema is None:
            return evolve(table, merge, rows=False)
        merged = merge(table.schema)
        if merged is not table.schema:
            publish_schema()
            _warn_of_nanoseconds(table.schema, merged)
        return load_table(storage)


def evolve(
    table: Table,
    merge: Merge,
    overrides: Mapping[str, str] | None = None,
    digest: str | None = None,
    *,
    rows: bool = True,
) -> Table:
    """The table with the schema that `merge` makes from the table's newest schema. If anything is
    new, it is published as the next schema file. If another writer publishes a schema first,
    `merge` runs again on that schema.

    Args:
        table: the table, as the caller has loaded it.
        merge: makes the wanted schema.
        overrides: the options of this writer, as for `load_table`.
        digest: the digest that the table's first schema must have; None for any.
        rows: whether rows are to be written to the result. If so, `check_grown` checks it.

    Raises:
        TableReplaced: if the first schema has another digest. Nothing was published.
        CommitContended: if others keep changing the schema.
        StorageError: if the storage fails.
        PaimonStreamError: what `merge` and `check_grown` raise. Nothing was published.
    """
    schemas = SchemaStore(table.storage)
    for _ in range(_ATTEMPTS):
        merged = merge(table.schema)
        if merged is table.schema:
            return table
        if rows:
            check_grown(table, merged)
        if digest is not None:
            _require_same_table(table, schemas, digest)
        wanted = table_of(table.storage, merged, overrides)
        if _publish_schema(schemas, table.schema, merged):
            return wanted
        table = table_of(table.storage, schemas.latest(), overrides)
    raise errors.CommitContended(
        f"others changed the schema {_ATTEMPTS} times while it was being changed here. "
        "Nothing was written. Try again when they are done.",
        attempts=_ATTEMPTS,
    ).of_table(table.location)


def _publish_schema(schemas: SchemaStore, before: TableSchema, after: TableSchema) -> bool:
    """Publishes the schema `after`, which follows `before`. Returns whether the table has that
    schema now. If not, another writer has published one first. Raises `Unavailable` if that is not
    known, and `StorageError`.
    """
    try:
        is_created = schemas.create(after)
    except errors.Unavailable:
        if schemas.exists(after.id) and schemas.get(after.id) == after:
            return True
        if schemas.latest_id() == before.id:
            # The schema does not exist, but a late put may still create it. The next attempt at the
            # batch will find out.
            raise
        return False
    if is_created:
        _warn_of_nanoseconds(before, after)
    return is_created


def _require_same_table(table: Table, schemas: SchemaStore, digest: str) -> None:
    if schemas.first_digest() != digest:
        raise errors.TableReplaced(
            f"{table.location}: the table was dropped and created again while columns of the rows were being "
            "merged into its schema. Nothing was published. Start the query again: it judges the new table.",
            table=table.location,
        )


def _warn_of_nanoseconds(before: TableSchema, after: TableSchema) -> None:
    """Warns of columns that hold nanoseconds from now on. Arrow's nanoseconds reach only from 1677
    to 2262.
    """
    coarse = {
        field.id for field in before.fields if field.type.is_timestamp and field.type.precision <= 6
    }
    finer = [field for field in after.fields if field.id in coarse and field.type.precision > 6]
    for field in finer:
        warnings.warn(
            f"Column {field.name!r} is {field.type} now. If older rows hold moments before 1677-09-21 or after 2262-04-11, "
            "such as 9999-12-31 for no end, this package can no longer read the column, because Arrow cannot hold them "
            "in nanoseconds. Java Paimon reads them, and can change the type back to TIMESTAMP(6).",
            stacklevel=3,
        )


def check_grown(table: Table, merged: TableSchema) -> None:
    """Raises `UnsupportedFeature`, `InvalidOption` or `IncompatibleSchema` if a table with the
    merged schema could not be written as its definition requires. The check uses this writer's
    options. If other writers can write the table as it is, it is checked without these options,
    too.
    """
    check_table_kind(replace(table, schema=merged))
    stored = table_of(table.storage, table.schema)
    try:
        check_table_kind(stored)
    except errors.ConfigError:
        return
    check_table_kind(replace(stored, schema=merged))
