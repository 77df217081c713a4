"""Plans a batch read. It reads a snapshot, or the changes between two snapshots, tags or times
(streaming-reads.md §7). The modes of reading changes are Paimon's:

- delta: the rows in the files that each APPEND snapshot added.
- changelog: the rows in the changelog of each snapshot.
- diff: the rows of the newer snapshot that the older one does not have.
"""

import datetime as dt
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any, Final, NamedTuple

from paimon_stream import options as opt
from paimon_stream.errors import (
    IncompatibleSchema,
    InvalidOption,
    NotFound,
    UnsupportedFeature,
)
from paimon_stream.format.entries import FileKind, ManifestEntry
from paimon_stream.format.names import POSTPONE_BUCKET
from paimon_stream.format.snapshot_json import CommitKind, Snapshot
from paimon_stream.format.types import DataField
from paimon_stream.merge.spec import ROW_KIND, ROW_KIND_COLUMN
from paimon_stream.options.of_others import CHOOSING_ROWS
from paimon_stream.options.option import Option, one_of, pair, switch, text
from paimon_stream.read.scan import (
    NEWEST,
    PointInTime,
    Scan,
    check_open_to_readers,
    columns_of,
    find_snapshot,
    known_of,
    lowest_visible_level,
    plan_scan,
    scan_without_files,
    specs_of,
    with_files,
)
from paimon_stream.read.scan_mode import FOLLOWED_MODES, MODE, mode_in, names_start
from paimon_stream.runtime import system
from paimon_stream.table import layout
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_spec import PartitionFilter, PartitionSpec
from paimon_stream.table.period_names import PeriodNames
from paimon_stream.table.references import read_tag
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)

BETWEEN: Final = Option(
    "incremental-between", pair, None, "Two snapshot ids or tags: what changed after the first."
)
BETWEEN_TIMES: Final = Option(
    "incremental-between-timestamp", pair, None, "Two times: what changed after the first."
)
TO_AUTO_TAG: Final = Option(
    "incremental-to-auto-tag", text, None, "An automatic tag: what changed since the one before."
)
BETWEEN_MODE: Final = Option(
    "incremental-between-scan-mode",
    one_of("auto", "delta", "changelog", "diff"),
    "auto",
    "What of the changes is read.",
)
TAG_TO_SNAPSHOT: Final = switch(
    "incremental-between-tag-to-snapshot", "Two tags mean the ids of their snapshots."
)
READ_CHANGELOG: Final = switch(
    "read.changelog", "All changes are read, and their kinds in the column rowkind."
)
RANGES: Final = (BETWEEN, BETWEEN_TIMES, TO_AUTO_TAG)
"""The options that say between what the changes are. A read may have one of them."""
CHANGE_OPTIONS: Final = (*RANGES, BETWEEN_MODE, TAG_TO_SNAPSHOT, READ_CHANGELOG)
"""The options by which a batch read reads changes."""

POINTS: Final = {
    "scan.snapshot-id": "snapshot_id",
    "scan.tag-name": "tag",
    "scan.timestamp": "timestamp",
    "scan.timestamp-millis": "timestamp",
}
"""The options of Paimon that name a snapshot, with our arguments for them."""

_NEEDS_NO_WARNING: Final = {
    "consumer-id",
    "scan.bounded",
    "scan.bounded.watermark",
    "stream-scan-mode",
    *POINTS,
    *(option.key for option in CHANGE_OPTIONS),
}
"""Options in a table's schema of which a batch read needs no warning: Java's does not follow them
either, or ours does.
"""


class _Span(NamedTuple):
    """The changes that are read.

    Attributes:
        mode: `delta`, `changelog` or `diff`.
        start: the snapshot before the changes. None if the changes begin with the first snapshot,
            or if the mode does not need it.
        snapshots: with `delta` and `changelog`, the snapshots whose changes are read; with `diff`,
            only the newer snapshot.
    """

    mode: str
    start: Snapshot | None
    snapshots: tuple[Snapshot, ...]


