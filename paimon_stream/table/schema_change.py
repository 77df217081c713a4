"""Changes of a table's schema that a user asks for, and the columns of rows to be written merged
into the table's (docs/schema-changes.md). Touches no storage.

The result of a merge, including the ids, is what Java's `SchemaMergingUtils` makes of the same
columns. Columns and members of ROWs are matched by name. Columns that the table lacks are appended,
nullable and with fresh ids. A type is widened if no value can change by it. Where Java would round,
cut or move values (BIGINT to FLOAT, INT to DECIMAL(5, 0), TIMESTAMP to DATE, …), or could not read
its own result (TIME, keys of a MAP, MULTISET), the merge is refused.

Invariant: a merge drops nothing, narrows nothing and makes nothing NOT NULL.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Literal

from paimon_stream import options as opt
from paimon_stream.errors import CorruptMetadata, IncompatibleSchema
from paimon_stream.format.names import shown_name
from paimon_stream.format.schema_json import TableSchema, reassign_ids
from paimon_stream.format.types import DataField, DataType, TypeRoot, parse_type
from paimon_stream.table.creation import stored_options, why_no_name
from paimon_stream.table.option_rules import check_alteration, with_renamed

Mode = Literal["add", "widen"]

_SEQUENCE_FIELD: Final = "a sequence field"

_INTEGERS: Final = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT)
_DIGITS: Final = dict(zip(_INTEGERS, (3, 5, 10, 19), strict=True))
_SMALL: Final = {TypeRoot.TINYINT, TypeRoot.SMALLINT}
_EXACT_IN: Final = {
    TypeRoot.FLOAT: _SMALL,
    TypeRoot.DOUBLE: {*_SMALL, TypeRoot.INT, TypeRoot.FLOAT},
}
# The kinds whose values do not change in a longer or finer type, by the kind of that type.
_GROWING: Final = {
    TypeRoot.VARCHAR: {TypeRoot.CHAR, TypeRoot.VARCHAR},
    TypeRoot.VARBINARY: {TypeRoot.BINARY, TypeRoot.VARBINARY},
    TypeRoot.TIMESTAMP: {TypeRoot.TIMESTAMP},
    TypeRoot.TIMESTAMP_LTZ: {TypeRoot.TIMESTAMP_LTZ},
}


def wider(
    old: DataType,
    new: DataType,
) -> DataType | None:
    """The atomic type that holds the values of both, as nullable as `old`; None if `new` is the
    same or not wider.
    """
    made = new.with_nullable(old.nullable)
    return made if made != old and _is_wider(old, new) else None


def _is_wider(old: DataType, new: DataType) -> bool:
    if old.root in _INTEGERS and new.root in _INTEGERS:
        return _INTEGERS.index(old.root) < _INTEGERS.index(new.root)
    if new.root in _EXACT_IN:
        return old.root in _EXACT_IN[new.root]
    if new.root is TypeRoot.DECIMAL:
        if old.root is TypeRoot.DECIMAL:
            return old.scale == new.scale and old.precision < new.precision
        return old.root in _DIGITS and new.precision - new.scale >= _DIGITS[old.root]
    return old.root in _GROWING.get(new.root, ()) and old.precision <= new.precision


def fixed_columns(schema: TableSchema) -> dict[str, str]:
    """The columns whose type cannot change, and their use: rows are found or ordered by them."""
    kinds = (
        (schema.options.get(opt.ROWKIND_FIELD.key, ""), "the row kind"),
        (schema.options.get(opt.SEQUENCE_FIELD.key, ""), _SEQUENCE_FIELD),
        (",".join(schema.bucket_keys), "a bucket key"),
        (",".join(schema.partition_keys), "a partition key"),
        (",".join(schema.primary_keys), "a primary key"),
    )
    return {
        name.strip(): what for names, what in kinds for name in names.split(",") if name.strip()
    }


def merge_columns(
    schema: TableSchema,
    columns: Sequence[DataField],
    mode: Mode,
    *,
    location: str,
    time_millis: int = 0,
) -> TableSchema:
    """The schema with the next id that also has these columns; `schema` itself if nothing is new.
    `add` adds columns and members; `widen` also widens types. `time_millis` is the time of the new
    schema in epoch milliseconds. Ids of `columns` do not matter. Raises `IncompatibleSchema`, with
    all reasons in one message: a type that is not wider, a key of another type, a name that no
    column may have.
    """
    merger = _Merger(mode=mode, highest=schema.highest_field_id, fixed=fixed_columns(schema))
    fields = merger.merged(schema.fields, columns, "")
    if merger.problems:
        raise IncompatibleSchema(
            f"the columns of the rows cannot be merged into the table's: {'; '.join(merger.problems.values())}. "
            "Nothing was written and the schema is unchanged. Cast, rename or drop these columns, or alter the table "
            "first.",
            column=next(iter(merger.problems)),
            columns=tuple(merger.problems),
        ).of_table(location)
    if fields == schema.fields:
        return schema
    return replace(
        schema,
        id=schema.id + 1,
        fields=fields,
        highest_field_id=merger.highest,
        time_millis=time_millis,
    )


@dataclass(slots=True, kw_only=True)
class _Merger:
    """One merge: the highest id given out so far, and the problems by path of column."""

    mode: Mode
    highest: int
    fixed: dict[str, str]
    problems: dict[str, str] = field(default_factory=dict)

    def merged(
        self, old: Sequence[DataField], new: Sequence[DataField], inside: str
    ) -> tuple[DataField, ...]:
        """The old columns, changed as the new ones require, then the new columns that do not exist
        yet.
        """
        asked: dict[str, DataField] = {}
        for one in new:
            if one.name in asked:
                self._refuse(inside + one.name, "appears more than once")
            asked.setdefault(one.name, one)
        kept = []
        for one in old:
            other = asked.pop(one.name, None)
            made = (
                one.type if other is None else self._type(one.type, other.type, inside + one.name)
            )
            kept.append(replace(one, type=made))
        return (*kept, *(self._added(one, inside) for one in asked.values()))

    def _added(self, one: DataField, inside: str) -> DataField:
        why = None if inside else why_no_name(one.name)
        if why is not None:
            self._refuse(inside + one.name, why)
        # Java numbers what is inside a new column before the column itself, as it does for members
        # of a ROW.
        wrapped = DataField(id=0, name="", type=DataType(root=TypeRoot.ROW, fields=(one,)))
        (made,), self.highest = reassign_ids((wrapped,), self.highest)
        (added,) = made.type.fields
        return replace(added, type=added.type.with_nullable(True))

    def _type(self, old: DataType, new: DataType, path: str) -> DataType:
        if old.root is not new.root or not old.is_nested:
            return self._leaf(old, new, path)
        key = element = None
        if old.key is not None and new.key is not None:
            key = self._unchanged(old.key, new.key, f"{path}.key")
        if old.element is not None and new.element is not None:
            inner = "value" if old.root is TypeRoot.MAP else "element"
            make = self._unchanged if old.root is TypeRoot.MULTISET else self._type
            element = make(old.element, new.element, f"{path}.{inner}")
        fields = self.merged(old.fields, new.fields, f"{path}.")
        return replace(old, key=key, element=element, fields=fields)

    def _unchanged(self, old: DataType, new: DataType, path: str) -> DataType:
        """Merges what no reader can convert: the key of a MAP, the element of a MULTISET."""
        if self._type(old, new, path) != old:
            why = (
                f"is {old} in the table and {new} in the rows; keys of maps never change their type"
            )
            self._refuse(path, why)
        return old

    def _leaf(self, old: DataType, new: DataType, path: str) -> DataType:
        decimals = old.root is new.root is TypeRoot.DECIMAL
        narrower = decimals and old.scale == new.scale and old.precision >= new.precision
        if narrower or old.with_nullable(True) == new.with_nullable(True):
            return old
        made = None if old.is_nested or new.is_nested else wider(old, new)
        differ = f"is {old} in the table and {new} in the rows"
        if made is None:
            self._refuse(path, f"{differ}, which is not a wider type")
        elif path in self.fixed:
            self._refuse(path, f"{differ}; it is {self.fixed[path]}, whose type never changes")
        elif self.mode != "widen":
            self._refuse(path, f"{differ}; {opt.MERGE_SCHEMA.key} = widen would widen it to {made}")
        return old if made is None else made

    def _refuse(self, path: str, why: str) -> None:
        self.problems.setdefault(path, f"column {path!r} {why}")


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One change of a table's schema, made by one of its methods, which are PyPaimon's. `action` is
    its name in Paimon's REST API, and `target` the column or the option.
    """

    action: str
    target: str = ""
    value: Any = None
    comment: str | None = None

    @staticmethod
    def set_option(
        key: str,
        value: str,
    ) -> "SchemaChange":
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
    def add_column(
        field_name: str,
        data_type: str,
        comment: str | None = None,
    ) -> "SchemaChange":
        """Adds a column at the end; `data_type` is a Paimon type such as `DECIMAL(10, 2)`. It may
        be NULL.
        """
        return SchemaChange("addColumn", field_name, data_type, comment)

    @staticmethod
    def rename_column(
        field_name: str,
        new_name: str,
    ) -> "SchemaChange":
        """Renames a column that is no key. Options that name it get the new name, as in Java."""
        return SchemaChange("renameColumn", field_name, new_name)

    @staticmethod
    def drop_column(field_name: str) -> "SchemaChange":
        """Drops a column that is no key."""
        return SchemaChange("dropColumn", field_name)

    @staticmethod
    def update_column_type(
        field_name: str,
        data_type: str,
    ) -> "SchemaChange":
        """Widens the type of a column that is no key, so that no value changes. It may be NULL as
        before.
        """
        return SchemaChange("updateColumnType", field_name, data_type)

    @staticmethod
    def update_column_nullability(
        field_name: str,
        nullable: bool,
    ) -> "SchemaChange":
        """Lets a column be NULL, or, with `alter-column-null-to-not-null.disabled` = `false`,
        forbids it.
        """
        return SchemaChange("updateColumnNullability", field_name, nullable)

    @staticmethod
    def update_column_comment(
        field_name: str,
        comment: str | None,
    ) -> "SchemaChange":
        """Sets the comment of a column, or removes it with None."""
        return SchemaChange("updateColumnComment", field_name, comment)


