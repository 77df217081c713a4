"""Changes of a table's schema that a user asks for, by Java's rules (docs/schema-changes.md). Touches no storage."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from paimon_stream import options as opt
from paimon_stream.errors import CorruptMetadata, IncompatibleSchema
from paimon_stream.format.schema_json import TableSchema, reassign_ids
from paimon_stream.format.types import DataField, DataType, parse_type
from paimon_stream.table.creation import stored_options, why_no_name
from paimon_stream.table.option_rules import check_alteration
from paimon_stream.table.schema_merge import fixed_columns, wider


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One change of a table's schema, made by one of its methods, which are PyPaimon's. `action` is its name in
    Paimon's REST API, and `target` the column or the option."""

    action: str
    target: str = ""
    value: Any = None
    comment: str | None = None

    @staticmethod
    def set_option(key: str, value: str) -> "SchemaChange":
        """Sets an option of the table."""
        return SchemaChange("setOption", key, value)

    @staticmethod
    def remove_option(key: str) -> "SchemaChange":
        """Removes an option, which then has its default."""
        return SchemaChange("removeOption", key)

    @staticmethod
    def update_comment(comment: str | None) -> "SchemaChange":
        """Sets the comment of the table, or removes it with None."""
        return SchemaChange("updateComment", "comment", comment)

    @staticmethod
    def add_column(field_name: str, data_type: str, comment: str | None = None) -> "SchemaChange":
        """Adds a column at the end; `data_type` is a Paimon type such as `DECIMAL(10, 2)`. It may be NULL."""
        return SchemaChange("addColumn", field_name, data_type, comment)

    @staticmethod
    def rename_column(field_name: str, new_name: str) -> "SchemaChange":
        """Renames a column that is no key and that no option names."""
        return SchemaChange("renameColumn", field_name, new_name)

    @staticmethod
    def drop_column(field_name: str) -> "SchemaChange":
        """Drops a column that is no key."""
        return SchemaChange("dropColumn", field_name)

    @staticmethod
    def update_column_type(field_name: str, data_type: str) -> "SchemaChange":
        """Widens the type of a column that is no key, so that no value changes. It may be NULL as before."""
        return SchemaChange("updateColumnType", field_name, data_type)

    @staticmethod
    def update_column_nullability(field_name: str, nullable: bool) -> "SchemaChange":
        """Lets a column be NULL, or, with `alter-column-null-to-not-null.disabled` = `false`, forbids it."""
        return SchemaChange("updateColumnNullability", field_name, nullable)

    @staticmethod
    def update_column_comment(field_name: str, comment: str | None) -> "SchemaChange":
        """Sets the comment of a column, or removes it with None."""
        return SchemaChange("updateColumnComment", field_name, comment)


def altered(schema: TableSchema, changes: Sequence[SchemaChange], *, used: bool, time_millis: int) -> TableSchema:
    """The schema with the next id after these changes, in their order; `schema` itself if nothing is new. `used` says
    whether the table has snapshots, to which some options must fit. Raises `IncompatibleSchema`, `InvalidOption`."""
    made = schema
    for change in changes:
        if change.action in ("setOption", "removeOption"):
            made = _with_option(made, change, used)
        elif change.action == "updateComment":
            made = replace(made, comment=change.value or None)
        elif change.action == "addColumn":
            made = _with_column(made, change)
        else:
            made = _with_changed_column(made, change)
    return schema if made == schema else replace(made, id=schema.id + 1, time_millis=time_millis)


def _with_option(schema: TableSchema, change: SchemaChange, used: bool) -> TableSchema:
    removed = change.action == "removeOption"
    ((key, value),) = stored_options({change.target: "" if removed else change.value}).items()
    check_alteration(schema.options, key, None if removed else value, used=used)
    options = {name: one for name, one in schema.options.items() if opt.folded(name) != opt.folded(key)}
    if not removed:
        opt.check_table_options({key: value})
        options[key] = value
    return replace(schema, options=MappingProxyType(options))


def _with_column(schema: TableSchema, change: SchemaChange) -> TableSchema:
    field = DataField(id=0, name=str(change.target), type=_type(change), description=change.comment)
    why = "exists already" if change.target in schema.field_names else why_no_name(str(change.target))
    if why is not None or not field.type.nullable:
        raise _wrong(change, why or "is NOT NULL, but older rows have no value for it")
    added, highest = reassign_ids((field,), schema.highest_field_id + 1)
    return replace(schema, fields=schema.fields + added, highest_field_id=highest)


def _with_changed_column(schema: TableSchema, change: SchemaChange) -> TableSchema:
    name, new, use = change.target, change.value, fixed_columns(schema).get(change.target)
    if name not in schema.field_names:
        raise _wrong(change, f"is not one of {', '.join(schema.field_names)}")
    old, why = schema.field(name), None
    changed: DataField | None = None
    if change.action == "dropColumn":
        why = use or ("the only column" if len(schema.fields) == 1 else None)
    elif change.action == "renameColumn":
        why = use or (f"{new!r} exists already" if new in schema.field_names else why_no_name(str(new)))
        changed = replace(old, name=str(new))
    elif change.action == "updateColumnType":
        wanted = _type(change)
        made = old.type if old.type == wanted.with_nullable(old.type.nullable) else wider(old.type, wanted)
        why = f"{old.type} is not narrower than {wanted}" if made is None else use if made != old.type else None
        changed = replace(old, type=made or old.type)
    elif change.action == "updateColumnNullability":
        may = schema.options.get("alter-column-null-to-not-null.disabled", "true").strip().lower() == "false"
        why = None if new or may or not old.type.nullable else "it may hold NULL"
        why = use if new and name in schema.primary_keys else why
        changed = replace(old, type=old.type.with_nullable(new))
    elif change.action == "updateColumnComment":
        changed = replace(old, description=new or None)
    else:
        why = "there is no such change"
    if why is not None:
        raise _wrong(change, f"stays as it is: {why}")
    fields = (changed if one is old else one for one in schema.fields)
    return replace(schema, fields=tuple(one for one in fields if one is not None))


def _type(change: SchemaChange) -> DataType:
    try:
        return parse_type(change.value)
    except (CorruptMetadata, TypeError, AttributeError):
        raise _wrong(change, f"has no type {change.value!r}. Types are as in SQL: DECIMAL(10, 2)") from None


def _wrong(change: SchemaChange, why: str) -> IncompatibleSchema:
    text = f"{change.action}: column {change.target!r} {why}. Nothing was changed. Give another name or type."
    return IncompatibleSchema(text, column=change.target)