def plan_read(
    table: Table,
    *,
    at: PointInTime = NEWEST,
    asked: Mapping[str, str] | None = None,
    columns: Sequence[str] | None = None,
    filter: object = None,
    partition: Mapping[str, Any] | str | None = None,
) -> Scan:
    """Plans a batch read for a user. It reads the snapshot or the changes that the caller names. If
    the caller names none, it reads what the table's own options name, as in Java. If they name none
    either, it reads the newest snapshot.

    Args:
        table: the table, with the options of the call.
        at: which snapshot the caller names.
        asked: the options of the call.
        columns: as in `plan_scan`. With `read.changelog`, `rowkind` may be one of them. In a read
            of a snapshot, it is `+I` for every row.
        filter: as in `plan_scan`.
        partition: as in `plan_scan`.

    Raises:
        InvalidOption: the options contradict each other, or the table does not have the changes.
        NotFound: a snapshot or a tag does not exist.
        PaimonStreamError: what `plan_scan` raises.
    """
    options_of_call = opt.lowered(asked or {})
    ranges = [option.key for option in RANGES if option.key in options_of_call]
    named = [*at.said_by, *ranges]
    if len(ranges) + bool(at.said_by) > 1:
        raise InvalidOption(
            f"{', '.join(named)} are given together. Each says what is read: give one of them.",
            option=named[-1],
        ).of_table(table.location)
    if not named and not names_start(options_of_call):
        _warn_of_schema(table)
        at, ranges = _named_by_schema(table)
    if ranges:
        span = _span_of(table, ranges[0])
        return _plan_changes(table, span, columns, filter, partition)
    _check_no_part_of_a_range(table, options_of_call)
    if not table.options.value(READ_CHANGELOG) or not _has_kinds(columns):
        return plan_scan(table, at=at, columns=columns, filter=filter, partition=partition)
    others = [name for name in columns or () if name != ROW_KIND]
    scan = plan_scan(table, at=at, columns=others or None, filter=filter, partition=partition)
    return replace(scan, columns=_with_kinds(table, columns or (), scan.columns if others else ()))


def _named_by_schema(table: Table) -> tuple[PointInTime, list[str]]:
    """What a read covers according to the options in the table's schema: a snapshot, or the key of
    a range of changes. Raises `InvalidOption`.
    """
    stored = opt.lowered(table.schema.options)
    points = [key for key in POINTS if key in stored]
    ranges = [option.key for option in RANGES if table.options.is_set(option)]
    if len(points) + len(ranges) > 1:
        raise InvalidOption(
            f"has options in its schema that contradict each other: {', '.join([*points, *ranges])}. "
            "Unset all but one of them, or name in the read what it reads.",
            option=[*points, *ranges][-1],
        ).of_table(table.location, subject=True)
    if not points:
        return NEWEST, ranges
    (key,) = points
    return _point_of(table, key, stored[key].strip()), []


def _point_of(table: Table, key: str, text: str) -> PointInTime:
    """The snapshot that an option in the table's schema names. Raises `InvalidOption`."""
    value: Any = int(text) if text.isdecimal() else text
    match POINTS[key]:
        case "tag":
            return PointInTime(tag=text)
        case "snapshot_id":
            snapshot_id = opt.Arguments(table.location).whole(key, value)
            return PointInTime(snapshot_id=snapshot_id)
        case _:
            now_millis = system().clock.now_millis()
            millis = opt.moment_millis(value, key, table.location, now_millis)
            return PointInTime(timestamp=millis)


def _warn_of_schema(table: Table) -> None:
    """Warns of options in the table's schema that make Java's batch reads return other rows."""
    unfollowed = [
        f"{key} = {value}"
        for key, value in sorted(opt.lowered(table.schema.options).items())
        if key in CHOOSING_ROWS
        and key not in _NEEDS_NO_WARNING
        and value.strip().lower() != CHOOSING_ROWS[key]
        and not (key == MODE.key and mode_in(value) in FOLLOWED_MODES)
    ]
    if unfollowed:
        _LOG.warning(
            "%s has options in its schema by which other engines may read other rows: %s. They are not followed here.",
            table.location,
            ", ".join(unfollowed),
        )


