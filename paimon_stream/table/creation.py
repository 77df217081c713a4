"""The rules for a new table, and its first schema (format.md §2.2). This module touches no
storage.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from paimon_stream import options as opt
from paimon_stream.errors import IncompatibleSchema, InvalidOption
from paimon_stream.format.names import POSTPONE_BUCKET, shown_name
from paimon_stream.format.schema_json import TableSchema, reassign_ids
from paimon_stream.format.types import DataField, DataType, TypeRoot
from paimon_stream.table.option_rules import check_possible

_RESERVED_NAMES: Final = {"_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "rowkind", "_ROW_ID"}
_MOST_BUCKETS: Final = 2**31 - 1


def first_schema(
    fields: Sequence[DataField],
    *,
    partition_keys: Sequence[str] = (),
    primary_keys: Sequence[str] = (),
    options: Mapping[str, object] | None = None,
    comment: str = "",
    time_millis: int = 0,
) -> TableSchema:
    """Schema 0 of a new table. Field ids are assigned, primary key columns become NOT NULL, and the
    options `primary-key` and `partition` become the keys of the schema.

    Args:
        fields: the columns. Their ids do not matter.
        partition_keys: names of columns.
        primary_keys: names of columns.
        options: the options of the table; values may be of other types than text.
        comment: the comment of the table.
        time_millis: the time of the schema, in epoch milliseconds.

    Raises:
        IncompatibleSchema: for columns and keys that Paimon would refuse.
        InvalidOption: for options that Paimon would refuse.
    """
    stored = stored_options(options or {})
    primary = _keys(primary_keys, stored, "primary-key", "primary_keys")
    partition = _keys(partition_keys, stored, "partition", "partition_keys")
    _check_columns(fields)
    check_types(fields)
    types = {field.name: field.type for field in fields}
    _check_keys(partition, types, "partition key")
    _check_keys(primary, types, "primary key")
    _check_primary_key(primary, partition)
    numbered, highest = reassign_ids(_with_not_null(fields, primary))
    schema = TableSchema(
        id=0,
        fields=numbered,
        highest_field_id=highest,
        partition_keys=partition,
        primary_keys=primary,
        options=MappingProxyType(stored),
        comment=comment or None,
        time_millis=time_millis,
    )
    opt.check_table_options(stored)
    check_buckets(schema, opt.Options(stored))
    check_possible(schema, opt.Options(stored))
    return schema


def _with_not_null(fields: Sequence[DataField], names: Sequence[str]) -> tuple[DataField, ...]:
    """The columns, with those of the names `names` made NOT NULL."""
    columns = list(fields)
    for place, field in enumerate(columns):
        if field.name in names:
            columns[place] = replace(field, type=field.type.with_nullable(False))
    return tuple(columns)


def _check_primary_key(primary: Sequence[str], partition: Sequence[str]) -> None:
    if primary and not set(primary) - set(partition):
        raise IncompatibleSchema(
            f"The primary key ({', '.join(primary)}) has only partition keys, so each partition could "
            "have one row only. Add a column to the primary key.",
            columns=tuple(primary),
        )


def check_buckets(schema: TableSchema, options: opt.Options) -> None:
    """Raises `InvalidOption` if the options of buckets do not fit the columns or each other
    (format.md §6.2, §6.3).
    """
    bucket = options.value(opt.BUCKET)
    has_bucket_key = options.is_set(opt.BUCKET_KEY)
    keys = schema.bucket_keys if has_bucket_key else schema.trimmed_primary_keys
    _check_bucket_count(bucket, keys, schema)
    if has_bucket_key:
        if bucket == -1:
            raise InvalidOption(
                "Option 'bucket-key' is set, but 'bucket' is -1. Set 'bucket' to the number of buckets "
                "wanted, or leave 'bucket-key' out.",
                option="bucket-key",
            )
        for key in keys:
            _check_bucket_key(key, schema)
    _check_function(schema, options, keys, bucket)


def _check_bucket_count(bucket: int, keys: Sequence[str], schema: TableSchema) -> None:
    """Raises `InvalidOption` if the table cannot have this number of buckets. `keys` are the
    columns that choose the bucket of a row.
    """
    primary = schema.primary_keys
    if bucket > _MOST_BUCKETS:
        raise _wrong_bucket(
            bucket,
            f"that is more than {_MOST_BUCKETS:,}. Set it to the number of buckets wanted",
        )
    if bucket < POSTPONE_BUCKET or bucket == 0:
        raise _wrong_bucket(
            bucket, "it must be -1, or at least 1. Set it to the number of buckets wanted"
        )
    if bucket == POSTPONE_BUCKET and not primary:
        raise _wrong_bucket(bucket, "that needs a primary key. Set it to -1, or to 1 or more")
    if bucket >= 1 and not keys:
        raise _wrong_bucket(
            bucket,
            "a table without primary key then needs 'bucket-key'. Set it, or bucket to -1",
        )
    outside = next((key for key in schema.partition_keys if key not in primary), None)
    if bucket >= 1 and primary and outside is not None:
        raise _wrong_bucket(
            bucket,
            f"the primary key ({', '.join(primary)}) lacks the partition key {outside!r}, so a key "
            "could have a row in each partition. Add it to the primary key, or do not partition by it",
        )


def _wrong_bucket(bucket: int, problem: str) -> InvalidOption:
    return InvalidOption(f"Option 'bucket' is {bucket}: {problem}.", option="bucket", value=bucket)


def _check_bucket_key(key: str, schema: TableSchema) -> None:
    """Raises `InvalidOption` if rows cannot be bucketed by the column with this name."""
    if key not in schema.by_name:
        columns = ", ".join(schema.field_names)
        if key == key.strip():
            raise _wrong_bucket_key(key, f"which is not a column. Columns are {columns}")
        raise _wrong_bucket_key(
            key,
            f"which is not a column. Columns are {columns}. "
            "Names in it are separated by a comma alone, without blanks",
        )
    if key in schema.partition_keys:
        raise _wrong_bucket_key(
            key,
            "which is a partition key, and a partition has only one value of it. Leave it out",
        )
    if schema.primary_keys and key not in schema.primary_keys:
        raise _wrong_bucket_key(
            key, "which is not part of the primary key. Name columns of the primary key only"
        )
    type_ = schema.field(key).type
    if type_.is_nested:
        raise _wrong_bucket_key(
            key, f"which is {type_}; rows cannot be bucketed by it. Name another column"
        )


def _wrong_bucket_key(key: str, problem: str) -> InvalidOption:
    return InvalidOption(
        f"Option 'bucket-key' names {shown_name(key)}, {problem}.", option="bucket-key", column=key
    )


def _check_function(
    schema: TableSchema, options: opt.Options, keys: Sequence[str], bucket: int
) -> None:
    """Raises `InvalidOption` if the bucket function does not take these bucket keys."""
    function = options.value(opt.BUCKET_FUNCTION)
    if bucket < 1 or function == "default":
        return
    types = [schema.field(key).type for key in keys]
    if function == "mod":
        fits = len(types) == 1 and types[0].root in (TypeRoot.INT, TypeRoot.BIGINT)
        needs = "one bucket key of type INT or BIGINT"
    else:
        fits = not any(type_.is_timestamp for type_ in types)
        needs = "bucket keys that are not timestamps"
    if not fits:
        columns = ", ".join(f"{key} {type_}" for key, type_ in zip(keys, types, strict=True))
        raise InvalidOption(
            f"Option 'bucket-function.type' is {function!r}, which needs {needs}, not ({columns}). "
            "Set it to 'default', or choose another bucket key.",
            option="bucket-function.type",
        )


_WITH_BLANKS: Final = {
    "partition.default-name",
    "partition.timestamp-pattern",
    "partition.timestamp-formatter",
    "commit.user-prefix",
    "data-file.prefix",
    "changelog-file.prefix",
    "data-file.path-directory",
    "bucket-key",
    "sequence.field",
    "rowkind.field",
    "record-level.time-field",
}
"""Options whose values are names, or parts of names."""


def stored_options(options: Mapping[str, object]) -> dict[str, str]:
    """The options as a schema holds them: values as text, and declared keys in Paimon's spelling.
    Blanks around values are removed, because Java cannot open a table with `bucket` = ` 4`. If
    blanks may be part of a value, they stay.
    """
    declared = {option.key for option in opt.table_options()}
    stored = {}
    for key, value in options.items():
        name = str(key).strip()
        lower_name = name.lower()
        if lower_name in declared or lower_name.startswith("fields."):
            name = opt.folded(name)
        text = str(value)
        if isinstance(value, bool):
            text = text.lower()
        is_declared = name in declared and name not in _WITH_BLANKS
        if is_declared or name.endswith(".stats-mode"):
            text = text.strip()
        stored[name] = text
    # Java's orphan cleaning accepts no blanks between external paths.
    if opt.EXTERNAL_PATHS.key in stored:
        stored[opt.EXTERNAL_PATHS.key] = re.sub(
            r"\s*,\s*", ",", stored[opt.EXTERNAL_PATHS.key].strip()
        )
    return stored


def _keys(
    keys: Sequence[str], options: dict[str, str], option: str, argument: str
) -> tuple[str, ...]:
    """The primary or partition keys of a new table, which the caller gives as an argument or as an
    option. The option is removed from `options`.

    Args:
        keys: the value of the argument.
        options: all options of the table.
        option: the key of the option.
        argument: the name of the argument, for messages.
    """
    if isinstance(keys, str):
        raise IncompatibleSchema(
            f"{argument} is the text {keys!r}. Give a list of names: [{keys!r}]."
        )
    if not isinstance(keys, Sequence):
        raise IncompatibleSchema(f"{argument} is {keys!r}. Give a list of names, or leave it out.")
    text = options.pop(option, None)
    option_keys: tuple[str, ...] = ()
    if text:
        option_keys = tuple(name.strip() for name in text.split(","))
    if option_keys and keys and option_keys != tuple(keys):
        raise InvalidOption(
            f"Option {option!r} says {text!r}, the argument {argument} says {', '.join(keys)!r}. "
            "Give one of them.",
            option=option,
        )
    return tuple(keys) or option_keys


def _check_columns(fields: Sequence[DataField]) -> None:
    """Raises `IncompatibleSchema` if there are no columns, or if a column cannot have its name."""
    if not fields:
        raise IncompatibleSchema("The schema has no columns. Give at least one.")
    counts = Counter(field.name for field in fields)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        raise IncompatibleSchema(
            f"Columns {', '.join(map(shown_name, twice))} appear more than once. "
            "Rename or drop the duplicates.",
            columns=tuple(twice),
        )
    for field in fields:
        problem = why_no_name(field.name)
        if problem:
            raise IncompatibleSchema(
                f"Column {shown_name(field.name)} {problem}. Rename the column.", column=field.name
            )


def check_types(fields: Sequence[DataField]) -> None:
    """Raises `IncompatibleSchema` for columns because of which no engine, Java included, could open
    the table.
    """
    for field in fields:
        problem = _why_no_type(field.type)
        if problem:
            raise IncompatibleSchema(
                f"Column {field.name!r} is {field.type}: {problem}. Change the type.",
                column=field.name,
            )


def _why_no_type(type_: DataType) -> str | None:
    """The reason why no column can have this type, as the end of a sentence; None if a column can
    have it.
    """
    if (type_.is_string or type_.is_binary) and type_.precision < 1:
        return "a length is at least 1"
    names = Counter(member.name for member in type_.fields)
    twice = next((name for name, count in names.items() if count > 1), None)
    if twice is not None:
        return f"its member {twice!r} appears more than once"
    if type_.root is TypeRoot.ROW and not all(name.strip() for name in names):
        return "one of its members has no name"
    if type_.root is TypeRoot.ROW and not names:
        return "a ROW has at least one member"
    for inner_type in (type_.key, type_.element, *(member.type for member in type_.fields)):
        if inner_type is None:
            continue
        problem = _why_no_type(inner_type)
        if problem:
            return problem
    return None


def why_no_name(name: str) -> str | None:
    """The reason why no column of a table may have this name, as the end of a sentence; None if a
    column may have it.
    """
    if not name.strip():
        return "has no name"
    if name in _RESERVED_NAMES or name.startswith("_KEY_"):
        return "has a name that is Paimon's own"
    return None


def _check_keys(keys: Sequence[str], types: Mapping[str, DataType], kind: str) -> None:
    """Checks that the keys name columns of allowed types. `kind` says which keys they are, for
    messages.
    """
    if len(set(keys)) < len(keys):
        raise IncompatibleSchema(
            f"The {kind} ({', '.join(keys)}) names a column twice. Name each once.",
            columns=tuple(keys),
        )
    for key in keys:
        if key not in types:
            raise IncompatibleSchema(
                f"The {kind} names {shown_name(key)}, which is not a column. Columns are "
                f"{', '.join(types)}.",
                column=key,
            )
        if types[key].is_nested:
            raise IncompatibleSchema(
                f"The {kind} names {key!r}, which is {types[key]}; a key column cannot be nested. "
                "Choose another column.",
                column=key,
            )
