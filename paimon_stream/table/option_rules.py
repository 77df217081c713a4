"""Checks the options of tables: options that no table can have, and options that a single writer
cannot change. This module touches no storage. Paimon checks most options when a table is created,
and the rest when the table is first written. This package checks all of them at creation, so that
nobody creates a table that cannot be written (format.md §9).
"""

import datetime as dt
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, Final

from paimon_stream import options as opt
from paimon_stream.errors import InvalidOption
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.stats import parse_mode
from paimon_stream.format.types import TypeRoot
from paimon_stream.options.option import boolean, duration, levels, one_of, positive, size

IMMUTABLE: Final = frozenset(
    {
        # Java refuses to change the options below.
        "aggregation.remove-record-on-delete",
        "blob-descriptor-field",
        "blob-external-storage-field",
        "blob-external-storage-path",
        "blob-field",
        "blob-view-field",
        "bucket-function.type",
        "bucket-key",
        "data-evolution.enabled",
        "data-file.path-directory",
        "force-lookup",
        "index-file-in-data-file-dir",
        "merge-engine",
        "partial-update.remove-record-on-delete",
        "partial-update.remove-record-on-sequence-group",
        "partition",
        "pk-clustering-override",
        "primary-key",
        "primary-key.nullable",
        "row-tracking.enabled",
        "rowkind.field",
        "sequence.snapshot-ordering",
        # The options below define where rows are looked for, or what the table is.
        "bucket",
        "branch",
        "data-file.external-paths",
        "data-file.external-paths.strategy",
        "deletion-vectors.enabled",
        "partition.default-name",
        "partition.legacy-name",
        "type",
    }
)
"""Options that apply to all writers of a table, so no single writer may override them."""

_TIME_FIELD: Final = "record-level.time-field"

_ALTERABLE: Final = {"data-file.external-paths", "data-file.external-paths.strategy"}
_NEVER_ALTERED: Final = {"path", "branch", "primary-key", "partition"}

_RENAMED_IN_KEY: Final = {"aggregate-function", "ignore-retract", "distinct", "list-agg-delimiter"}
"""The options `fields.<column>.…` in whose key Java renames the column."""
_RENAMED_IN_BOTH: Final = {"sequence-group", "nested-key"}
"""The options in whose value Java renames columns, too."""
_KEPT_NAMES: Final = {
    "changelog-producer.row-deduplicate-ignore-fields",
    opt.PARTIAL_UPDATE_REMOVE_ON_SEQUENCE_GROUP.key,
    opt.ROWKIND_FIELD.key,
    _TIME_FIELD,
}
"""Options whose value names columns, and in which Java keeps the old name."""

_CHANGELOG_RETENTION: Final = (
    (opt.CHANGELOG_NUM_RETAINED_MIN, opt.SNAPSHOT_NUM_RETAINED_MIN),
    (opt.CHANGELOG_NUM_RETAINED_MAX, opt.SNAPSHOT_NUM_RETAINED_MAX),
    (opt.CHANGELOG_TIME_RETAINED, opt.SNAPSHOT_TIME_RETAINED),
)
"""The options of long-lived changelogs, each with the option of snapshots that gives its default.
"""
_HUNDRED_YEARS: Final = 86_400_000 * 36_525  # in milliseconds
_TAG_PERIODS: Final = {"daily": 86_400_000, "two-hours": 7_200_000, "hourly": 3_600_000}
_DEFAULTS: Final = {
    option.key: option.default for option in opt.table_options() if option.default is not None
}