def _check_no_part_of_a_range(table: Table, asked: Mapping[str, str]) -> None:
    """Raises `InvalidOption` if a call sets an option that has an effect only together with a range
    of changes.
    """
    for option in (BETWEEN_MODE, TAG_TO_SNAPSHOT, READ_CHANGELOG):
        if option.key in asked and table.options.differs(option):
            raise InvalidOption(
                f"{option.key} = {asked[option.key]!r} has no effect without "
                f"{BETWEEN.key}, {BETWEEN_TIMES.key} or {TO_AUTO_TAG.key}. Give one of them, or "
                "leave it out.",
                option=option.key,
            ).of_table(table.location)


# -- what is read ---------------------------------------------------------------------------------


def _span_of(table: Table, key: str) -> _Span | None:
    """The changes in the range that the option with this key sets; None if the range is empty."""
    mode = table.options.value(BETWEEN_MODE)
    if key == TO_AUTO_TAG.key:
        _check_is_difference(table, mode, key)
        return _to_automatic_tag(table, table.options.value(TO_AUTO_TAG))
    if key == BETWEEN_TIMES.key:
        return _between_times(table, *table.options.value(BETWEEN_TIMES))
    first, last = table.options.value(BETWEEN)
    tags = [read_tag(table.storage, layout.tag_path(name)) for name in (first, last)]
    older, newer = tags
    if older is not None and newer is not None:
        if table.options.value(TAG_TO_SNAPSHOT):
            return _between_ids(table, older.id, newer.id)
        _check_is_difference(table, mode, key)
        _check_order(table, f"tag {first} of snapshot", older.id, newer.id)
        return _difference(older, newer)
    if first.isdecimal() and last.isdecimal():
        return _between_ids(table, int(first), int(last))
    for name, tag in zip((first, last), tags, strict=True):
        if tag is None and not name.isdecimal():
            find_snapshot(table, PointInTime(tag=name))  # raises NotFound, which names the cure
    raise InvalidOption(
        f"{BETWEEN.key} = '{first},{last}' names a tag and a snapshot. Give two tags, or two "
        "snapshot ids.",
        option=BETWEEN.key,
    ).of_table(table.location)


def _check_is_difference(table: Table, mode: str, key: str) -> None:
    """Raises `InvalidOption` for a mode that cannot be used with a range of tags."""
    if mode in ("delta", "changelog"):
        raise InvalidOption(
            f"{key} reads the difference between two tags, and {BETWEEN_MODE.key} is {mode}. Leave "
            f"that out, or give snapshot ids, or {TAG_TO_SNAPSHOT.key} = true.",
            option=BETWEEN_MODE.key,
        ).of_table(table.location)


def _check_order(table: Table, what: str, first: int, last: int) -> None:
    if first > last:
        raise InvalidOption(
            f"the changes begin after {what} {first} and end with {last}, which is before it. "
            "Exchange the two.",
            option=BETWEEN.key,
        ).of_table(table.location)


def _difference(older: Snapshot, newer: Snapshot) -> _Span | None:
    return None if older.id == newer.id else _Span("diff", older, (newer,))


def _between_ids(table: Table, first: int, last: int) -> _Span | None:
    """The changes after the snapshot `first`, up to the snapshot `last`."""
    _check_order(table, "snapshot", first, last)
    store = SnapshotStore(table.storage)
    if first == last or store.latest() is None:
        return None
    mode = _mode_of(table)
    newer = find_snapshot(table, PointInTime(snapshot_id=last))
    assert newer is not None
    if mode == "diff":
        older = find_snapshot(table, PointInTime(snapshot_id=first))
        assert older is not None
        return _difference(older, newer)
    window = store.window(first, newer)
    if not window.complete:
        raise NotFound(
            f"has lost snapshots between {first} and {last}: they have expired. The oldest one is "
            f"{min(store.ids(), default=0)}. Begin with a later one, or keep snapshots longer "
            f"(snapshot.time-retained). Between tags, {BETWEEN.key} reads the difference, because "
            "a tag keeps its snapshot.",
            snapshot=first + 1,
        ).of_table(table.location, subject=True)
    return _Span(mode, None, window.snapshots)


