"""A table as the Hive Metastore keeps it: the fields that Java Paimon's HiveCatalog writes
(docs/spec/catalogs.md §6).
"""

from collections.abc import Iterable
from typing import Final

from paimon_stream import options as opt
from paimon_stream.catalogs.hive_client import I32, LIST, STRING, Struct, struct_of
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, DataType, TypeRoot

NAME: Final = 1
DATABASE: Final = 2
_OWNER: Final = 3
_CREATED: Final = 4
_ACCESSED: Final = 5
_RETENTION: Final = 6
STORAGE: Final = 7
PARTITION_KEYS: Final = 8
PARAMETERS: Final = 9
_KIND: Final = 12
"""The fields of a table."""

_COLUMNS: Final = 1
LOCATION: Final = 2
_INPUT: Final = 3
_OUTPUT: Final = 4
_BUCKETS: Final = 6
_SERDE: Final = 7
_BUCKET_COLUMNS: Final = 8
_SORT_COLUMNS: Final = 9
_OF_STORAGE: Final = 10
"""The fields of the descriptor of a table's storage."""

INPUT_FORMAT: Final = "org.apache.paimon.hive.mapred.PaimonInputFormat"
OUTPUT_FORMAT: Final = "org.apache.paimon.hive.mapred.PaimonOutputFormat"
_SERDE_CLASS: Final = "org.apache.paimon.hive.PaimonSerDe"
_HANDLER: Final = "org.apache.paimon.hive.PaimonStorageHandler"
_EXTERNAL: Final = "EXTERNAL_TABLE"
CHANGED_AT: Final = "transient_lastDdlTime"
"""The parameter in which the metastore keeps the time of the last change, in seconds."""

_WITH_ZONE: Final = "timestamp with local time zone"
_LONGEST_CHAR: Final = 255
_LONGEST_VARCHAR: Final = 65535
"""The longest types of Hive."""
_NAMES: Final = {
    TypeRoot.BOOLEAN: "boolean",
    TypeRoot.TINYINT: "tinyint",
    TypeRoot.SMALLINT: "smallint",
    TypeRoot.INT: "int",
    TypeRoot.BIGINT: "bigint",
    TypeRoot.FLOAT: "float",
    TypeRoot.DOUBLE: "double",
    TypeRoot.BINARY: "binary",
    TypeRoot.VARBINARY: "binary",
    TypeRoot.DATE: "date",
    TypeRoot.TIME: "string",
    TypeRoot.TIMESTAMP: "timestamp",
    TypeRoot.TIMESTAMP_LTZ: "timestamp",
}
"""Hive's names of the types that need no more than a name."""


def is_paimon(table: Struct) -> bool:
    """Whether an object of the metastore is a table of Paimon. Java looks at the same two fields."""
    storage = table.struct(STORAGE)
    return storage.text(_INPUT) == INPUT_FORMAT and storage.text(_OUTPUT) == OUTPUT_FORMAT


def is_external(table: Struct) -> bool:
    """Whether the files stay when the table is dropped."""
    return table.text(_KIND) == _EXTERNAL


def new_table(
    database: str,
    name: str,
    schema: TableSchema,
    *,
    location: str,
    owner: str,
    seconds: int,
    external: bool,
    all_options: bool,
) -> Struct:
    """A table that the metastore does not have yet.

    Args:
        database: the name of the database.
        name: the name of the table.
        schema: the schema of the table.
        location: the folder of the table.
        owner: the user who creates the table.
        seconds: the time, in seconds since 1970.
        external: whether the files stay when the table is dropped.
        all_options: whether the parameters hold the options of the table.
    """
    table = struct_of({NAME: name, DATABASE: database, _OWNER: owner})
    table.fields[_CREATED] = table.fields[_ACCESSED] = I32, seconds
    table.fields[_RETENTION] = I32, 2**31 - 1
    set_up(table, location)
    table.set_structs(
        PARTITION_KEYS,
        [_column(*column) for column in partition_columns(schema)],
    )
    parameters = {"table_type": "PAIMON", "storage_handler": _HANDLER}
    if external:
        parameters["EXTERNAL"] = "TRUE"
    table.set_texts(PARAMETERS, parameters)
    table.set_text(_KIND, _EXTERNAL if external else "MANAGED_TABLE")
    follow_schema(table, schema, removed=(), all_options=all_options)
    return table


def partition_columns(schema: TableSchema) -> tuple[tuple[str, str, str], ...]:
    """The name, Hive's type and the comment of each column that the metastore keeps as a partition
    column. It keeps none of a table of whose partitions or tags it is not told.
    """
    options = opt.Options(schema.options)
    if schema.partition_keys:
        fields = [schema.by_name[name] for name in schema.partition_keys]
        is_told = options.value(opt.PARTITIONED_IN_METASTORE)
        return tuple(map(_of_field, fields)) if is_told else ()
    if options.is_set(opt.TAG_TO_PARTITION):
        return ((options.value(opt.TAG_TO_PARTITION), "string", ""),)
    return ()


