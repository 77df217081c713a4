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
    options `primary-key` and `partition` become the keys of the schema. Raises `IncompatibleSchema`
    for columns and keys that Paimon would refuse, `InvalidOption` for options.
    """
    stored = stored_options(options or {})
    primary = _keys(primary_keys, stored, "primary-key", "primary_keys")
    partition = _keys(partition_keys, stored, "partition", "partition_keys")
    _check_columns(fields)
    check_types(fields)
    types = {one.name: one.type for one in fields}
    _check_keys(partition, types, "partition key")
    _check_keys(primary, types, "primary key")
    if primary and not set(primary) - set(partition):
        why = "has only partition keys, so each partition could have one row only. Add a column to the primary key."
        raise IncompatibleSchema(
            f"The primary key ({', '.join(primary)}) {why}", columns=tuple(primary)
        )
    not_null = (
        replace(one, type=one.type.with_nullable(False)) if one.name in primary else one
        for one in fields
    )
    numbered, highest = reassign_ids(tuple(not_null))
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


def check_buckets(schema: TableSchema, options: opt.Options) -> None:
    """Raises `InvalidOption` if the options of buckets do not fit the columns or each other
    (format.md §6.2, §6.3).
    """
    bucket, primary, is_set = (
        options.value(opt.BUCKET),
        schema.primary_keys,
        options.is_set(opt.BUCKET_KEY),
    )
    keys = schema.bucket_keys if is_set else schema.trimmed_primary_keys
    outside = next((key for key in schema.partition_keys if key not in primary), None)
    risk = "so a key could have a row in each partition. Add it to the primary key, or do not partition by it"
    lacks = f"the primary key ({', '.join(primary)}) lacks the partition key {outside!r}, {risk}"
    wanted = "to the number of buckets wanted"
    without = "a table without primary key then needs 'bucket-key'. Set it, or bucket to -1"
    for wrong, why in (
        (bucket > _MOST_BUCKETS, f"that is more than {_MOST_BUCKETS:,}. Set it {wanted}"),
        (bucket < POSTPONE_BUCKET or bucket == 0, f"it must be -1, or at least 1. Set it {wanted}"),
        (
            bucket == POSTPONE_BUCKET and not primary,
            "that needs a primary key. Set it to -1, or to 1 or more",
        ),
        (bucket >= 1 and not keys, without),
        (bucket >= 1 and primary and outside is not None, lacks),
    ):
        if wrong:
            raise InvalidOption(
                f"Option 'bucket' is {bucket}: {why}.", option="bucket", value=bucket
            )
    if bucket == -1 and is_set:
        text = f"Option 'bucket-key' is set, but 'bucket' is -1. Set 'bucket' {wanted}, or leave 'bucket-key' out."
        raise InvalidOption(text, option="bucket-key")
    for key in keys if is_set else ():
        _check_bucket_key(key, schema)
    _check_function(schema, options, keys, bucket)


def _check_bucket_key(key: str, schema: TableSchema) -> None:
    problem = None
    if key not in schema.field_names:
        hint = (
            ". Names in it are separated by a comma alone, without blanks"
            if key != key.strip()
            else ""
        )
        problem = f"which is not a column. Columns are {', '.join(schema.field_names)}{hint}"
    elif key in schema.partition_keys:
        problem = "which is a partition key, and a partition has only one value of it. Leave it out"
    elif schema.primary_keys and key not in schema.primary_keys:
        problem = "which is not part of the primary key. Name columns of the primary key only"
    elif schema.field(key).type.is_nested:
        problem = (
            f"which is {schema.field(key).type}; rows cannot be bucketed by it. Name another column"
        )
    if problem:
        raise InvalidOption(
            f"Option 'bucket-key' names {key!r}, {problem}.", option="bucket-key", column=key
        )


def _check_function(
    schema: TableSchema, options: opt.Options, keys: Sequence[str], bucket: int
) -> None:
    function = options.value(opt.BUCKET_FUNCTION)
    if bucket < 1 or function == "default":
        return
    types = [schema.field(key).type for key in keys]
    if function == "mod":
        fits = len(types) == 1 and types[0].root in (TypeRoot.INT, TypeRoot.BIGINT)
        needs = "one bucket key of type INT or BIGINT"
    else:
        fits = not any(one.is_timestamp for one in types)
        needs = "bucket keys that are not timestamps"
    if not fits:
        given = ", ".join(f"{key} {one}" for key, one in zip(keys, types, strict=True))
        cure = "Set it to 'default', or choose another bucket key."
        text = f"Option 'bucket-function.type' is {function!r}, which needs {needs}, not ({given}). {cure}"
        raise InvalidOption(text, option="bucket-function.type")


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
    Blanks around values go, unless they may be meant, because Java cannot open a table with
    `bucket` = ` 4`.
    """
    declared = {option.key for option in opt.table_options()}
    stored = {}
    for key, value in options.items():
        name = str(key).strip()
        low = name.lower()
        name = opt.folded(name) if low in declared or low.startswith("fields.") else name
        text = str(value).lower() if isinstance(value, bool) else str(value)
        plain = (name in declared and name not in _WITH_BLANKS) or name.endswith(".stats-mode")
        stored[name] = text.strip() if plain else text
    if opt.EXTERNAL_PATHS.key in stored:  # Java's orphan cleaning takes no blanks between them
        stored[opt.EXTERNAL_PATHS.key] = re.sub(
            r"\s*,\s*", ",", stored[opt.EXTERNAL_PATHS.key].strip()
        )
    return stored