def _each_level(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: [parse(level_text) for level_text in levels(text).values()]


def _stats_mode(text: str) -> Any:
    try:
        return parse_mode(text)
    except InvalidOption:
        raise ValueError(
            "that is not a statistics mode. Use none, counts, full or truncate(n) with n of 1 or more"
        ) from None


# Options that only other engines use, and that this package declares nowhere else. Each has the
# function that checks its text.
_PASSED_ON: Final[Mapping[str, Callable[[str], Any]]] = {
    **dict.fromkeys(("file.format", "changelog-file.format"), one_of("parquet", "orc", "avro")),
    "file.format.per.level": _each_level(one_of("parquet", "orc", "avro")),
    "metadata.stats-mode.per.level": _each_level(_stats_mode),
    "scan.mode": one_of(
        "default",
        "latest-full",
        "full",
        "latest",
        "compacted-full",
        "from-timestamp",
        "from-creation-timestamp",
        "from-file-creation-time",
        "from-snapshot",
        "from-snapshot-full",
        "incremental",
    ),
    **dict.fromkeys(("deletion-vectors.modifiable", "commit.force-compact"), boolean),
    **dict.fromkeys(("lookup-wait", "async-file-write"), boolean),
    "write.batch-size": positive,
    **dict.fromkeys(("write-buffer-size", "file-index.in-manifest-threshold"), size),
    "consumer.expiration-time": duration,
}


def check_possible(schema: TableSchema, options: opt.Options) -> None:
    """Raises `InvalidOption` for options that Paimon could not work with: unknown values, columns
    that do not exist, and contradictions with the keys or between options.
    """
    for key, parse in _PASSED_ON.items():
        if key in options:
            _check_text(key, options[key], parse)
    for key, text in options.items():
        if key.endswith(".stats-mode"):
            _check_text(key, text, _stats_mode)
    _check_columns(schema, options)
    _check_types_of_columns(schema, options)
    _check_retention(options)
    tag_period(options)  # raises for a period that cannot be
    _check_pattern(schema, options)
    _check_kind(schema, options)


def _check_text(key: str, text: str, parse: Callable[[str], Any]) -> None:
    try:
        parse(text)
    except ValueError as error:
        raise InvalidOption(
            f"Option {key!r} is {text!r}: {error}.", option=key, value=text
        ) from None


def _check_columns(schema: TableSchema, options: opt.Options) -> None:
    """Checks that the columns that options name exist, with exactly the spelling of the options."""
    for key in schema.options:
        parts = key.split(".")
        if parts[0] == "fields" and len(parts) > 2:
            _require(key, parts[1].split(","), schema.by_name)
    for key, text in options.items():
        if _is_file_index(key):
            _require(
                key,
                (name.strip().partition("[")[0] for name in text.split(",")),
                schema.by_name,
            )
        elif key == opt.SEQUENCE_FIELD.key:
            _require(key, (name.strip() for name in text.split(",")), schema.by_name)
        elif key in (opt.ROWKIND_FIELD.key, _TIME_FIELD):
            _require(key, (text,), schema.by_name)


def _check_types_of_columns(schema: TableSchema, options: opt.Options) -> None:
    """Checks that the columns that options name have types that fit."""
    types = {field.name: field.type for field in schema.fields}
    row_kind = options.get(opt.ROWKIND_FIELD.key, "")
    if row_kind and not types[row_kind].is_string:
        raise _wrong(
            opt.ROWKIND_FIELD.key,
            row_kind,
            "which is not STRING. Name another column, or leave the option out.",
        )
    time = options.get(_TIME_FIELD, "")
    if time and not (
        types[time].is_timestamp or types[time].root in (TypeRoot.INT, TypeRoot.BIGINT)
    ):
        raise _wrong(
            _TIME_FIELD,
            time,
            "which is neither INT, BIGINT nor TIMESTAMP. Name another column, or leave the option out.",
        )
    if not time and "record-level.expire-time" in options and schema.primary_keys:
        raise _wrong(
            _TIME_FIELD,
            time,
            "which is needed by record-level.expire-time. Name another column, or leave the option out.",
        )


def _require(key: str, named: Iterable[str], known: Container[str]) -> None:
    """Raises `InvalidOption` if the option `key` names columns that are not `known`."""
    missing = [name for name in named if name not in known]
    if missing:
        raise InvalidOption(
            f"Option {key!r} names {', '.join(map(repr, missing))}, which is not a column. "
            "Correct the name, or leave the option out.",
            option=key,
            columns=tuple(missing),
        )


def changelog_outlives(options: opt.Options) -> bool:
    """Whether the table keeps changelogs longer than snapshots: one of the options for changelogs
    is larger than the option for snapshots.
    """
    return any(
        options.is_set(of_changelogs) and options.value(of_changelogs) > options.value(of_snapshots)
        for of_changelogs, of_snapshots in _CHANGELOG_RETENTION
    )


def of_changelogs(options: opt.Options) -> opt.Options:
    """The table's options, in which the options that keep long-lived changelogs replace those that
    keep snapshots, if they are set.
    """
    retention = {
        of_snapshots.key: options[of_changelogs.key]
        for of_changelogs, of_snapshots in _CHANGELOG_RETENTION
        if options.is_set(of_changelogs)
    }
    return opt.Options({**options, **retention})


def _check_retention(options: opt.Options) -> None:
    for kind, of_kind in (("snapshot", options), ("changelog", of_changelogs(options))):
        least = of_kind.value(opt.SNAPSHOT_NUM_RETAINED_MIN)
        most = of_kind.value(opt.SNAPSHOT_NUM_RETAINED_MAX)
        if least > most:
            raise _wrong(
                f"{kind}.num-retained.min",
                least,
                f"more than '{kind}.num-retained.max', which is {most}. Lower one or raise the other.",
            )


def _check_pattern(schema: TableSchema, options: opt.Options) -> None:
    pattern = ""
    if options.is_set(opt.PARTITION_PATTERN):
        pattern = options.value(opt.PARTITION_PATTERN)
    rest = pattern
    for key in schema.partition_keys:
        rest = rest.replace(f"${key}", "")
    if "$" in rest:
        known = ", ".join(f"${key}" for key in schema.partition_keys) or "nothing"
        raise _wrong(
            opt.PARTITION_PATTERN.key,
            pattern,
            f"but only {known} names a partition column. Correct it, or leave it out.",
        )


def tag_period(options: opt.Options) -> dt.timedelta:
    """The period of an automatic tag. It is longer than the delay of the tag's creation. Raises
    `InvalidOption`.
    """
    period = _TAG_PERIODS[options.value(opt.TAG_CREATION_PERIOD)]
    delay = options.value(opt.TAG_CREATION_DELAY)
    if options.is_set(opt.TAG_PERIOD_DURATION):
        period = options.value(opt.TAG_PERIOD_DURATION)
        if not 0 < period < _HUNDRED_YEARS:
            raise _wrong(
                opt.TAG_PERIOD_DURATION.key,
                options[opt.TAG_PERIOD_DURATION.key],
                "but must be above 0 and below 100 years. Set another period, or leave it out.",
            )
    if delay >= period:
        raise _wrong(
            opt.TAG_CREATION_DELAY.key,
            options.get(opt.TAG_CREATION_DELAY.key, delay),
            "but must be shorter than the period of automatic tags. Shorten it, or leave it out.",
        )
    return dt.timedelta(milliseconds=period)


def _check_kind(schema: TableSchema, options: opt.Options) -> None:
    """Checks the options that need a primary key or another option, and those that forbid one."""
    has_key = bool(schema.primary_keys)
    producer = options.value(opt.CHANGELOG_PRODUCER)
    tracks_rows = options.value(opt.ROW_TRACKING)
    is_first_row = options.value(opt.MERGE_ENGINE) == "first-row"
    has_vectors = options.value(opt.DELETION_VECTORS)
    evolves = options.value(opt.DATA_EVOLUTION)
    misfits = (
        (opt.CHANGELOG_PRODUCER, producer != "none" and not has_key, "needs a primary key"),
        (
            opt.CHANGELOG_PRODUCER,
            is_first_row and producer not in ("none", "lookup"),
            "does not work with the merge engine first-row",
        ),
        (
            opt.CHANGELOG_PRODUCER,
            has_vectors and producer == "full-compaction",
            "does not work with deletion-vectors.enabled",
        ),
        (
            opt.DELETION_VECTORS,
            has_vectors and is_first_row,
            "does not work with the merge engine first-row",
        ),
        (
            opt.SEQUENCE_FIELD,
            is_first_row and options.is_set(opt.SEQUENCE_FIELD),
            "does not work with first-row",
        ),
        (
            opt.PARTITION_EXPIRATION_TIME,
            options.is_set(opt.PARTITION_EXPIRATION_TIME) and not schema.partition_keys,
            "needs a partition key",
        ),
        (opt.DATA_EVOLUTION, evolves and not tracks_rows, "needs row-tracking.enabled"),
        (opt.ROW_TRACKING, tracks_rows and has_key, "does not work with a primary key"),
        (opt.ROW_TRACKING, tracks_rows and options.value(opt.BUCKET) != -1, "needs bucket = -1"),
    )
    for option, is_misfit, problem in misfits:
        if is_misfit:
            raise _wrong(
                option.key,
                options[option.key],
                f"which {problem}. Leave it out, or change the other.",
            )


def _wrong(key: str, value: object, problem: str) -> InvalidOption:
    return InvalidOption(f"Option {key!r} is {value!r}, {problem}", option=key, value=value)


def check_alteration(stored: Mapping[str, str], key: str, text: str | None, *, used: bool) -> None:
    """Raises `InvalidOption` for an option that a table cannot change, as in Java.

    Args:
        stored: the options of the table's newest schema.
        key: the option that is changed.
        text: the new value; None removes the option.
        used: whether the table has snapshots. In a table without snapshots, most options can be
            changed.
    """
    options = opt.Options(stored)
    default = _DEFAULTS.get(key)
    old = options.get(key, default)
    new = default if text is None else text.strip()
    if key == opt.EXTERNAL_PATHS.key and used and old and not new:
        raise _wrong(
            key,
            old,
            f"and files may lie there. Keep it, and set {opt.EXTERNAL_STRATEGY.key!r} to 'none' "
            "to write none there.",
        )
    if old == new:
        return
    if key == opt.BUCKET.key:
        # A number of buckets may change to another number. If a table changed between a fixed
        # number and no fixed number, rows would have to move.
        is_fixed = used and (text is None or "-1" in (old, new))
    elif key == opt.DELETION_VECTORS.key:
        modifiable = options.get("deletion-vectors.modifiable", "false")
        is_fixed = used and modifiable.strip().lower() != "true"
        if is_fixed and new == "true":
            raise _wrong(
                key,
                old,
                "and the table has snapshots. Set 'deletion-vectors.modifiable' to 'true' in the same change, before "
                "this option. In a table with a primary key, readers then see no row before a compaction has taken it.",
            )
    else:
        is_fixed = key in _NEVER_ALTERED or (used and key in IMMUTABLE - _ALTERABLE)
    if is_fixed:
        raise _wrong(
            key,
            old,
            f"and was not changed to {new!r}: rows would be lost. Leave it, or make a new table.",
        )


def with_renamed(stored: Mapping[str, str], renames: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The options of a table after renames of its columns, as Java changes them. Raises
    `InvalidOption` for an option that names such a column and that Java would leave as it is.

    Args:
        stored: the options before.
        renames: the old and the new name of each rename, in their order.
    """
    new_names: dict[str, str] = {}
    for old, new in reversed(renames):  # a later rename may change the new name again
        new_names[old] = new_names.get(new, new)

    def renamed(names: str) -> str:
        return ",".join(new_names.get(name.strip(), name) for name in names.split(","))

    options = {}
    for key, text in stored.items():
        if key == opt.SEQUENCE_FIELD.key:
            options[key] = renamed(text)
        elif key.startswith("fields.") and key.count(".") > 1:
            columns, _, suffix = key.removeprefix("fields.").rpartition(".")
            new_key = f"fields.{renamed(columns)}.{suffix}"
            column = _first_renamed(columns, new_names)
            if suffix in _RENAMED_IN_BOTH:
                options[new_key] = renamed(text)
            elif suffix in _RENAMED_IN_KEY or column is None:
                options[new_key] = text
            else:
                raise _kept(key, column)
        else:
            column = _first_renamed(text, new_names) if _keeps_names(key) else None
            if column is not None:
                raise _kept(key, column)
            options[key] = text
    return options


def _first_renamed(names: str, new_names: Mapping[str, str]) -> str | None:
    """The first of some names of columns that gets a new name; None if none gets one. A name may be
    followed by a part in brackets.
    """
    for name in names.split(","):
        column = name.strip().partition("[")[0]
        if column in new_names:
            return column
    return None


def _keeps_names(key: str) -> bool:
    """Whether the value of the option names columns, and Java leaves these names when a column is
    renamed.
    """
    return key in _KEPT_NAMES or _is_file_index(key)


def _is_file_index(key: str) -> bool:
    parts = key.split(".")
    return parts[0] == "file-index" and parts[-1] == "columns" and len(parts) == 3


def _kept(key: str, column: str) -> InvalidOption:
    return InvalidOption(
        f"Option {key!r} names the column {column!r}, and Java Paimon keeps the old name there, so the option would "
        "lose its effect or break the table. Remove the option, rename the column, and set the option again.",
        option=key,
        column=column,
    )


def check_overrides(table: str, stored: Mapping[str, str], overrides: Mapping[str, str]) -> None:
    """Raises `InvalidOption` if the options of one writer would change an option that applies to
    all writers. Otherwise the rows of that writer would be where no other writer or reader looks
    for them. `table` is the table's location, for the message.
    """
    if not overrides:  # most commands have none
        return
    wanted = opt.Options(overrides)
    immutable = sorted(IMMUTABLE & set(wanted))
    if not immutable:
        return
    in_force = opt.Options(stored)
    for key in immutable:
        text = wanted[key]
        stored_text = in_force.get(key, _DEFAULTS.get(key))
        if stored_text is None or text.strip() != stored_text.strip():
            raise InvalidOption(
                f"Option {key!r} is {text!r}, but {table} has {stored_text or 'none'!r}, "
                "and one writer cannot change that. Leave the option out.",
                option=key,
                value=text,
                table=table,
            )
