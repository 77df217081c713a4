"""Changes the schema of a table: as a user asks, or by merging the columns of new rows into the
table's columns (docs/schema-changes.md). This module touches no storage.

The result of a merge, including the ids, is what Java's `SchemaMergingUtils` makes of the same
columns. Columns and members of ROWs are matched by name. Columns that the table lacks are appended,
nullable and with fresh ids. A type is widened if that cannot change any value. The merge is refused
if Java would round, cut or move values (BIGINT to FLOAT, INT to DECIMAL(5, 0), TIMESTAMP to DATE,
…). It is also refused if Java could not read its own result (TIME, keys of a MAP, MULTISET).

Invariant: a merge drops nothing, narrows nothing and makes nothing NOT NULL.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, Literal, NoReturn

from paimon_stream import options as opt
from paimon_stream.errors import CorruptMetadata, IncompatibleSchema
from paimon_stream.format.names import shown_name
from paimon_stream.format.schema_json import TableSchema, reassign_ids
from paimon_stream.format.types import DataField, DataType, TypeRoot, parse_type
from paimon_stream.table.creation import stored_options, why_no_name
from paimon_stream.table.option_rules import check_alteration, with_renamed

Mode = Literal["add", "widen"]

_SEQUENCE_FIELD: Final = "a sequence field"
_ACTION: Final = attrgetter("action")

_INTEGERS: Final = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT)
# The number of digits that each integer type needs in a DECIMAL.
_DIGITS: Final = dict(zip(_INTEGERS, (3, 5, 10, 19), strict=True))
_SMALL: Final = {TypeRoot.TINYINT, TypeRoot.SMALLINT}
_EXACT_IN: Final = {
    TypeRoot.FLOAT: _SMALL,
    TypeRoot.DOUBLE: {*_SMALL, TypeRoot.INT, TypeRoot.FLOAT},
}
# For each kind of a longer or finer type, the kinds whose values do not change when they are
# converted to it.
_GROWING: Final = {
    TypeRoot.VARCHAR: {TypeRoot.CHAR, TypeRoot.VARCHAR},
    TypeRoot.VARBINARY: {TypeRoot.BINARY, TypeRoot.VARBINARY},
    TypeRoot.TIMESTAMP: {TypeRoot.TIMESTAMP},
    TypeRoot.TIMESTAMP_LTZ: {TypeRoot.TIMESTAMP_LTZ},
}


def wider(old: DataType, new: DataType) -> DataType | None:
    """The type `new` if it is wider than `old`: it holds all values of `old`. The result is as
    nullable as `old`. None if `new` is not wider. Both types are atomic.
    """
    widened = new.with_nullable(old.nullable)
    if widened == old or not _is_wider(old, new):
        return None
    return widened


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
    """The columns whose type cannot change, because rows are found or ordered by them. Each has its
    use, for messages.
    """
    uses = (
        (schema.options.get(opt.ROWKIND_FIELD.key, ""), "the row kind"),
        (schema.options.get(opt.SEQUENCE_FIELD.key, ""), _SEQUENCE_FIELD),
        (",".join(schema.bucket_keys), "a bucket key"),
        (",".join(schema.partition_keys), "a partition key"),
        (",".join(schema.primary_keys), "a primary key"),
    )
    fixed = {}
    for names, use in uses:
        for name in names.split(","):
            if name.strip():
                fixed[name.strip()] = use
    return fixed


def merge_columns(
    schema: TableSchema,
    columns: Sequence[DataField],
    mode: Mode,
    *,
    location: str,
    time_millis: int = 0,
) -> TableSchema:
    """The next schema of the table, which also has these columns; `schema` itself if nothing is
    new.

    Args:
        schema: the newest schema of the table.
        columns: the columns of the rows. Their ids do not matter.
        mode: `add` adds columns and members; `widen` also widens types.
        location: the table, for the message of an error.
        time_millis: the time of the new schema, in epoch milliseconds.

    Raises:
        IncompatibleSchema: a type is not wider, a key has another type, or no column may have the
            name. One message has all reasons.
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
    """The merge of new columns into the columns of a table.

    Attributes:
        mode: whether types are widened, too.
        highest: the highest field id that is in use so far.
        fixed: the columns whose type cannot change, each with its use.
        problems: what cannot be merged, by the path of the column.
    """

    mode: Mode
    highest: int
    fixed: dict[str, str]
    problems: dict[str, str] = field(default_factory=dict)

    def merged(
        self, old: Sequence[DataField], new: Sequence[DataField], inside: str
    ) -> tuple[DataField, ...]:
        """The old columns, changed as the new ones require, followed by the new columns that are
        not among the old ones.
        """
        new_by_name: dict[str, DataField] = {}
        for column in new:
            if column.name in new_by_name:
                self._refuse(inside + column.name, "appears more than once")
            new_by_name.setdefault(column.name, column)
        kept = []
        for column in old:
            new_column = new_by_name.pop(column.name, None)
            if new_column is None:
                kept.append(column)
            else:
                merged_type = self._type(column.type, new_column.type, inside + column.name)
                kept.append(replace(column, type=merged_type))
        return (*kept, *(self._added(column, inside) for column in new_by_name.values()))

    def _added(self, column: DataField, inside: str) -> DataField:
        if not inside:
            problem = why_no_name(column.name)
            if problem is not None:
                self._refuse(column.name, problem)
        # Java gives ids to the fields inside a new column before the column itself, as for members
        # of a ROW.
        wrapped = DataField(id=0, name="", type=DataType(root=TypeRoot.ROW, fields=(column,)))
        (numbered,), self.highest = reassign_ids((wrapped,), self.highest)
        (added,) = numbered.type.fields
        return replace(added, type=added.type.with_nullable(True))

    def _type(self, old: DataType, new: DataType, path: str) -> DataType:
        if old.root is not new.root or not old.is_nested:
            return self._leaf(old, new, path)
        key = None
        if old.key is not None and new.key is not None:
            key = self._unchanged(old.key, new.key, f"{path}.key")
        element = None
        if old.element is not None and new.element is not None:
            inner = "value" if old.root is TypeRoot.MAP else "element"
            merge = self._unchanged if old.root is TypeRoot.MULTISET else self._type
            element = merge(old.element, new.element, f"{path}.{inner}")
        fields = self.merged(old.fields, new.fields, f"{path}.")
        return replace(old, key=key, element=element, fields=fields)

    def _unchanged(self, old: DataType, new: DataType, path: str) -> DataType:
        """Merges a type that no reader can convert: the key of a MAP, or the element of a
        MULTISET.
        """
        if self._type(old, new, path) != old:
            self._refuse(
                path,
                f"is {old} in the table and {new} in the rows; keys of maps never change their type",
            )
        return old

    def _leaf(self, old: DataType, new: DataType, path: str) -> DataType:
        are_decimals = old.root is new.root is TypeRoot.DECIMAL
        is_narrower = are_decimals and old.scale == new.scale and old.precision >= new.precision
        if is_narrower or old.with_nullable(True) == new.with_nullable(True):
            return old
        widened = None
        if not (old.is_nested or new.is_nested):
            widened = wider(old, new)
        if widened is None:
            self._refuse(
                path, f"is {old} in the table and {new} in the rows, which is not a wider type"
            )
        elif path in self.fixed:
            self._refuse(
                path,
                f"is {old} in the table and {new} in the rows; "
                f"it is {self.fixed[path]}, whose type never changes",
            )
        elif self.mode != "widen":
            self._refuse(
                path,
                f"is {old} in the table and {new} in the rows; "
                f"{opt.MERGE_SCHEMA.key} = widen would widen it to {widened}",
            )
        return old if widened is None else widened

    def _refuse(self, path: str, problem: str) -> None:
        self.problems.setdefault(path, f"column {path!r} {problem}")


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One change of a table's schema. Users make a change by one of the static methods, which
    PyPaimon has, too.

    Attributes:
        action: the name of the change in Paimon's REST API.
        target: the column or the option that is changed.
        value: the new value of an option, a comment, or a column's name, type or nullability.
        comment: the comment of a new column.
    """

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
        """Adds a column at the end; `data_type` is a Paimon type such as `DECIMAL(10, 2)`. The new
        column may be NULL.
        """
        return SchemaChange("addColumn", field_name, data_type, comment)

    @staticmethod
    def rename_column(field_name: str, new_name: str) -> "SchemaChange":
        """Renames a column that is no key. Options that name the column get the new name, as in
        Java.
        """
        return SchemaChange("renameColumn", field_name, new_name)

    @staticmethod
    def drop_column(field_name: str) -> "SchemaChange":
        """Drops a column that is no key."""
        return SchemaChange("dropColumn", field_name)

    @staticmethod
    def update_column_type(field_name: str, data_type: str) -> "SchemaChange":
        """Widens the type of a column that is no key, so that no value changes. Whether the column
        may be NULL does not change.
        """
        return SchemaChange("updateColumnType", field_name, data_type)

    @staticmethod
    def update_column_nullability(field_name: str, nullable: bool) -> "SchemaChange":
        """Lets a column be NULL, or forbids NULL. To forbid it,
        `alter-column-null-to-not-null.disabled` must be `false`.
        """
        return SchemaChange("updateColumnNullability", field_name, nullable)

    @staticmethod
    def update_column_comment(field_name: str, comment: str | None) -> "SchemaChange":
        """Sets the comment of a column, or removes it with None."""
        return SchemaChange("updateColumnComment", field_name, comment)


def altered(
    schema: TableSchema,
    changes: Sequence[SchemaChange],
    *,
    used: bool,
    time_millis: int,
) -> TableSchema:
    """The next schema of the table, after these changes in their order; `schema` itself if nothing
    is new.

    Args:
        schema: the newest schema of the table.
        changes: the changes.
        used: whether the table has snapshots. Some options can be changed only while the table has
            none.
        time_millis: the time of the new schema, in epoch milliseconds.

    Raises: IncompatibleSchema: if a column does not allow its change. InvalidOption: if an option
    cannot be set or removed.
    """
    changed = schema
    for action, alike in groupby(changes, _ACTION):
        if action == "renameColumn":
            changed = _with_renamed_columns(changed, list(alike))
        else:
            changed = reduce(partial(_after, used=used), alike, changed)
    if changed == schema:
        return schema
    return replace(changed, id=schema.id + 1, time_millis=time_millis)


def _after(schema: TableSchema, change: SchemaChange, *, used: bool) -> TableSchema:
    """The schema after a change that does not rename a column. `used` says whether the table has
    snapshots.
    """
    match change.action:
        case "setOption":
            return _with_option(schema, change, used=used)
        case "removeOption":
            return _without_option(schema, change, used=used)
        case "updateComment":
            return replace(schema, comment=change.value or None)
        case "addColumn":
            return _with_column(schema, change)
        case _:
            return _with_changed_column(schema, change)


def _with_option(schema: TableSchema, change: SchemaChange, *, used: bool) -> TableSchema:
    ((key, value),) = stored_options({change.target: change.value}).items()
    check_alteration(schema.options, key, value, used=used)
    options = _other_options(schema, key)
    opt.check_table_options({key: value})
    options[key] = value
    return replace(schema, options=MappingProxyType(options))


def _without_option(schema: TableSchema, change: SchemaChange, *, used: bool) -> TableSchema:
    (key,) = stored_options({change.target: ""})
    check_alteration(schema.options, key, None, used=used)
    return replace(schema, options=MappingProxyType(_other_options(schema, key)))


def _other_options(schema: TableSchema, key: str) -> dict[str, str]:
    """The options of the schema without the option `key`, in any spelling of that key."""
    return {
        name: value for name, value in schema.options.items() if opt.folded(name) != opt.folded(key)
    }


def _with_column(schema: TableSchema, change: SchemaChange) -> TableSchema:
    name = str(change.target)
    column = DataField(id=0, name=name, type=type_of(change), description=change.comment)
    problem = why_no_name(name)
    if change.target in schema.by_name:
        problem = "exists already"
    if problem is None and not column.type.nullable:
        problem = "is NOT NULL, but older rows have no value for it"
    if problem is not None:
        raise _refused(change, problem)
    added, highest = reassign_ids((column,), schema.highest_field_id + 1)
    return replace(schema, fields=schema.fields + added, highest_field_id=highest)


def _with_changed_column(schema: TableSchema, change: SchemaChange) -> TableSchema:
    name = change.target
    if name not in schema.by_name:
        raise _refused(change, f"is not one of {', '.join(schema.field_names)}")
    old = schema.field(name)
    new = _CHANGED_COLUMN.get(change.action, _no_such_change)(schema, change, old)
    columns: list[DataField] = []
    for column in schema.fields:
        if column is not old:
            columns.append(column)
        elif new is not None:
            columns.append(new)
    return replace(schema, fields=tuple(columns))


def _with_renamed_columns(schema: TableSchema, changes: Sequence[SchemaChange]) -> TableSchema:
    """The schema after these renames, in their order. The cost grows with the number of renames
    plus the number of columns, and not with their product.
    """
    uses = fixed_columns(schema)
    column_of_name = dict(schema.by_name)
    new_names: dict[int, str] = {}  # by the id of the column
    for change in changes:
        name = change.target
        if name not in column_of_name:
            current = (new_names.get(column.id, column.name) for column in schema.fields)
            raise _refused(change, f"is not one of {', '.join(current)}")
        _check_rename(change, uses.get(name), column_of_name)
        column = column_of_name.pop(name)
        new_names[column.id] = str(change.value)
        column_of_name[str(change.value)] = column
    fields = tuple(
        replace(column, name=new_names[column.id]) if column.id in new_names else column
        for column in schema.fields
    )
    renames = [(change.target, str(change.value)) for change in changes]
    options = MappingProxyType(with_renamed(schema.options, renames))
    return replace(schema, fields=fields, options=options)


def _check_rename(change: SchemaChange, use: str | None, names: Container[str]) -> None:
    """Raises `IncompatibleSchema` if a column cannot get the new name.

    Args:
        change: the rename.
        use: the use of the column, if its type cannot change.
        names: the names of all columns.
    """
    new_name = str(change.value)
    if use and use != _SEQUENCE_FIELD:  # the option of a sequence field gets the new name
        raise _stays(change, use)
    if change.value in names:
        raise _stays(change, f"{shown_name(new_name)} exists already")
    if not new_name.strip():
        raise _stays(change, "the new name is blank")
    if why_no_name(new_name) is not None:
        raise _stays(change, f"the new name {shown_name(new_name)} is one of Paimon's own")


def _dropped(schema: TableSchema, change: SchemaChange, old: DataField) -> None:
    """Checks that a column may be dropped. Returns None, because no column takes its place. Raises
    `IncompatibleSchema` if the column must stay.
    """
    use = fixed_columns(schema).get(old.name)
    if use:
        raise _stays(change, use)
    if len(schema.fields) == 1:
        raise _stays(change, "the only column")


def _retyped(schema: TableSchema, change: SchemaChange, old: DataField) -> DataField:
    wanted = type_of(change)
    if old.type == wanted.with_nullable(old.type.nullable):
        return old
    widened = wider(old.type, wanted)
    if widened is None:
        raise _stays(change, f"{old.type} is not narrower than {wanted}")
    use = fixed_columns(schema).get(old.name)
    if use is not None:
        raise _stays(change, use)
    return replace(old, type=widened)


def _with_nullability(schema: TableSchema, change: SchemaChange, old: DataField) -> DataField:
    nullable = change.value
    use = fixed_columns(schema).get(old.name)
    if nullable and old.name in schema.primary_keys and use is not None:
        raise _stays(change, use)
    disabled = schema.options.get("alter-column-null-to-not-null.disabled", "true")
    if not nullable and old.type.nullable and disabled.strip().lower() != "false":
        raise _stays(change, "it may hold NULL")
    return replace(old, type=old.type.with_nullable(nullable))


def _with_comment(schema: TableSchema, change: SchemaChange, old: DataField) -> DataField:
    return replace(old, description=change.value or None)


def _no_such_change(schema: TableSchema, change: SchemaChange, old: DataField) -> NoReturn:
    raise _stays(change, "there is no such change")


# For each action, the function that returns the changed column; None if the column is dropped. The
# functions raise `IncompatibleSchema`.
_CHANGED_COLUMN: Final[
    dict[str, Callable[[TableSchema, SchemaChange, DataField], DataField | None]]
] = {
    "dropColumn": _dropped,
    "updateColumnType": _retyped,
    "updateColumnNullability": _with_nullability,
    "updateColumnComment": _with_comment,
}


def type_of(change: SchemaChange) -> DataType:
    """The type of a column that is added or changed. Raises `IncompatibleSchema` if the text of the
    change is no type.
    """
    try:
        return parse_type(change.value)
    except (CorruptMetadata, TypeError, AttributeError):
        raise _refused(
            change,
            f"has no type {shown_name(str(change.value))}. Types are as in SQL: DECIMAL(10, 2)",
        ) from None


def _stays(change: SchemaChange, reason: str) -> IncompatibleSchema:
    return _refused(change, f"stays as it is: {reason}")


def _refused(change: SchemaChange, problem: str) -> IncompatibleSchema:
    column = shown_name(str(change.target))
    return IncompatibleSchema(
        f"{change.action}: column {column} {problem}. Nothing was changed. "
        "Give another name or type.",
        column=change.target,
    )