def altered(
    schema: TableSchema,
    changes: Sequence[SchemaChange],
    *,
    used: bool,
    time_millis: int,
) -> TableSchema:
    """The schema with the next id after these changes, in their order; `schema` itself if nothing
    is new. `used` says whether the table has snapshots, to which some options must fit. Raises
    `IncompatibleSchema`, `InvalidOption`.
    """
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
    options = {
        name: one for name, one in schema.options.items() if opt.folded(name) != opt.folded(key)
    }
    if not removed:
        opt.check_table_options({key: value})
        options[key] = value
    return replace(schema, options=MappingProxyType(options))


def _with_column(schema: TableSchema, change: SchemaChange) -> TableSchema:
    field = DataField(
        id=0, name=str(change.target), type=type_of(change), description=change.comment
    )
    why = (
        "exists already" if change.target in schema.field_names else why_no_name(str(change.target))
    )
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
        if use == _SEQUENCE_FIELD:
            use = None  # the option gets the new name
        why = use or _why_not_renamed(schema, new)
        changed = replace(old, name=str(new))
    elif change.action == "updateColumnType":
        wanted = type_of(change)
        made = (
            old.type
            if old.type == wanted.with_nullable(old.type.nullable)
            else wider(old.type, wanted)
        )
        why = (
            f"{old.type} is not narrower than {wanted}"
            if made is None
            else use
            if made != old.type
            else None
        )
        changed = replace(old, type=made or old.type)
    elif change.action == "updateColumnNullability":
        may = (
            schema.options.get("alter-column-null-to-not-null.disabled", "true").strip().lower()
            == "false"
        )
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
    after = replace(schema, fields=tuple(one for one in fields if one is not None))
    if change.action != "renameColumn":
        return after
    options = with_renamed(schema.options, name, str(new))
    return replace(after, options=MappingProxyType(options))


def _why_not_renamed(schema: TableSchema, new: Any) -> str | None:
    if new in schema.field_names:
        return f"{shown_name(str(new))} exists already"
    if not str(new).strip():
        return "the new name is blank"
    if why_no_name(str(new)) is not None:
        return f"the new name {shown_name(str(new))} is one of Paimon's own"
    return None


def type_of(change: SchemaChange) -> DataType:
    """The type of a column that is added or changed. Raises `IncompatibleSchema` for a text that is
    no type.
    """
    try:
        return parse_type(change.value)
    except (CorruptMetadata, TypeError, AttributeError):
        raise _wrong(
            change,
            f"has no type {shown_name(str(change.value))}. Types are as in SQL: DECIMAL(10, 2)",
        ) from None


def _wrong(change: SchemaChange, why: str) -> IncompatibleSchema:
    column = shown_name(str(change.target))
    text = (
        f"{change.action}: column {column} {why}. Nothing was changed. Give another name or type."
    )
    return IncompatibleSchema(text, column=change.target)
