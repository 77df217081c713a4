"""Expires partitions: drops the partitions that are older than `partition.expiration-time`
(table-kinds.md §9).
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from paimon_stream.commit.metastore_partitions import drop_from_metastore
from paimon_stream.commit.overwrite import OverwriteSource
from paimon_stream.commit.plan import Base, Changes
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import InvalidOption
from paimon_stream.format.entries import FileKind, ManifestEntry
from paimon_stream.format.partition_path import value_text
from paimon_stream.format.types import TypeRoot
from paimon_stream.maintenance.pins import refuse_while_pinned
from paimon_stream.options import (
    OF_PARTITIONS,
    PARTITION_AT_END,
    PARTITION_INTERVAL,
    STRICT_MODE,
    Options,
)
from paimon_stream.reports import Report
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.read_ahead import in_groups
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_spec import PartitionFilter
from paimon_stream.table.partition_value import partition_by_column
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)
_TIME, _STRATEGY, _MOST, _BATCH, _FORM, _PATTERN = OF_PARTITIONS
_NEVER: Final = 2**63
_DEFAULT: Final = re.compile(
    "(?P<u>[0-9]{1,10})-(?P<M>[0-9]{1,2})-(?P<d>[0-9]{1,2})"
    r"(?: (?P<H>[0-9]{1,2}):(?P<m>[0-9]{1,2}):(?P<s>[0-9]{1,2})(?:\.(?P<S>[0-9]{1,9}))?)?"
)
_BOUNDS: Final = {
    "y": (1, 10**9),
    "M": (1, 12),
    "d": (1, 31),
    "H": (0, 24),
    "m": (0, 59),
    "s": (0, 59),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionExpiryReport(Report):
    """What has expired, or would expire in a dry run.

    Attributes:
        location: where the table is.
        partitions: the values of each dropped partition, by column.
        files: the number of data files in these partitions.
        rows: the number of rows in these files.
        snapshots: the ids of the snapshots that dropped the partitions.
        dry_run: whether nothing was dropped.
    """

    location: str
    partitions: tuple[Mapping[str, Any], ...] = field(hash=False)
    files: int
    rows: int
    snapshots: tuple[int, ...]
    dry_run: bool


def is_time(
    options: Options, runtime: Runtime, last: int | None, *, batch: bool
) -> tuple[bool, int | None]:
    """Whether partitions expire after this commit, and when they last expired.

    Args:
        options: the options of the table.
        runtime: the clock.
        last: when partitions last expired, in epoch milliseconds; None if they have not expired in
            this process. In place of None, a random time within the last interval is assumed, so
            that several processes do not expire partitions at the same time.
        batch: whether the commit is that of a batch write.
    """
    if not options.is_set(_TIME) or options.is_set(STRICT_MODE):
        return False, last
    now = runtime.clock.now_millis()
    interval = options.value(PARTITION_INTERVAL)
    if last is None:
        last = now - runtime.rng.below(interval or 1)
    if interval == 0 or now > last + interval:
        return True, last
    return batch and options.value(PARTITION_AT_END), last


def expire_partitions(
    table: Table, *, dry_run: bool = False, runtime: Runtime | None = None
) -> PartitionExpiryReport:
    """Expires the old partitions of a table. Raises the errors of
    `PaimonTable.expire_partitions`.
    """
    options = table.options
    commit = TableCommit(table, "", runtime=runtime)
    if not (table.partition_types and options.is_set(_TIME)):
        raise InvalidOption(
            f"{table.location} has no partition columns, or no {_TIME.key!r} such as '7 d'. "
            "Nothing was changed.",
            option=_TIME.key,
            table=table.location,
        )
    if not dry_run:
        refuse_while_pinned(table.storage, "no partition expired")
    manifests = ManifestStore(table.storage)
    latest = SnapshotStore(table.storage, runtime).latest()
    base = Base(snapshot=None, metas=())
    if latest is not None:
        base = Base(snapshot=latest, metas=manifests.base_and_delta(latest))
    cutoff = (runtime or system()).clock.local_millis() - options.value(_TIME)
    old = _old_partitions(table, _newest_files(table, manifests, base), cutoff)
    size = 0
    if options.is_set(_BATCH):
        size = options.value(_BATCH)
    if size <= 0:
        size = len(old.rows) + 1  # all in one snapshot
    gone: list[ManifestEntry] = []
    snapshots: list[int] = []
    for rows in in_groups(old.rows, size):
        cleared = PartitionFilter(table.partition_types, rows=rows)
        source = OverwriteSource(table, manifests, cleared, Changes(), old.spared)
        if dry_run:
            source.at(base)
        else:
            snapshot_id = commit.clear(source).snapshot_id
            if snapshot_id is not None:
                snapshots.append(snapshot_id)
        gone += source.gone
    dropped = {entry.partition for entry in gone}
    if dropped and not dry_run:
        drop_from_metastore(table, dropped)
    return PartitionExpiryReport(
        location=table.location,
        partitions=tuple(
            partition_by_column(table.layout, row) for row in old.rows if row in dropped
        ),
        files=len(gone),
        rows=sum(entry.file.row_count for entry in gone),
        snapshots=tuple(snapshots),
        dry_run=dry_run,
    )


class _OldPartitions(NamedTuple):
    """The partitions that are old enough to expire.

    Attributes:
        rows: the serialized values of these partitions, in Java's order.
        spared: a time in local milliseconds. Partitions with a file created at this time or later
            stay as they are.
    """

    rows: list[bytes]
    spared: int


def _old_partitions(table: Table, newest: Mapping[bytes, int], cutoff: int) -> _OldPartitions:
    """The partitions that are older than the time `cutoff`. There are at most as many as the
    options allow. `newest` has the newest creation time of each partition's files, in the
    milliseconds of the local clock.
    """
    if table.options.value(_STRATEGY) == "update-time":
        old = [row for row, millis in newest.items() if millis < cutoff]
        spared = cutoff
    else:
        old = _before(table, newest, cutoff)
        spared = _NEVER
    old.sort(key=partial(_java_order, table))
    return _OldPartitions(rows=old[: table.options.value(_MOST)], spared=spared)


def _java_order(table: Table, row: bytes) -> bytes:
    """The key by which a partition is sorted. Java sorts texts by their UTF-16 code units."""
    names = [_name_of(table, value) for value in _texts(table, row)]
    return ",".join(names).encode("utf-16-be", "surrogatepass")


def _name_of(table: Table, value: str | None) -> str:
    """The text of a partition's value in the name of its folder; for NULL, the default name."""
    if value is None:
        return table.layout.default_name
    return value


