"""Options that no table can have, and options that no single writer can change. Pure: no storage is touched.

Paimon checks most of these when a table is created and the rest when it is first written; here all are
refused at creation, before a table exists that nobody can write (format.md §9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from paimon_stream.errors import InvalidOption
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.stats import parse_mode
from paimon_stream.options import Options, boolean, duration, integer, one_of, positive, size, table_options

__all__ = ["IMMUTABLE", "check_overrides", "check_possible"]

IMMUTABLE: Final = frozenset(
    {
        # Java refuses to change these.
        "aggregation.remove-record-on-delete", "blob-descriptor-field", "blob-external-storage-field",
        "blob-external-storage-path", "bucket-function.type", "bucket-key", "data-evolution.enabled",
        "data-file.path-directory", "force-lookup", "index-file-in-data-file-dir", "merge-engine",
        "partial-update.remove-record-on-delete", "partial-update.remove-record-on-sequence-group",
        "partition", "pk-clustering-override", "primary-key", "row-tracking.enabled", "rowkind.field",
        # And these say where rows are looked for, or what the table is.
        "bucket", "branch", "deletion-vectors.enabled", "partition.default-name", "partition.legacy-name",
        "type",
    }
)  # fmt: skip
"""Options that hold for all writers of a table, so that none may override them."""

_DEFAULTS: Final = {
    "branch": "main",
    "merge-engine": "deduplicate",
    "type": "table",
    **dict.fromkeys(("data-evolution.enabled", "deletion-vectors.enabled", "row-tracking.enabled"), "false"),
    **{option.key: option.default for option in table_options() if option.default is not None},
}

_PARSED: Final[Mapping[str, Callable[[str], Any]]] = {
    "file.format": one_of("parquet", "orc", "avro"),
    "merge-engine": one_of("deduplicate", "partial-update", "aggregation", "first-row"),
    "changelog-producer": one_of("none", "input", "full-compaction", "lookup"),
    "tag.automatic-creation": one_of("none", "process-time", "watermark", "batch"),
    "snapshot.expire.execution-mode": one_of("sync", "async"),
    "sequence.field.sort-order": one_of("ascending", "descending"),
    **dict.fromkeys(
        (
            "row-tracking.enabled", "data-evolution.enabled", "deletion-vectors.enabled",
            "data-file.thin-mode", "ignore-delete", "ignore-update-before", "dynamic-partition-overwrite",
            "overwrite-upgrade",
            "index-file-in-data-file-dir", "deletion-vectors.bitmap64", "deletion-vectors.modifiable",
            "partial-update.remove-record-on-delete", "aggregation.remove-record-on-delete",
            "commit.force-compact", "commit.discard-duplicate-files", "snapshot.clean-empty-directories",
            "metastore.partitioned-table", "force-lookup", "lookup-wait", "async-file-write",
        ),
        boolean,
    ),
    **dict.fromkeys(
        (
            "snapshot.num-retained.min", "snapshot.num-retained.max", "snapshot.expire.limit", "num-levels",
            "changelog.num-retained.min", "changelog.num-retained.max", "full-compaction.delta-commits",
            "num-sorted-run.compaction-trigger", "num-sorted-run.stop-trigger", "compaction.min.file-num",
            "write.batch-size", "postpone.default-bucket-num", "dynamic-bucket.initial-buckets",
        ),
        positive,
    ),
    **dict.fromkeys(("dynamic-bucket.target-row-num", "dynamic-bucket.max-buckets"), integer),
    **dict.fromkeys(
        ("write-buffer-size", "file-index.in-manifest-threshold", "deletion-vector.index-file.target-size"),
        size,
    ),
    **dict.fromkeys(
        (
            "changelog.time-retained", "consumer.expiration-time", "partition.expiration-time",
            "partition.expiration-check-interval", "record-level.expire-time",
        ),
        duration,
    ),
}  # fmt: skip
_NO_LIMIT: Final = str(2**31 - 1)


def check_possible(schema: TableSchema, options: Options) -> None:
    """Raises `InvalidOption` for options that Paimon could not work with: of no known value, naming columns
    that are not there, or contradicting the keys or each other."""
    for key, parse in _PARSED.items():
        if key in options:
            _parse(key, options[key], parse)
    _check_stats_modes(options)
    _check_columns(schema, options)
    _check_retention(options, "snapshot", "10", _NO_LIMIT)
    _check_kind(schema, options)


def _parse(key: str, text: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(text)
    except ValueError as why:
        raise InvalidOption(f"Option {key!r} is {text!r}: {why}.", option=key, value=text) from None


def _check_stats_modes(options: Options) -> None:
    for key, text in options.items():
        if key in ("metadata.stats-mode", "changelog-file.stats-mode") or key.endswith(".stats-mode"):
            try:
                parse_mode(text)
            except InvalidOption:
                raise InvalidOption(
                    f"Option {key!r} is {text!r}: that is no statistics mode. Use none, counts, full or "
                    "truncate(n) with n of 1 or more.",
                    option=key,
                    value=text,
                ) from None


def _check_columns(schema: TableSchema, options: Options) -> None:
    """Options that name columns name some that are there. Keys have lost their case, values have not."""
    lowered = {name.lower() for name in schema.field_names}
    for key, text in options.items():
        parts = key.split(".")
        if parts[0] == "fields" and len(parts) > 2:
            _require(key, parts[1].split(","), lowered)
        elif parts[0] == "file-index" and parts[-1] == "columns" and len(parts) == 3:
            named = (name.strip().partition("[")[0] for name in text.split(","))
            _require(key, named, schema.field_names)
        elif key in ("sequence.field", "rowkind.field", "record-level.time-field"):
            _require(key, (name.strip() for name in text.split(",")), schema.field_names)


def _require(key: str, named: Iterable[str], known: Iterable[str]) -> None:
    missing = [name for name in named if name not in known]
    if missing:
        raise InvalidOption(
            f"Option {key!r} names {', '.join(map(repr, missing))}, which is no column. Correct the name, or "
            "leave the option out.",
            option=key,
            columns=tuple(missing),
        )


def _check_retention(options: Options, what: str, least: str, most: str) -> None:
    low, high = f"{what}.num-retained.min", f"{what}.num-retained.max"
    kept = _parse(low, options.get(low, least), positive), _parse(high, options.get(high, most), positive)
    if kept[0] > kept[1]:
        raise InvalidOption(
            f"Option {low!r} is {kept[0]}, more than {high!r}, which is {kept[1]}. Lower one or raise the "
            "other.",
            option=low,
            value=kept[0],
        )


def _check_kind(schema: TableSchema, options: Options) -> None:
    """Rules between options and keys."""

    def is_on(key: str) -> bool:
        return options.get(key, "false").strip().lower() == "true"

    producer = options.get("changelog-producer", "none").strip().lower()
    engine = options.get("merge-engine", "deduplicate").strip().lower()
    keyed, first_row = bool(schema.primary_keys), engine == "first-row"
    for key, wrong, why in (
        ("changelog-producer", producer != "none" and not keyed, "needs a primary key"),
        (
            "changelog-producer",
            first_row and producer not in ("none", "lookup"),
            "does not go with the merge engine first-row",
        ),
        ("sequence.field", first_row and "sequence.field" in options, "does not go with first-row"),
        (
            "partition.expiration-time",
            "partition.expiration-time" in options and not schema.partition_keys,
            "needs a partition key",
        ),
        (
            "data-evolution.enabled",
            is_on("data-evolution.enabled") and not is_on("row-tracking.enabled"),
            "needs row-tracking.enabled",
        ),
        ("row-tracking.enabled", is_on("row-tracking.enabled") and keyed, "does not go with a primary key"),
    ):
        if wrong:
            raise InvalidOption(
                f"Option {key!r} is {options[key]!r}, which {why}. Leave it out, or change the other.",
                option=key,
                value=options[key],
            )


def check_overrides(table: str, stored: Mapping[str, str], overrides: Mapping[str, str]) -> None:
    """Raises `InvalidOption` where one writer would change an option that holds for all of them: its rows
    would be where no other writer or reader looks for them. `table` is for the message."""
    own, given = Options(stored), Options(overrides)
    for key in sorted(IMMUTABLE & set(given)):
        text, in_force = given[key], own.get(key, _DEFAULTS.get(key))
        if in_force is None or text.strip() != in_force.strip():
            raise InvalidOption(
                f"Option {key!r} is {text!r}, but {table} has {in_force or 'none'!r}, and one writer cannot "
                "change that. Leave the option out.",
                option=key,
                value=text,
                table=table,
            )
