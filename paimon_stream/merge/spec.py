"""Reads from a table's options how rows of one key are merged (semantics.md §6.5). A `MergeSpec`
names the key, the columns that order the rows of a key, and the rule of each column. Options that
contradict each other are refused here, before any row is read. Functions that this release does not
have are also refused here.
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
        "merge_map",
    }
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
    """How a column is merged.

    Attributes:
        function: one of `FUNCTIONS`, or `key`, or `non_null` (each value that is not NULL replaces
            the value before it), or `of_group` (the column has the value of the row that the group
            chooses).
        ignore_retract: whether -U and -D rows leave the column as it is.
        distinct: whether listagg and collect keep only one of equal elements.
        delimiter: the text that listagg puts between texts.
        group: the position of the column's sequence group in `MergeSpec.groups`; None if the column
            is in no group.
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

ROW_KIND: Final = "rowkind"
"""The column of kinds that users see, as Paimon's audit log calls it: +I, -U, +U, -D."""

ROW_KIND_COLUMN: Final = DataField(
    id=2_147_483_643, name=ROW_KIND, type=parse_type("STRING NOT NULL")
)

PARTIAL_UPDATE: Final = "partial-update"
AGGREGATION: Final = "aggregation"
FIRST_ROW: Final = "first-row"

_LAST_NON_NULL: Final = "last_non_null_value"
_FIELDS: Final = "fields."
_SEQUENCE_GROUP: Final = ".sequence-group"


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceGroup:
    """A group of columns in a partial update.

    Attributes:
        ordering: the columns that order the updates. A row changes the group only if its values in
            these columns are not smaller than those that the merged row has, and if they are not
            all NULL.
        deletes: whether a -D that would change the group deletes the row of its key.
    """

    ordering: tuple[str, ...]
    deletes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSpec:
    """The rules by which `merge_rows` merges. `MergeSpec.of` reads them from a table's options.

    Attributes:
        table: the table, for messages.
        engine: the option `merge-engine`.
        keys: the key columns in key order, without the partition columns.
        sequence_fields: the columns of `sequence.field`.
        descending: whether the row with the smallest sequence fields is the newest.
        ignore_delete: whether -U and -D rows are left out.
        remove_on_delete: whether a -D removes the row of its key.
        lookup: whether compactions look up older values. If so, a row above level 0 includes the
            values that older levels have for its key, and replaces the rows of those levels
            (semantics.md §6.6).
        rules: how each column is merged. It is empty for deduplicate and first-row, because these
            engines take whole rows.
        groups: the sequence groups.
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
        """The spec of a table with these options.

        Args:
            schema: the columns and keys of the table.
            options: the options of the table.
            table: the table, for messages.

        Raises:
            InvalidOption: if options contradict each other or the columns.
            UnsupportedFeature: if this release does not have the engine or a function.
        """
        return _OptionReader(schema, options, table).spec()

    def needed(self, columns: Iterable[str]) -> tuple[str, ...]:
        """These columns, and then the other columns that are needed to merge these: keys, sequence
        fields, and ordering columns of groups.
        """
        needed = dict.fromkeys(columns)
        needed |= dict.fromkeys((*self.keys, *self.sequence_fields))
        positions = {position for position, group in enumerate(self.groups) if group.deletes}
        for name in needed:
            rule = self.rules.get(name)
            if rule is not None and rule.group is not None:
                positions.add(rule.group)
        for position in sorted(positions):
            needed |= dict.fromkeys(self.groups[position].ordering)
        return tuple(needed)


def needs_lookup(options: opt.Options) -> bool:
    """Whether compactions of a table with these options look up older values. Raises
    `InvalidOption`.
    """
    producer = options.value(opt.CHANGELOG_PRODUCER)
    return (
        producer == "lookup"
        or options.value(opt.DELETION_VECTORS)
        or options.value(opt.FORCE_LOOKUP)
    )


class _OptionReader:
    """Reads and checks the options that say how the rows of a table are merged."""

    def __init__(self, schema: TableSchema, options: opt.Options, table: str) -> None:
        self._schema = schema
        self._options = options
        self._table = table

    def spec(self) -> MergeSpec:
        """The spec that `MergeSpec.of` returns."""
        engine = self._options.value(opt.MERGE_ENGINE)
        sequence_fields = self._sequence_fields(engine)
        ignore_delete = self._options.value(opt.IGNORE_DELETE)
        groups: tuple[SequenceGroup, ...] = ()
        rules: dict[str, ColumnRule] = {}
        remove_on_delete = False
        if engine == PARTIAL_UPDATE:
            remove_on_delete = self._options.value(opt.PARTIAL_UPDATE_REMOVE_ON_DELETE)
            groups, group_of = self._groups()
            deleting = self._deleting_columns()
            self._check_deletes(groups, deleting)
            rules = self._partial_update_rules(groups, group_of)
            groups = tuple(
                replace(group, deletes=not deleting.isdisjoint(group.ordering)) for group in groups
            )
        elif engine == AGGREGATION:
            remove_on_delete = self._options.value(opt.AGGREGATION_REMOVE_ON_DELETE)
            rules = self._aggregation_rules(sequence_fields)
        return MergeSpec(
            table=self._table,
            engine=engine,
            keys=self._schema.trimmed_primary_keys,
            sequence_fields=sequence_fields,
            descending=self._options.value(opt.SEQUENCE_SORT_ORDER) == "descending",
            ignore_delete=ignore_delete,
            remove_on_delete=remove_on_delete,
            lookup=engine != FIRST_ROW and needs_lookup(self._options),
            rules=rules,
            groups=groups,
        )

    # -- options of any engine --------------------------------------------------------------------
    def _is_on(self, key: str) -> bool:
        """Whether a switch is true; False if it is not set. Raises `InvalidOption`."""
        value = self._options.get(key, "false").lower()
        if value not in ("true", "false"):
            raise self._wrong(key, "is neither true nor false")
        return value == "true"

    def _wrong(self, key: str, mistake: str) -> InvalidOption:
        """The error for an option that is wrong. `mistake` says what is wrong. It follows the word
        "it" in the message.
        """
        value = self._options.get(key, "")
        return InvalidOption(
            f"Option {key!r} of {self._table} is {value!r}: it {mistake}. Correct it, or leave it out.",
            option=key,
            value=value,
            table=self._table,
        )

    def _columns(self, key: str, names: Iterable[str]) -> tuple[str, ...]:
        """The columns that an option's value names. As in Java, blanks around a name belong to the
        name.
        """
        columns = tuple(names)
        for name in columns:
            if name not in self._schema.by_name:
                raise self._wrong(key, f"names {name!r}, which is not a column")
        return columns

    def _sequence_fields(self, engine: str) -> tuple[str, ...]:
        key = opt.SEQUENCE_FIELD.key
        parts = [part.strip() for part in self._options.value(opt.SEQUENCE_FIELD).split(",")]
        names = self._columns(key, filter(None, parts))
        if names and engine == FIRST_ROW:
            raise self._wrong(key, "does not go with the merge engine first-row")
        if len(set(names)) < len(names):
            raise self._wrong(key, "names a column twice")
        for name in names:
            if self._schema.field(name).type.is_nested:
                raise self._wrong(key, f"names {name!r}, whose values cannot be ordered")
            if self._declared_function(name) is not None:
                raise self._wrong(key, f"names {name!r}, which is aggregated at the same time")
        return names

    # -- aggregate functions ----------------------------------------------------------------------
    def _declared_function(self, column: str) -> str | None:
        """The function that the column's own option names."""
        return self._options.get(f"{_FIELDS}{column}.aggregate-function")

    def _function_of(self, column: str) -> str | None:
        """The function that the column's own option names, or the default for all columns."""
        declared = self._declared_function(column)
        if declared is None and self._options.is_set(opt.DEFAULT_AGGREGATE_FUNCTION):
            default: str = self._options.value(opt.DEFAULT_AGGREGATE_FUNCTION)
            return default
        return declared

    def _function_rule(self, column: DataField, function: str, group: int | None) -> ColumnRule:
        """The rule of a column that the function merges. Raises `InvalidOption` and
        `UnsupportedFeature` if the function cannot merge the column.
        """
        self._check_function(column, function)
        distinct_key = f"{_FIELDS}{column.name}.distinct"
        delimiter_key = f"{_FIELDS}{column.name}.list-agg-delimiter"
        distinct = self._is_on(distinct_key)
        delimiter = self._options.get(delimiter_key, ",")
        if function == "listagg" and distinct and not delimiter:
            raise self._wrong(delimiter_key, f"is empty, so {distinct_key} cannot separate parts")
        return ColumnRule(
            function=function,
            ignore_retract=self._is_on(_ignore_retract_key(column.name)),
            distinct=distinct,
            delimiter=delimiter,
            group=group,
        )

    def _check_function(self, column: DataField, function: str) -> None:
        """Raises `InvalidOption` or `UnsupportedFeature` if the function cannot merge the
        column.
        """
        context = {"table": self._table, "column": column.name, "function": function}
        if not function or function != function.strip():
            raise InvalidOption(
                f"Column {column.name!r} of {self._table} has the aggregate function {function!r}, which no engine "
                f"has. Set fields.{column.name}.aggregate-function to an exact name, without blanks.",
                **context,
            )
        if function not in FUNCTIONS:
            raise UnsupportedFeature(
                f"Column {column.name!r} of {self._table} has the aggregate function {function!r}, which this release "
                f"does not have. It has {', '.join(FUNCTIONS)}. Use an engine on the JVM, or change the function.",
                **context,
            )
        if not fits(function, column.type):
            raise InvalidOption(
                f"Column {column.name!r} of {self._table} is {column.type}, which the aggregate function {function!r} "
                "does not take. Change the function or the type.",
                **context,
            )

    def _aggregation_rules(self, sequence_fields: Sequence[str]) -> dict[str, ColumnRule]:
        remove_on_delete = self._options.value(opt.AGGREGATION_REMOVE_ON_DELETE)
        rules = {}
        for field in self._schema.fields:
            ignore_retract_key = _ignore_retract_key(field.name)
            if field.name in sequence_fields:
                rule = ColumnRule(
                    function="last_value", ignore_retract=self._is_on(ignore_retract_key)
                )
            elif field.name in self._schema.primary_keys:
                rule = ColumnRule(function="key")
            else:
                function = self._function_of(field.name)
                if function is None:
                    function = _LAST_NON_NULL
                rule = self._function_rule(field, function, None)
            if remove_on_delete and rule.ignore_retract:
                raise self._wrong(
                    ignore_retract_key, "does not go with aggregation.remove-record-on-delete"
                )
            rules[field.name] = rule
        return rules

    # -- partial updates --------------------------------------------------------------------------
    def _deleting_columns(self) -> set[str]:
        """The ordering columns of those groups in which a -D deletes the row of its key."""
        option = opt.PARTIAL_UPDATE_REMOVE_ON_SEQUENCE_GROUP
        return set(self._columns(option.key, filter(None, self._options.value(option).split(","))))

    def _check_deletes(self, groups: Sequence[SequenceGroup], deleting: set[str]) -> None:
        """Raises `InvalidOption` for options about deletes that contradict each other. `deleting`
        are the columns whose sequence groups delete rows.
        """
        remove_on_delete = self._options.value(opt.PARTIAL_UPDATE_REMOVE_ON_DELETE)
        remove_key = opt.PARTIAL_UPDATE_REMOVE_ON_DELETE.key
        group_key = opt.PARTIAL_UPDATE_REMOVE_ON_SEQUENCE_GROUP.key
        if self._options.value(opt.IGNORE_DELETE):
            if remove_on_delete:
                raise self._wrong(opt.IGNORE_DELETE.key, f"does not go with {remove_key}")
            if deleting:
                raise self._wrong(opt.IGNORE_DELETE.key, f"does not go with {group_key}")
        if remove_on_delete and groups:
            raise self._wrong(remove_key, "does not go with sequence groups of columns")
        names_other_column = not deleting.issubset(_ordering_columns(groups))
        if names_other_column:
            raise self._wrong(group_key, "names a column that orders no sequence group")

    def _partial_update_rules(
        self, groups: Sequence[SequenceGroup], group_of: Mapping[str, int]
    ) -> dict[str, ColumnRule]:
        """The rule of each column. `group_of` maps each grouped column to the position of its
        group.
        """
        ordering = _ordering_columns(groups)
        rules = {}
        for field in self._schema.fields:
            group = group_of.get(field.name)
            function = self._function_of(field.name)
            if field.name in ordering:
                rule = ColumnRule(function="of_group", group=group)
            elif field.name in self._schema.primary_keys:
                rule = ColumnRule(function="key")
            elif function is not None:
                if group is None and function != _LAST_NON_NULL:
                    raise self._needs_group(field.name)
                rule = self._function_rule(field, function, group)
            elif group is None:
                rule = ColumnRule(function="non_null")
            else:
                rule = ColumnRule(function="of_group", group=group)
            rules[field.name] = rule
        return rules

    def _needs_group(self, column: str) -> InvalidOption:
        key = opt.DEFAULT_AGGREGATE_FUNCTION.key
        if self._declared_function(column):
            key = f"{_FIELDS}{column}.aggregate-function"
        return self._wrong(key, f"needs a sequence group that has the column {column!r}")

    def _groups(self) -> tuple[tuple[SequenceGroup, ...], dict[str, int]]:
        """The sequence groups, and for each grouped column the position of its group."""
        groups: list[SequenceGroup] = []
        group_of: dict[str, int] = {}
        for key in sorted(self._options):
            is_group = key.startswith(_FIELDS) and key.endswith(_SEQUENCE_GROUP)
            if not is_group:
                continue
            ordering = self._columns(key, key[len(_FIELDS) : -len(_SEQUENCE_GROUP)].split(","))
            for name in ordering:
                if self._schema.field(name).type.is_nested:
                    raise self._wrong(
                        key, f"is ordered by {name!r}, whose values cannot be ordered"
                    )
            members = self._columns(key, self._options[key].split(","))
            if len(set(members)) < len(members):
                raise self._wrong(key, "names a column twice")
            for name in (*members, *ordering):
                position = len(groups)  # that of this group
                if group_of.get(name, position) != position:
                    raise self._wrong(key, f"names {name!r}, which is in another sequence group")
                if name in self._schema.primary_keys:
                    raise self._wrong(key, f"names {name!r}, which is in the primary key")
                group_of[name] = position
            groups.append(SequenceGroup(ordering=ordering))
        return tuple(groups), group_of


def _ignore_retract_key(column: str) -> str:
    return f"{_FIELDS}{column}.ignore-retract"


def _ordering_columns(groups: Iterable[SequenceGroup]) -> set[str]:
    return {name for group in groups for name in group.ordering}