def _newest_files(table: Table, manifests: ManifestStore, base: Base) -> dict[bytes, int]:
    """The partitions with files, each with the newest creation time of its files in the
    manifests.
    """
    files = Counter[bytes]()
    newest = dict[bytes, int]()
    for meta in base.metas:
        for entry in manifests.read(meta):
            if entry.bucket >= table.least_bucket:
                change = 1 if entry.kind is FileKind.ADD else -1
                files[entry.partition] += change
            millis = entry.file.creation_time or _NEVER
            newest[entry.partition] = max(newest.get(entry.partition, 0), millis)
    return {row: millis for row, millis in newest.items() if files[row] > 0}


def _before(table: Table, rows: Iterable[bytes], millis: int) -> list[bytes]:
    """The partitions whose values name a time before `millis`. NULL names no time. Warns of other
    values that name no time.
    """
    options = table.options
    keys = table.schema.partition_keys
    pattern = f"${keys[0]}"
    values_in_pattern = 1
    if options.is_set(_PATTERN):
        pattern = options.value(_PATTERN)
        values_in_pattern = len(keys)
    before = []
    unread = []
    for row in rows:
        texts = _texts(table, row)[:values_in_pattern]
        written = pattern
        for key, value in zip(keys, texts, strict=False):
            written = written.replace(f"${key}", value or "")
        nanos = nanos_of(written, options)
        if None in texts:
            continue
        if nanos is None:
            unread.append(written)
        elif nanos < millis * 1_000_000:
            before.append(row)
    if unread:
        _LOG.warning(
            "%s: %d partitions do not expire: %r is not a time of the form %s. %s",
            table.location,
            len(unread),
            unread[0],
            options.get(_FORM.key, "yyyy-M-d[ H:m:s[.S]]"),
            _how_to_name_times(table),
        )
    return before


def _how_to_name_times(table: Table) -> str:
    """A sentence for users whose partition values name no time. It says what they can do."""
    if any(type_.root is TypeRoot.DATE for type_ in table.partition_types):
        return (
            f"A DATE has no such form: set {_STRATEGY.key} = update-time, which uses the age of "
            "the newest file instead."
        )
    return f"Set {_PATTERN.key} or {_FORM.key} to what names the time."


def nanos_of(written: str, options: Options) -> int | None:
    """The nanoseconds from 1970-01-01T00:00 to the time that the text `written` names in the form
    that the options set. Both times have no zone. None if the text names no time, for example if
    its year has a sign. Raises `InvalidOption`.
    """
    strict = options.is_set(_FORM)
    form = _DEFAULT
    if strict:
        form = options.value(_FORM)
    values = _numbers_in(written, form)
    year = values.get("u", values.get("y", -1))
    if "Y" in values:
        year = 2000 + values["Y"]
    if not (0 <= year < 10**9 and {"M", "d"} <= values.keys()):
        return None
    clock = [name in values for name in "HmsS"]
    # Without a time of day, Java assumes midnight.
    has_time = clock[0] and clock == sorted(clock, reverse=True)
    time_of_day = [0, 0, 0, 0]
    if has_time:
        time_of_day = [values.get(name, 0) for name in "HmsS"]
    hour, minute, second, fraction = time_of_day
    outside = any(not low <= values.get(name, low) <= high for name, (low, high) in _BOUNDS.items())
    if strict and (outside or (hour == 24 and (minute or second or fraction))):
        return None
    months = (year - 1970) * 12 + values["M"] - 1
    first_days = np.array([months, months + 1]).astype("M8[M]").astype("M8[D]").astype(np.int64)
    first, following = map(int, first_days)
    day_of_month = values["d"]
    if strict:
        day_of_month = min(day_of_month, following - first)
    days = first - 1 + day_of_month
    return ((days * 24 + hour) * 3600 + minute * 60 + second) * 1_000_000_000 + fraction


def _numbers_in(written: str, form: re.Pattern[str]) -> dict[str, int]:
    """The numbers in a text, by the letters that name the groups of `form`. A fraction of a second
    is in nanoseconds. The result is empty if the text does not have this form.
    """
    match = form.fullmatch(written)
    if match is None:
        return {}
    numbers: dict[str, int] = {}
    for letter, digits in match.groupdict().items():
        if digits and letter == "S":
            numbers[letter] = int(digits.ljust(9, "0"))
        elif digits:
            numbers[letter] = int(digits)
    return numbers


def _texts(table: Table, row: bytes) -> list[str | None]:
    """The values of a partition, as Java's `toString` writes them."""
    values = zip(table.partition_types, table.layout.partition_values(row), strict=True)
    texts: list[str | None] = []
    for type_, value in values:
        if value is None:
            texts.append(None)
        else:
            texts.append(value_text(type_, value))
    return texts