def _between_times(table: Table, first: str, last: str) -> _Span | None:
    """The changes after the newest snapshot at one time, up to the newest snapshot at another
    time.
    """
    now_millis = system().clock.now_millis()
    start, end = (
        int(time)
        if time.isdecimal()
        else opt.moment_millis(time, BETWEEN_TIMES.key, table.location, now_millis)
        for time in (first, last)
    )
    if start > end:
        raise InvalidOption(
            f"{BETWEEN_TIMES.key} = '{first},{last}' begins after it ends. Exchange the two.",
            option=BETWEEN_TIMES.key,
        ).of_table(table.location)
    ids = SnapshotStore(table.storage).ids()
    if start == end or not ids:
        return None
    first_id = 0
    try:
        older = find_snapshot(table, PointInTime(timestamp=start))
        assert older is not None
        first_id = older.id
    except NotFound:
        # If the table still has its first snapshot, nothing is missing before it. A difference,
        # however, needs a snapshot to start from.
        if ids[0] > 1 or _mode_of(table) == "diff":
            raise
        if SnapshotStore(table.storage).get(ids[0]).time_millis > end:
            return None
    newer = find_snapshot(table, PointInTime(timestamp=end))
    assert newer is not None
    return _between_ids(table, first_id, newer.id)


def _to_automatic_tag(table: Table, name: str) -> _Span | None:
    """The difference between an automatic tag and the one before it."""
    periods = PeriodNames.of(table.options)
    end = periods.time_of(name)
    if end is None:
        raise InvalidOption(
            f"{TO_AUTO_TAG.key} = {name!r} is no name of an automatic tag of the table: those have "
            f"the form {periods.format!r} (tag.creation-period, tag.period-formatter).",
            option=TO_AUTO_TAG.key,
        ).of_table(table.location)
    prefix = layout.tag_path("").rpartition("/")[2]
    names = [
        file_name[len(prefix) :]
        for file_name in table.storage.list_names(layout.TAG_FOLDER, prefix)
    ]
    before = max(_earlier(periods, names, end), default=None)
    if name not in names or before is None:
        return None
    older, newer = (find_snapshot(table, PointInTime(tag=tag)) for tag in (before[1], name))
    assert older is not None and newer is not None
    return _difference(older, newer)


def _earlier(
    periods: PeriodNames, names: Iterable[str], end: dt.datetime
) -> list[tuple[dt.datetime, str]]:
    """Those automatic tags among these names whose periods begin before `end`."""
    times = [(periods.time_of(name), name) for name in names]
    return [(time, name) for time, name in times if time is not None and time < end]


def _mode_of(table: Table) -> str:
    """The mode in which changes are read. `auto` is replaced by one of the other modes
    (streaming-reads.md §7).
    """
    mode = table.options.value(BETWEEN_MODE)
    if mode != "auto":
        return mode
    has_changelog = table.options.value(opt.CHANGELOG_PRODUCER) != "none"
    return "changelog" if has_changelog and table.schema.primary_keys else "delta"


# -- its files ------------------------------------------------------------------------------------


def _plan_changes(
    table: Table,
    span: _Span | None,
    columns: Sequence[str] | None,
    filter: object,
    partition: Mapping[str, Any] | str | None,
) -> Scan:
    """The scan of these changes. The columns are those of the table's newest schema, as in Java.
    All arguments except the second are those of `plan_scan`.
    """
    check_open_to_readers(table)
    if table.options.value(opt.DATA_EVOLUTION):
        raise UnsupportedFeature(
            "cannot be read by what has changed: its files may lack columns "
            "(data-evolution.enabled). Read a snapshot.",
            option=opt.DATA_EVOLUTION.key,
        ).of_table(table.location, subject=True)
    schema = table.schema
    wanted = _columns(table, columns)
    specs = None if partition is None else specs_of(table, schema, partition)
    newest = None if span is None else span.snapshots[-1]
    scan = scan_without_files(table, schema, wanted, newest, filter)
    if span is None:
        return scan
    if span.mode == "diff":
        return _with_difference(scan, span, specs)
    return _with_changes(scan, span, specs)


