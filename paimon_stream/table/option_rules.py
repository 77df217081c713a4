"""Options that no table can have, and options that a single writer cannot change. This module
touches no storage. Paimon checks most of these when a table is created and the rest when it is
first written. Here all are checked at creation, so that no table comes to exist that nobody can
write (format.md §9).
"""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from paimon_stream import options as opt
from paimon_stream.errors import InvalidOption
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.stats import parse_mode
from paimon_stream.format.types import TypeRoot
from paimon_stream.options.option import boolean, duration, levels, one_of, positive, size

IMMUTABLE: Final = frozenset(
    {
        # Java refuses to change these.
        "aggregation.remove-record-on-delete",
        "blob-descriptor-field",
        "blob-external-storage-field",
        "blob-external-storage-path",
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
        "row-tracking.enabled",
        "rowkind.field",
        # These define where rows are looked for, or what the table is.
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

_ALTERABLE: Final = {"data-file.external-paths", "data-file.external-paths.strategy"}
_NEVER_ALTERED: Final = {"path", "branch", "primary-key", "partition"}

_RENAMED_IN_KEY: Final = {"aggregate-function", "ignore-retract", "distinct", "list-agg-delimiter"}
"""Of the options `fields.<column>.…`, those in which Java renames the column."""
_RENAMED_IN_BOTH: Final = {"sequence-group", "nested-key"}
"""Those in whose value Java renames columns, too."""
_KEPT_NAMES: Final = {
    "changelog-producer.row-deduplicate-ignore-fields",
    opt.PARTIAL_UPDATE_REMOVE_ON_SEQUENCE_GROUP.key,
    opt.ROWKIND_FIELD.key,
    "record-level.time-field",
}
"""Options whose value names columns, and in which Java keeps the old name."""

_CHANGELOG_RETENTION: Final = (
    (opt.CHANGELOG_NUM_RETAINED_MIN, opt.SNAPSHOT_NUM_RETAINED_MIN),
    (opt.CHANGELOG_NUM_RETAINED_MAX, opt.SNAPSHOT_NUM_RETAINED_MAX),
    (opt.CHANGELOG_TIME_RETAINED, opt.SNAPSHOT_TIME_RETAINED),
)
"""The options of long-lived changelogs, each with that of snapshots from which it takes its
default.
"""
_HUNDRED_YEARS: Final = 86_400_000 * 36_525
_TAG_PERIODS: Final = {"daily": 86_400_000, "two-hours": 7_200_000, "hourly": 3_600_000}
_DEFAULTS: Final = {
    option.key: option.default for option in opt.table_options() if option.default is not None
}


def _each_level(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: [parse(one) for one in levels(text).values()]


def _stats_mode(text: str) -> Any:
    try:
        return parse_mode(text)
    except InvalidOption:
        why = "that is not a statistics mode. Use none, counts, full or truncate(n) with n of 1 or more"
        raise ValueError(why) from None


# Options that only other engines use and that are declared nowhere else: how their text is checked.
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
    **dict.fromkeys(("metastore.partitioned-table", "lookup-wait", "async-file-write"), boolean),
    "write.batch-size": positive,
    **dict.fromkeys(("write-buffer-size", "file-index.in-manifest-threshold"), size),
    "consumer.expiration-time": duration,
}


def check_possible(schema: TableSchema, options: opt.Options) -> None:
    """Raises `InvalidOption` for options that Paimon could not work with: unknown values, names of
    columns that do not exist, contradictions with the keys or with each other.
    """
    for key, parse in _PASSED_ON.items():
        if key in options:
            _parse(key, options[key], parse)
    for key, text in options.items():
        if key.endswith(".stats-mode"):
            _parse(key, text, _stats_mode)
    _check_columns(schema, options)
    _check_types_of_columns(schema, options)
    _check_retention(options)
    tag_period(options)
    _check_pattern(schema, options)
    _check_kind(schema, options)


def _parse(key: str, text: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(text)
    except ValueError as why:
        raise InvalidOption(f"Option {key!r} is {text!r}: {why}.", option=key, value=text) from None


def _check_columns(schema: TableSchema, options: opt.Options) -> None:
    """Checks that options name columns that exist, in their own spelling."""
    for key in schema.options:
        parts = key.split(".")
        if parts[0] == "fields" and len(parts) > 2:
            _require(key, parts[1].split(","), schema.field_names)
    for key, text in options.items():
        if _is_file_index(key):
            _require(
                key,
                (name.strip().partition("[")[0] for name in text.split(",")),
                schema.field_names,
            )
        elif key == opt.SEQUENCE_FIELD.key:
            _require(key, (name.strip() for name in text.split(",")), schema.field_names)
        elif key in (opt.ROWKIND_FIELD.key, "record-level.time-field"):
            _require(key, (text,), schema.field_names)


def _check_types_of_columns(schema: TableSchema, options: opt.Options) -> None:
    types = {one.name: one.type for one in schema.fields}
    timed = "record-level.time-field"
    row_kind, time = options.get(opt.ROWKIND_FIELD.key, ""), options.get(timed, "")
    expires = "record-level.expire-time" in options and schema.primary_keys
    no_time = time and not (
        types[time].is_timestamp or types[time].root in (TypeRoot.INT, TypeRoot.BIGINT)
    )
    for key, name, wrong, why in (
        (
            opt.ROWKIND_FIELD.key,
            row_kind,
            row_kind and not types[row_kind].is_string,
            "is not STRING",
        ),
        (timed, time, no_time, "is neither INT, BIGINT nor TIMESTAMP"),
        (timed, time, expires and not time, "is needed by record-level.expire-time"),
    ):
        if wrong:
            raise _wrong(key, name, f"which {why}. Name another column, or leave the option out.")


def _require(key: str, named: Iterable[str], known: Iterable[str]) -> None:
    missing = [name for name in named if name not in known]
    if missing:
        cure = "Correct the name, or leave the option out."
        text = (
            f"Option {key!r} names {', '.join(map(repr, missing))}, which is not a column. {cure}"
        )
        raise InvalidOption(text, option=key, columns=tuple(missing))


def changelog_outlives(options: opt.Options) -> bool:
    """Whether the table keeps changelog longer than snapshots, which is where one of its options is
    larger.
    """
    return any(
        options.is_set(one) and options.value(one) > options.value(of)
        for one, of in _CHANGELOG_RETENTION
    )


def of_changelogs(options: opt.Options) -> opt.Options:
    """The options with those of long-lived changelogs, where they are set, as those of
    snapshots.
    """
    own = {of.key: options[one.key] for one, of in _CHANGELOG_RETENTION if options.is_set(one)}
    return opt.Options({**options, **own})


def _check_retention(options: opt.Options) -> None:
    for kind, some in (("snapshot", options), ("changelog", of_changelogs(options))):
        least, most = (
            some.value(opt.SNAPSHOT_NUM_RETAINED_MIN),
            some.value(opt.SNAPSHOT_NUM_RETAINED_MAX),
        )
        if least > most:
            why = f"more than '{kind}.num-retained.max', which is {most}. Lower one or raise the other."
            raise _wrong(f"{kind}.num-retained.min", least, why)


def _check_pattern(schema: TableSchema, options: opt.Options) -> None:
    pattern = options.value(opt.PARTITION_PATTERN) if options.is_set(opt.PARTITION_PATTERN) else ""
    rest = pattern
    for key in schema.partition_keys:
        rest = rest.replace(f"${key}", "")
    if "$" in rest:
        known = ", ".join(f"${key}" for key in schema.partition_keys)
        why = (
            f"but only {known or 'nothing'} names a partition column. Correct it, or leave it out."
        )
        raise _wrong(opt.PARTITION_PATTERN.key, pattern, why)


def tag_period(options: opt.Options) -> dt.timedelta:
    """The period of an automatic tag, which is longer than the delay of its creation. Raises
    `InvalidOption`.
    """
    period, delay = (
        _TAG_PERIODS[options.value(opt.TAG_CREATION_PERIOD)],
        options.value(opt.TAG_CREATION_DELAY),
    )
    if options.is_set(opt.TAG_PERIOD_DURATION):
        period = options.value(opt.TAG_PERIOD_DURATION)
        if not 0 < period < _HUNDRED_YEARS:
            why = "but must be above 0 and below 100 years. Set another period, or leave it out."
            raise _wrong(opt.TAG_PERIOD_DURATION.key, options[opt.TAG_PERIOD_DURATION.key], why)
    if delay >= period:
        why = "but must be shorter than the period of automatic tags. Shorten it, or leave it out."
        raise _wrong(
            opt.TAG_CREATION_DELAY.key, options.get(opt.TAG_CREATION_DELAY.key, delay), why
        )
    return dt.timedelta(milliseconds=period)


def _check_kind(schema: TableSchema, options: opt.Options) -> None:
    producer, tracked = options.value(opt.CHANGELOG_PRODUCER), options.value(opt.ROW_TRACKING)
    keyed, first_row = bool(schema.primary_keys), options.value(opt.MERGE_ENGINE) == "first-row"
    vectors, expires = (
        options.value(opt.DELETION_VECTORS),
        options.is_set(opt.PARTITION_EXPIRATION_TIME),
    )
    changelog, not_first = opt.CHANGELOG_PRODUCER, "does not work with the merge engine first-row"
    for option, wrong, why in (
        (changelog, producer != "none" and not keyed, "needs a primary key"),
        (changelog, first_row and producer not in ("none", "lookup"), not_first),
        (
            changelog,
            vectors and producer == "full-compaction",
            "does not work with deletion-vectors.enabled",
        ),
        (opt.DELETION_VECTORS, vectors and first_row, not_first),
        (
            opt.SEQUENCE_FIELD,
            first_row and options.is_set(opt.SEQUENCE_FIELD),
            "does not work with first-row",
        ),
        (
            opt.PARTITION_EXPIRATION_TIME,
            expires and not schema.partition_keys,
            "needs a partition key",
        ),
        (
            opt.DATA_EVOLUTION,
            options.value(opt.DATA_EVOLUTION) and not tracked,
            "needs row-tracking.enabled",
        ),
        (opt.ROW_TRACKING, tracked and keyed, "does not work with a primary key"),
        (opt.ROW_TRACKING, tracked and options.value(opt.BUCKET) != -1, "needs bucket = -1"),
    ):
        if wrong:
            raise _wrong(
                option.key, options[option.key], f"which {why}. Leave it out, or change the other."
            )


def _wrong(key: str, value: object, why: str) -> InvalidOption:
    return InvalidOption(f"Option {key!r} is {value!r}, {why}", option=key, value=value)


def check_alteration(stored: Mapping[str, str], key: str, text: str | None, *, used: bool) -> None:
    """Raises `InvalidOption` for an option that a table cannot change, as in Java. A `text` of None
    removes the option. `used` says whether the table has snapshots; without them, most can be
    changed.
    """
    own, default = opt.Options(stored), _DEFAULTS.get(key)
    old, new = own.get(key, default), default if text is None else text.strip()
    fixed = key in _NEVER_ALTERED or (used and key in IMMUTABLE - _ALTERABLE)
    if key == opt.BUCKET.key:
        fixed = used and (text is None or "-1" in (old, new))
    elif key == opt.DELETION_VECTORS.key:
        fixed = used and own.get("deletion-vectors.modifiable", "false").strip().lower() != "true"
    if key == opt.EXTERNAL_PATHS.key and used and old and not new:
        why = f"and files may lie there. Keep it, and set {opt.EXTERNAL_STRATEGY.key!r} to 'none' to write none there."
        raise _wrong(key, old, why)
    if fixed and old != new:
        raise _wrong(
            key,
            old,
            f"and was not changed to {new!r}: rows would be lost. Leave it, or make a new table.",
        )


def with_renamed(stored: Mapping[str, str], old: str, new: str) -> dict[str, str]:
    """The options of a table after its column `old` is called `new`, as Java changes them. Raises
    `InvalidOption` for an option that names the column and that Java would leave as it is.
    """

    def renamed(text: str) -> str:
        return ",".join(new if name.strip() == old else name for name in text.split(","))

    made = {}
    for key, text in stored.items():
        before, named = key, key in _KEPT_NAMES or _is_file_index(key)
        if key == opt.SEQUENCE_FIELD.key:
            text = renamed(text)
        elif key.startswith("fields.") and key.count(".") > 1:
            columns, _, last = key.removeprefix("fields.").rpartition(".")
            key = f"fields.{renamed(columns)}.{last}"
            if last in _RENAMED_IN_BOTH:
                text = renamed(text)
            elif last not in _RENAMED_IN_KEY and key != before:
                raise _kept(before, old)
        elif named and old in (name.strip().partition("[")[0] for name in text.split(",")):
            raise _kept(key, old)
        made[key] = text
    return made


def _is_file_index(key: str) -> bool:
    parts = key.split(".")
    return parts[0] == "file-index" and parts[-1] == "columns" and len(parts) == 3


def _kept(key: str, column: str) -> InvalidOption:
    text = (
        f"Option {key!r} names the column {column!r}, and Java Paimon keeps the old name there, so the option would "
        "lose its effect or break the table. Remove the option, rename the column, and set the option again"
    )
    return InvalidOption(f"{text}.", option=key, column=column)


def check_overrides(table: str, stored: Mapping[str, str], overrides: Mapping[str, str]) -> None:
    """Raises `InvalidOption` if one writer would change an option that applies to all of them. Its
    rows would be where no other writer or reader looks for them. `table` is for the message.
    """
    own, given = opt.Options(stored), opt.Options(overrides)
    for key in sorted(IMMUTABLE & set(given)):
        text, in_force = given[key], own.get(key, _DEFAULTS.get(key))
        if in_force is None or text.strip() != in_force.strip():
            why = "and one writer cannot change that. Leave the option out."
            what = f"Option {key!r} is {text!r}, but {table} has {in_force or 'none'!r}, {why}"
            raise InvalidOption(what, option=key, value=text, table=table)
