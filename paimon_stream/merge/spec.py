"""How rows of one key are merged: reads and checks a table's options (semantics.md §6.5). A
`MergeSpec` names the key, the columns that order the rows of a key, and the rule of each column.
Options that contradict each other, and functions that this release does not have, are refused here,
before any row is read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from paimon_stream import options as opt
from paimon_stream.errors import InvalidOption, UnsupportedFeature
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import MAX_LENGTH, DataField, DataType, TypeRoot, parse_type

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)

FUNCTIONS: Final = (
    "sum",
    "product",
    "max",
    "min",
    "last_value",
    "last_non_null_value",
    "first_value",
    "first_non_null_value",
    "bool_and",
    "bool_or",
    "listagg",
    "collect",
    "merge_map",
)
"""The functions by the names that they have in Java."""

RETRACTABLE: Final = frozenset(
    {
        "key",
        "non_null",
        "of_group",
        "last_value",
        "last_non_null_value",
        "sum",
        "product",
        "collect",
    }
    | {"merge_map"}
)
"""Functions that can process a -U or -D row. The others refuse it."""

_NUMERIC: Final = {
    TypeRoot.TINYINT,
    TypeRoot.SMALLINT,
    TypeRoot.INT,
    TypeRoot.BIGINT,
    TypeRoot.FLOAT,
    TypeRoot.DOUBLE,
    TypeRoot.DECIMAL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRule:
    """How a column is merged. `function` is one of `FUNCTIONS`, `key`, `non_null` (each value but
    NULL replaces the last) or `of_group` (the value in the row that the group chooses). `group` is
    the position of its group, if any.
    """

    function: str
    ignore_retract: bool = False
    distinct: bool = False
    delimiter: str = ","
    group: int | None = None


def fits(function: str, type_: DataType) -> bool:
    """Whether the function accepts values of that type."""
    match function:
        case "sum" | "product":
            return type_.root in _NUMERIC
        case "max" | "min":
            return not type_.is_nested and type_.root is not TypeRoot.BOOLEAN
        case "bool_and" | "bool_or":
            return type_.root is TypeRoot.BOOLEAN
        case "listagg":
            return type_.root is TypeRoot.VARCHAR and type_.precision == MAX_LENGTH
        case "collect":
            return type_.root is TypeRoot.ARRAY
        case "merge_map":
            return type_.root is TypeRoot.MAP
    return True


SEQUENCE: Final = "_SEQUENCE_NUMBER"
"""The column of sequence numbers, BIGINT. Of two rows with the same key, the larger number is
newer.
"""

KIND: Final = "_VALUE_KIND"
"""The column of row kinds, TINYINT: 0 +I, 1 -U, 2 +U, 3 -D."""

SEQUENCE_COLUMN: Final = DataField(
    id=2_147_483_646, name=SEQUENCE, type=parse_type("BIGINT NOT NULL")
)
KIND_COLUMN: Final = DataField(id=2_147_483_645, name=KIND, type=parse_type("TINYINT NOT NULL"))

PARTIAL_UPDATE: Final = "partial-update"
AGGREGATION: Final = "aggregation"
FIRST_ROW: Final = "first-row"

_LAST_NON_NULL: Final = "last_non_null_value"
_FIELDS: Final = "fields."


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceGroup:
    """A group of columns in a partial update. A row may change them only if its values in the
    `ordering` columns are not smaller than the held ones. `deletes` says that a -D of the group
    deletes the row.
    """

    ordering: tuple[str, ...]
    deletes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSpec:
    """What `merge_rows` has to know; made by `MergeSpec.of`. `keys` are in key order, without the
    partition columns; `sequence_fields` are those of `sequence.field`. With `lookup`, compactions
    look up older values, so a row from level 1 on has all that lower levels have of its key, and
    takes their place (semantics.md §6.6). `rules` has each column, but nothing for deduplicate and
    first-row, which take whole rows.
    """

    table: str
    engine: str
    keys: tuple[str, ...]
    sequence_fields: tuple[str, ...] = ()
    descending: bool = False
    ignore_delete: bool = False
    remove_on_delete: bool = False
    lookup: bool = False
    rules: Mapping[str, ColumnRule]
    groups: tuple[SequenceGroup, ...] = ()

    @classmethod
    def of(
        cls, schema: TableSchema, options: opt.Options, *, table: str = "the table"
    ) -> "MergeSpec":
        """The spec of a table with these options. Raises `InvalidOption` for options that
        contradict each other or the columns, and `UnsupportedFeature` for an engine or function
        that this release does not have.
        """
        return _Reading(schema, options, table).spec()

    def needed(self, columns: Iterable[str]) -> tuple[str, ...]:
        """These columns, then those that merging them needs: keys, sequence fields, ordering
        columns of groups.
        """
        wanted = dict.fromkeys(columns)
        wanted |= dict.fromkeys((*self.keys, *self.sequence_fields))
        groups = {
            rule.group
            for name in wanted
            if (rule := self.rules.get(name)) and rule.group is not None
        }
        groups |= {position for position, group in enumerate(self.groups) if group.deletes}
        for position in sorted(groups):
            wanted |= dict.fromkeys(self.groups[position].ordering)
        return tuple(wanted)


def looks_up(options: opt.Options) -> bool:
    """Whether compactions of a table with these options look up older values. Raises
    `InvalidOption`.
    """
    producer = options.value(opt.CHANGELOG_PRODUCER)
    return (
        producer == "lookup"
        or options.value(opt.DELETION_VECTORS)
        or options.value(opt.FORCE_LOOKUP)
    )


class _Reading:
    def __init__(self, schema: TableSchema, options: opt.Options, table: str) -> None:
        self._schema = schema
        self._options = options
        self._table = table

    def spec(self) -> "MergeSpec":
        engine = self._options.value(opt.MERGE_ENGINE)
        sequence = self._sequence_fields(engine)
        ignore_delete = self._options.value(opt.IGNORE_DELETE)
        groups: tuple[SequenceGroup, ...] = ()
        rules: dict[str, ColumnRule] = {}
        remove = False
        if engine == PARTIAL_UPDATE:
            remove = self._options.value(opt.PARTIAL_UPDATE_REMOVE_ON_DELETE)
            groups, rules = self._partial_update(remove, ignore_delete)
        elif engine == AGGREGATION:
            remove = self._options.value(opt.AGGREGATION_REMOVE_ON_DELETE)
            rules = self._aggregation(sequence, remove)
        return MergeSpec(
            table=self._table,
            engine=engine,
            keys=self._schema.trimmed_primary_keys,
            sequence_fields=sequence,
            descending=self._options.value(opt.SEQUENCE_SORT_ORDER) == "descending",
            ignore_delete=ignore_delete,
            remove_on_delete=remove,
            lookup=engine != FIRST_ROW and looks_up(self._options),
            rules=rules,
            groups=groups,
        )

    def _is_on(self, key: str) -> bool:
        text = self._options.get(key, "false").lower()
        if text not in ("true", "false"):
            raise self._wrong(key, "is neither true nor false")
        return text == "true"

    def _sequence_fields(self, engine: str) -> tuple[str, ...]:
        text = self._options.value(opt.SEQUENCE_FIELD)
        names = self._columns(
            opt.SEQUENCE_FIELD.key, filter(None, (part.strip() for part in text.split(",")))
        )
        if names and engine == FIRST_ROW:
            raise self._wrong(opt.SEQUENCE_FIELD.key, "does not go with the merge engine first-row")
        if len(set(names)) < len(names):
            raise self._wrong(opt.SEQUENCE_FIELD.key, "names a column twice")
        for name in names:
            if self._schema.field(name).type.is_nested:
                raise self._wrong(
                    opt.SEQUENCE_FIELD.key, f"names {name!r}, whose values cannot be ordered"
                )
            if self._own_function(name) is not None:
                raise self._wrong(
                    opt.SEQUENCE_FIELD.key, f"names {name!r}, which is aggregated at the same time"
                )
        return names

    def _columns(self, key: str, names: Iterable[str]) -> tuple[str, ...]:
        """The columns that an option's value names. Blanks around a name count, as in Java."""
        found = tuple(names)
        for name in found:
            if name not in self._schema.field_names:
                raise self._wrong(key, f"names {name!r}, which is not a column")
        return found

    def _function_of(self, column: str) -> str | None:
        own, default = self._own_function(column), opt.DEFAULT_AGGREGATE_FUNCTION
        return (
            self._options.value(default) if own is None and self._options.is_set(default) else own
        )

    def _own_function(self, column: str) -> str | None:
        return self._options.get(f"{_FIELDS}{column}.aggregate-function")

    def _wrong(self, option: str, why: str) -> InvalidOption:
        value = self._options.get(option, "")
        text = f"Option {option!r} of {self._table} is {value!r}: it {why}. Correct it, or leave it out."
        return InvalidOption(text, option=option, value=value, table=self._table)

    def _aggregation(self, sequence: Sequence[str], remove: bool) -> dict[str, ColumnRule]:
        rules = {}
        for one in self._schema.fields:
            if one.name in sequence:
                ignores = self._is_on(f"{_FIELDS}{one.name}.ignore-retract")
                rules[one.name] = ColumnRule(function="last_value", ignore_retract=ignores)
            elif one.name in self._schema.primary_keys:
                rules[one.name] = ColumnRule(function="key")
            else:
                function = self._function_of(one.name)
                rules[one.name] = self._rule(
                    one, _LAST_NON_NULL if function is None else function, None
                )
            if remove and rules[one.name].ignore_retract:
                text = f"fields.{one.name}.ignore-retract"
                raise self._wrong(text, "does not go with aggregation.remove-record-on-delete")
        return rules

    def _rule(self, column: DataField, function: str, group: int | None) -> ColumnRule:
        facts = {"table": self._table, "column": column.name, "function": function}
        if not function or function != function.strip():
            cure = f"which no engine has. Set fields.{column.name}.aggregate-function to an exact name, without blanks."
            text = f"Column {column.name!r} of {self._table} has the aggregate function {function!r}, {cure}"
            raise InvalidOption(text, **facts)
        if function not in FUNCTIONS:
            raise UnsupportedFeature(
                f"Column {column.name!r} of {self._table} has the aggregate function {function!r}, which this release "
                f"does not have. It has {', '.join(FUNCTIONS)}. Use an engine on the JVM, or change the function.",
                **facts,
            )
        if not fits(function, column.type):
            text = f"Column {column.name!r} of {self._table} is {column.type}, which the aggregate function"
            raise InvalidOption(
                f"{text} {function!r} does not take. Change the function or the type.", **facts
            )
        own = f"{_FIELDS}{column.name}."
        distinct = self._is_on(own + "distinct")
        delimiter = self._options.get(own + "list-agg-delimiter", ",")
        if function == "listagg" and distinct and not delimiter:
            raise self._wrong(
                own + "list-agg-delimiter", f"is empty, so {own}distinct cannot separate parts"
            )
        ignore = self._is_on(own + "ignore-retract")
        return ColumnRule(
            function=function,
            ignore_retract=ignore,
            distinct=distinct,
            delimiter=delimiter,
            group=group,
        )

    def _partial_update(
        self, remove: bool, ignore: bool
    ) -> tuple[tuple[SequenceGroup, ...], dict[str, ColumnRule]]:
        groups, member_of = self._groups()
        ordering = {name for group in groups for name in group.ordering}
        on_group = opt.PARTIAL_UPDATE_REMOVE_ON_SEQUENCE_GROUP.key
        removing = self._options.value(opt.PARTIAL_UPDATE_REMOVE_ON_SEQUENCE_GROUP)
        deleting = self._columns(on_group, filter(None, removing.split(",")))
        for given, key in ((remove, opt.PARTIAL_UPDATE_REMOVE_ON_DELETE.key), (deleting, on_group)):
            if given and ignore:
                raise self._wrong(opt.IGNORE_DELETE.key, f"does not go with {key}")
        if remove and groups:
            raise self._wrong(
                opt.PARTIAL_UPDATE_REMOVE_ON_DELETE.key,
                "does not go with sequence groups of columns",
            )
        if not set(deleting) <= ordering:
            raise self._wrong(on_group, "names a column that orders no sequence group")
        rules = {}
        for one in self._schema.fields:
            group, function = member_of.get(one.name), self._function_of(one.name)
            if one.name in ordering:
                rules[one.name] = ColumnRule(function="of_group", group=group)
            elif one.name in self._schema.primary_keys:
                rules[one.name] = ColumnRule(function="key")
            elif function is None:
                rules[one.name] = ColumnRule(
                    function="non_null" if group is None else "of_group", group=group
                )
            else:
                if group is None and function != _LAST_NON_NULL:
                    own = f"fields.{one.name}.aggregate-function"
                    key = (
                        own if self._own_function(one.name) else opt.DEFAULT_AGGREGATE_FUNCTION.key
                    )
                    raise self._wrong(
                        key, f"needs a sequence group that has the column {one.name!r}"
                    )
                rules[one.name] = self._rule(one, function, group)
        return tuple(
            [replace(one, deletes=not set(deleting).isdisjoint(one.ordering)) for one in groups]
        ), rules

    def _groups(self) -> tuple[list[SequenceGroup], dict[str, int]]:
        """The sequence groups, and the position of each column's group."""
        groups: list[SequenceGroup] = []
        member_of: dict[str, int] = {}
        for key in sorted(self._options):
            if not (key.startswith(_FIELDS) and key.endswith(".sequence-group")):
                continue
            ordering = self._columns(key, key[len(_FIELDS) : -len(".sequence-group")].split(","))
            for name in ordering:
                if self._schema.field(name).type.is_nested:
                    raise self._wrong(
                        key, f"is ordered by {name!r}, whose values cannot be ordered"
                    )
            members = self._columns(key, self._options[key].split(","))
            if len(set(members)) < len(members):
                raise self._wrong(key, "names a column twice")
            for name in (*members, *ordering):
                if member_of.get(name, len(groups)) != len(groups):
                    raise self._wrong(key, f"names {name!r}, which is in another sequence group")
                if name in self._schema.primary_keys:
                    raise self._wrong(key, f"names {name!r}, which is in the primary key")
                member_of[name] = len(groups)
            groups.append(SequenceGroup(ordering=ordering))
        return groups, member_of