def _columns(table: Table, names: Sequence[str] | None) -> tuple[DataField, ...]:
    """The columns with these names, including the row kind column if it is wanted. Raises
    `IncompatibleSchema`.
    """
    schema = table.schema
    if not table.options.value(READ_CHANGELOG):
        return columns_of(table, schema, names)
    if names is None:
        return (ROW_KIND_COLUMN, *schema.fields)
    if not _has_kinds(names):
        return columns_of(table, schema, names)
    others = [name for name in names if name != ROW_KIND]
    return _with_kinds(table, names, columns_of(table, schema, others) if others else ())


def _has_kinds(names: Sequence[str] | None) -> bool:
    """Whether the row kind column is among the wanted columns."""
    return names is not None and not isinstance(names, str) and ROW_KIND in names


def _with_kinds(
    table: Table, names: Sequence[str], others: Sequence[DataField]
) -> tuple[DataField, ...]:
    """The columns with these names. `others` are all of these columns except the row kind column.
    Raises `IncompatibleSchema` if the row kind column is named twice.
    """
    if list(names).count(ROW_KIND) > 1:
        raise IncompatibleSchema(
            f"Columns are named twice: {', '.join(names)}. Name each once.", table=table.location
        )
    columns = list(others)
    columns.insert(list(names).index(ROW_KIND), ROW_KIND_COLUMN)
    return tuple(columns)


def _with_difference(scan: Scan, span: _Span, specs: Sequence[PartitionSpec] | None) -> Scan:
    """The scan with the files that only the newer snapshot has, and with the files that only the
    older snapshot has.
    """
    assert span.start is not None
    (newer,) = span.snapshots
    _check_same_buckets(scan.table, span.start, newer)
    after = with_files(scan, newer, specs)
    before = with_files(replace(scan, snapshot=span.start), span.start, specs)
    # Two files are the same only if all of their metadata is equal, including the level, as in
    # Java.
    in_both = set(map(_identity, after.files)) & set(map(_identity, before.files))
    after = _without(after, in_both)
    if scan.merge is None:
        return after
    return replace(after, before=_without(before, in_both))


def _identity(entry: ManifestEntry) -> tuple[bytes, int, int, int, str]:
    file = entry.file
    return entry.partition, entry.bucket, entry.total_buckets, file.level, file.file_name


def _without(scan: Scan, files: set[tuple[bytes, int, int, int, str]]) -> Scan:
    kept = tuple(entry for entry in scan.files if _identity(entry) not in files)
    return replace(scan, files=kept)


def _check_same_buckets(table: Table, older: Snapshot, newer: Snapshot) -> None:
    """Raises `UnsupportedFeature` if the number of buckets was changed between two snapshots. Java
    refuses such a read, too.
    """
    store = SchemaStore(table.storage)
    counts = [
        opt.Options(store.get(snapshot.schema_id).options).value(opt.BUCKET)
        for snapshot in (older, newer)
    ]
    if counts[0] != counts[1]:
        raise UnsupportedFeature(
            f"had {counts[0]} as its number of buckets in snapshot {older.id}, and {counts[1]} in "
            f"snapshot {newer.id}. Their difference is not read. Begin with a later snapshot.",
            option=opt.BUCKET.key,
        ).of_table(table.location, subject=True)


def _with_changes(scan: Scan, span: _Span, specs: Sequence[PartitionSpec] | None) -> Scan:
    """The scan with the files that hold the changes of the snapshots."""
    table = scan.table
    is_changelog = span.mode == "changelog"
    _check_has_changes(scan, span)
    kinds = {CommitKind.APPEND}
    if is_changelog:
        kinds |= {CommitKind.COMPACT, CommitKind.ANALYZE}
    files = files_of_changes(
        table,
        [snapshot for snapshot in span.snapshots if snapshot.commit_kind in kinds],
        PartitionFilter(table.partition_types, specs=specs),
        from_changelog=is_changelog,
    )
    if scan.merge is not None:
        seen = [entry for entry in files if entry.bucket >= 0]
        if not is_changelog and len(seen) < len(files):
            raise _some_wait(table)
        files = seen
    if scan.where is not None:
        # Each row of these files is a change. Rows of other files do not alter it.
        known = known_of(scan, files, scan.where, values=True)
        files = list(compress(files, scan.where.possible(known)))
    return replace(scan, files=tuple(files), are_changes=True)