def _of_field(field: DataField) -> tuple[str, str, str]:
    return field.name, hive_type(field.type), field.description or ""


def set_up(table: Struct, location: str) -> None:
    """Gives a new table the storage of a table of Paimon in this folder, without columns."""
    storage = table.struct(STORAGE)
    storage.set_text(LOCATION, location)
    storage.set_text(_INPUT, INPUT_FORMAT)
    storage.set_text(_OUTPUT, OUTPUT_FORMAT)
    storage.fields[_BUCKETS] = I32, 0
    storage.fields[_BUCKET_COLUMNS] = LIST, (STRING, [])
    storage.set_structs(_SORT_COLUMNS, [])
    storage.set_texts(_OF_STORAGE, {})
    serde = storage.struct(_SERDE)
    serde.set_text(2, _SERDE_CLASS)
    serde.set_texts(3, {})


def follow_schema(
    table: Struct,
    schema: TableSchema,
    *,
    removed: Iterable[str],
    all_options: bool,
) -> bool:
    """Gives a table of the metastore the columns and options of a schema. Parameters that are no
    options of the schema stay.

    Args:
        table: the table, which is changed.
        schema: the schema.
        removed: the keys of options that an earlier schema had.
        all_options: whether the parameters hold the options of the table.

    Returns:
        Whether anything has changed.
    """
    storage = table.struct(STORAGE)
    # Hive keeps the names in lower case, and partition columns of its own apart.
    partition_keys = {column.text(1).lower() for column in table.items(PARTITION_KEYS)}
    present = [_described(column) for column in storage.items(_COLUMNS)]
    wanted = [
        _of_field(field) for field in schema.fields if field.name.lower() not in partition_keys
    ]
    has_other_columns = len(present) != len(wanted) or not all(map(_is_same, present, wanted))
    if has_other_columns:
        storage.set_structs(_COLUMNS, [_column(*column) for column in wanted])
    parameters = table.texts(PARAMETERS)
    wanted_parameters = {key: value for key, value in parameters.items() if key not in removed}
    wanted_parameters |= _parameters(schema, all_options=all_options)
    if wanted_parameters != parameters:
        table.set_texts(PARAMETERS, wanted_parameters)
    return has_other_columns or wanted_parameters != parameters


def _described(column: Struct) -> tuple[str, str, str]:
    return column.text(1), column.text(2), column.text(3)


def _is_same(present: tuple[str, str, str], wanted: tuple[str, str, str]) -> bool:
    """Whether the metastore's column is the wanted one. A timestamp with a time zone has a type of
    its own in Java's catalog for Hive 3 and later only.
    """
    name, type_, comment = present
    wanted_name, wanted_type, wanted_comment = wanted
    return (
        name.lower() == wanted_name.lower()
        and type_.lower().replace(_WITH_ZONE, "timestamp") == wanted_type.lower()
        and comment == wanted_comment
    )


def _column(name: str, type_: str, comment: str) -> Struct:
    column = struct_of({1: name, 2: type_})
    column.set_text(3, comment or None)
    return column


def _parameters(schema: TableSchema, *, all_options: bool) -> dict[str, str]:
    """The parameters that a table with this schema has."""
    parameters = {} if schema.comment is None else {"comment": schema.comment}
    if not all_options:
        return parameters | {k: v for k, v in schema.options.items() if k.startswith("hive.")}
    keys = {
        "primary-key": schema.primary_keys,
        "partition": schema.partition_keys,
        "bucket-key": schema.bucket_keys,
    }
    return {
        **parameters,
        **schema.options,
        **{key: ",".join(columns) for key, columns in keys.items() if columns},
    }


def hive_type(type_: DataType) -> str:
    """Hive's name of the type."""
    root = type_.root
    if root in _NAMES:
        return _NAMES[root]
    if root is TypeRoot.DECIMAL:
        return f"decimal({type_.precision},{type_.scale})"
    if root is TypeRoot.CHAR:
        return f"char({type_.precision})" if type_.precision <= _LONGEST_CHAR else "string"
    if root is TypeRoot.VARCHAR:
        return f"varchar({type_.precision})" if type_.precision <= _LONGEST_VARCHAR else "string"
    if root is TypeRoot.ARRAY:
        return f"array<{hive_type(type_.items)}>"
    if root is TypeRoot.ROW:
        return f"struct<{','.join(map(_member, type_.fields))}>"
    key, value = type_.entry
    return f"map<{hive_type(key)},{hive_type(value)}>"


def _member(field: DataField) -> str:
    return f"{field.name}:{hive_type(field.type)}"
