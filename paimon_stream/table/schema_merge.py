"""Merges columns of rows to be written into a table's columns, without storage. The result and its ids are those of
Java's `SchemaMergingUtils`, or a refusal (docs/schema-changes.md; docs/architecture.md, "Merged schemas")."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from paimon_stream.errors import IncompatibleSchema
from paimon_stream.format.schema_json import TableSchema, reassign_ids
from paimon_stream.format.types import DataField, DataType, TypeRoot
from paimon_stream.options import MERGE_SCHEMA, ROWKIND_FIELD, SEQUENCE_FIELD
from paimon_stream.table.creation import why_no_name

Mode = Literal["add", "widen"]

_INTEGERS: Final = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT)
_DIGITS: Final = dict(zip(_INTEGERS, (3, 5, 10, 19), strict=True))
_EXACT_IN: Final = {
    TypeRoot.FLOAT: {TypeRoot.TINYINT, TypeRoot.SMALLINT},
    TypeRoot.DOUBLE: {TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.FLOAT},
}
# The kinds whose values do not change in a longer or finer type, by the kind of that type.
_GROWING: Final = {
    TypeRoot.VARCHAR: {TypeRoot.CHAR, TypeRoot.VARCHAR},
    TypeRoot.VARBINARY: {TypeRoot.BINARY, TypeRoot.VARBINARY},
    TypeRoot.TIMESTAMP: {TypeRoot.TIMESTAMP},
    TypeRoot.TIMESTAMP_LTZ: {TypeRoot.TIMESTAMP_LTZ},
}


def wider(old: DataType, new: DataType) -> DataType | None:
    """The atomic type that holds the values of both, as nullable as `old`; None if `new` is the same or not wider."""
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
        (schema.options.get(ROWKIND_FIELD.key, ""), "the row kind"),
        (schema.options.get(SEQUENCE_FIELD.key, ""), "a sequence field"),
        (",".join(schema.bucket_keys), "a bucket key"),
        (",".join(schema.partition_keys), "a partition key"),
        (",".join(schema.primary_keys), "a primary key"),
    )
    return {name.strip(): what for names, what in kinds for name in names.split(",") if name.strip()}


def merge_columns(
    schema: TableSchema, columns: Sequence[DataField], mode: Mode, *, location: str, time_millis: int = 0
) -> TableSchema:
    """The schema with the next id that also has these columns; `schema` itself if nothing is new. `add` adds columns
    and members; `widen` also widens types. `time_millis` is the time of the new schema in epoch milliseconds. Ids of
    `columns` do not matter. Raises `IncompatibleSchema`, with all reasons in one message: a type that is not wider, a
    key of another type, a name that no column may have."""
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
    return replace(schema, id=schema.id + 1, fields=fields, highest_field_id=merger.highest, time_millis=time_millis)


@dataclass(slots=True, kw_only=True)
class _Merger:
    """One merge: the highest id given out so far, and the problems by path of column."""

    mode: Mode
    highest: int
    fixed: dict[str, str]
    problems: dict[str, str] = field(default_factory=dict)

    def merged(self, old: Sequence[DataField], new: Sequence[DataField], inside: str) -> tuple[DataField, ...]:
        """The old columns, changed as the new ones require, then the new columns that do not exist yet."""
        asked: dict[str, DataField] = {}
        for one in new:
            if one.name in asked:
                self._refuse(inside + one.name, "appears more than once")
            asked.setdefault(one.name, one)
        kept = []
        for one in old:
            other = asked.pop(one.name, None)
            made = one.type if other is None else self._type(one.type, other.type, inside + one.name)
            kept.append(replace(one, type=made))
        return (*kept, *(self._added(one, inside) for one in asked.values()))

    def _added(self, one: DataField, inside: str) -> DataField:
        why = None if inside else why_no_name(one.name)
        if why is not None:
            self._refuse(inside + one.name, why)
        # Java numbers what is inside a new column before the column itself, as it does for members of a ROW.
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
            why = f"is {old} in the table and {new} in the rows; keys of maps never change their type"
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
            self._refuse(path, f"{differ}; {MERGE_SCHEMA.key} = widen would widen it to {made}")
        return old if made is None else made

    def _refuse(self, path: str, why: str) -> None:
        self.problems.setdefault(path, f"column {path!r} {why}")