def _some_wait(table: Table) -> InvalidOption:
    """The error for changes whose rows partly wait in bucket -2. Readers see these rows only after
    the compaction that moves them, and `delta` skips compactions.
    """
    has_changelog = table.options.value(opt.CHANGELOG_PRODUCER) != "none"
    return _wrong_mode(
        table,
        "has rows among these changes that wait for a compaction in bucket -2, so "
        f"{BETWEEN_MODE.key} = delta leaves them out. {_set_to_diff(has_changelog=has_changelog)}",
    )


def _set_to_diff(*, has_changelog: bool) -> str:
    """Which other modes show rows that a compaction moves."""
    if has_changelog:
        return "Set it to diff, or to changelog."
    return "Set it to diff."


def _wrong_mode(table: Table, message: str) -> InvalidOption:
    """The error for a mode in which these changes cannot be read. The message goes on after the
    table.
    """
    return InvalidOption(message, option=BETWEEN_MODE.key).of_table(table.location, subject=True)


def files_of_changes(
    table: Table,
    snapshots: Iterable[Snapshot],
    partitions: PartitionFilter,
    *,
    from_changelog: bool,
) -> list[ManifestEntry]:
    """The files that hold the changes of these snapshots, in the order of the snapshots.

    Args:
        table: the table.
        snapshots: the snapshots.
        partitions: the partitions that are read.
        from_changelog: whether the changes are read from changelogs; otherwise from the files that
            each snapshot added.

    Raises:
        CorruptMetadata, StorageError: manifests cannot be read.
    """
    manifests = ManifestStore(table.storage)
    metas_of = manifests.changelog if from_changelog else manifests.delta
    return [
        entry
        for snapshot in snapshots
        for entry in manifests.entries_of(metas_of(snapshot), partitions)
        if entry.kind is FileKind.ADD
    ]


def _check_has_changes(scan: Scan, span: _Span) -> None:
    """Raises `InvalidOption` if the table's files do not show its changes in this mode. In such a
    case, Java reads no row.
    """
    table = scan.table
    producer = table.options.value(opt.CHANGELOG_PRODUCER)
    if span.mode == "changelog":
        has_changelog = any(snapshot.changelog_manifest_list for snapshot in span.snapshots)
        if (producer == "none" or scan.merge is None) and not has_changelog:
            raise _wrong_mode(
                table,
                f"has no changelog, so {BETWEEN_MODE.key} = changelog reads nothing. Leave it out, "
                "or set it to delta or diff.",
            )
        if producer == "input" and scan.merge is not None:
            _check_each_has_a_changelog(table, span.snapshots)
    is_hidden = scan.merge is not None and lowest_visible_level(table, scan.merge) > 0
    if is_hidden and (span.mode == "delta" or producer == "input"):
        raise _wrong_mode(
            table,
            "shows new rows only after a compaction, because of its merge engine or its deletion "
            f"vectors, so {BETWEEN_MODE.key} = {span.mode} reads nothing. "
            f"{_set_to_diff(has_changelog=producer == 'lookup')}",
        )


def _check_each_has_a_changelog(table: Table, snapshots: Iterable[Snapshot]) -> None:
    """Raises `InvalidOption` if one of these snapshots added rows without a changelog, although
    `changelog-producer` is `input`. Java skips such rows.
    """
    if table.options.value(opt.BUCKET) == POSTPONE_BUCKET:
        return  # the changelog comes by the compaction that moves the rows
    for snapshot in snapshots:
        has_rows = snapshot.commit_kind is CommitKind.APPEND and snapshot.delta_record_count > 0
        if has_rows and not snapshot.changelog_manifest_list:
            raise InvalidOption(
                f"snapshot {snapshot.id} has rows and no changelog: it is older than "
                f"{opt.CHANGELOG_PRODUCER.key} = input, or its writer writes none. Begin after it, "
                f"or set {BETWEEN_MODE.key} to delta or diff.",
                option=BETWEEN_MODE.key,
            ).of_table(table.location)