def _keys(
    given: Sequence[str], options: dict[str, str], option: str, argument: str
) -> tuple[str, ...]:
    """The keys given as an argument or as the option. The option is removed from `options`."""
    if isinstance(given, str):
        raise IncompatibleSchema(
            f"{argument} is the text {given!r}. Give a list of names: [{given!r}]."
        )
    if not isinstance(given, Sequence):
        raise IncompatibleSchema(f"{argument} is {given!r}. Give a list of names, or leave it out.")
    text = options.pop(option, None)
    named = tuple(name.strip() for name in text.split(",")) if text else ()
    if named and given and named != tuple(given):
        what = f"Option {option!r} says {text!r}, the argument {argument} says {', '.join(given)!r}. Give one of them."
        raise InvalidOption(what, option=option)
    return tuple(given) or named


def _check_columns(fields: Sequence[DataField]) -> None:
    if not fields:
        raise IncompatibleSchema("The schema has no columns. Give at least one.")
    twice = sorted(name for name, count in Counter(one.name for one in fields).items() if count > 1)
    if twice:
        text = f"Columns {', '.join(map(shown_name, twice))} appear more than once. Rename or drop the duplicates."
        raise IncompatibleSchema(text, columns=tuple(twice))
    for one in fields:
        if why := why_no_name(one.name):
            raise IncompatibleSchema(
                f"Column {shown_name(one.name)} {why}. Rename the column.", column=one.name
            )


def check_types(fields: Sequence[DataField]) -> None:
    """Raises `IncompatibleSchema` for columns under which no engine, Java included, could open the
    table.
    """
    for one in fields:
        if why := _why_no_type(one.type):
            raise IncompatibleSchema(
                f"Column {one.name!r} is {one.type}: {why}. Change the type.", column=one.name
            )


def _why_no_type(type_: DataType) -> str | None:
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
    inside = (type_.key, type_.element, *(member.type for member in type_.fields))
    return next((why for one in inside if one is not None and (why := _why_no_type(one))), None)


def why_no_name(name: str) -> str | None:
    """Why no column of a table may have that name, as the end of a sentence; None if it may."""
    if not name.strip():
        return "has no name"
    return (
        "has a name that is Paimon's own"
        if name in _RESERVED_NAMES or name.startswith("_KEY_")
        else None
    )


def _check_keys(keys: Sequence[str], types: Mapping[str, DataType], what: str) -> None:
    if len(set(keys)) < len(keys):
        text = f"The {what} ({', '.join(keys)}) names a column twice. Name each once."
        raise IncompatibleSchema(text, columns=tuple(keys))
    for key in keys:
        if key not in types:
            why = f"not a column. Columns are {', '.join(types)}."
        elif types[key].is_nested:
            why = f"{types[key]}; a key column cannot be nested. Choose another column."
        else:
            continue
        raise IncompatibleSchema(f"The {what} names {key!r}, which is {why}", column=key)
