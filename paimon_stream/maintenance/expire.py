"""Expires snapshots: finds which of them may be removed, and removes them (semantics.md §8). The
same snapshots expire as in Java, with three exceptions. Each of our streams that has a journal
keeps its last snapshots for a day after it prepared its newest batch (R1.7, R8.3). An expiry behind
a commit keeps the last snapshot of the committer, whatever its age and also without a journal. The
snapshots that consumers still need are kept, too (`table/consumers.py`).
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from paimon_stream import options as opt
from paimon_stream.errors import (
    CorruptMetadata,
    InvalidOption,
    UnknownVersion,
    UnsupportedFeature,
)
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.maintenance.expire_run import Cleaner
from paimon_stream.maintenance.files_of_tags import FilesOfTags
from paimon_stream.maintenance.pins import refuse_while_pinned
from paimon_stream.reports import Progress, Report, silent
from paimon_stream.runtime import Clock, Runtime, system
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import is_served
from paimon_stream.storage.read_ahead import in_groups
from paimon_stream.storage.together import AT_ONCE
from paimon_stream.table.consumers import consumers
from paimon_stream.table.journal import Journal
from paimon_stream.table.layout import user_folder, user_folders
from paimon_stream.table.option_rules import changelog_outlives, of_changelogs
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)
_LOOKS: Final = 5
_GROUP: Final = 250
"""How many snapshots expire together. A group takes seconds. A kill leaves a note for each of its
snapshots.
"""

PROTECTED_MILLIS: Final = 24 * 3600 * 1000
"""How long a stream's last snapshots are kept after its newest batch. Its prepared files are used
for half of that time (`stream/reuse.py`). In the other half they still show a restart what became
of the batch.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireReport(Report):
    """What has expired, or would expire in a dry run.

    Attributes:
        location: where the table is.
        snapshots: the ids of the snapshots that expired, ascending.
        changelogs: the ids of the changelogs that expired, which had outlived their snapshots.
        files: how many files were deleted, by kind.
        left: the number of files that could not be deleted and stay as orphans.
        impossible: how many files to delete have a name, bucket or partition that the table cannot
            have. No such file was deleted, and `verify` lists these names.
        earliest: the id of the oldest remaining snapshot; None in an empty table.
        latest: the id of the newest snapshot.
        dry_run: whether nothing was deleted.
        complete: false if a rollback began before the run ended.
        millis: how long the run took, in milliseconds.
    """

    location: str
    snapshots: tuple[int, ...] = ()
    changelogs: tuple[int, ...] = ()
    files: Mapping[str, int] = field(default_factory=dict, hash=False)
    left: int = 0
    impossible: int = 0
    earliest: int | None = None
    latest: int | None = None
    dry_run: bool = False
    complete: bool = True
    millis: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The limits by which snapshots are kept or expire.

    Attributes:
        least: how many snapshots are kept at least.
        most: how many snapshots are kept at most.
        cutoff_millis: a time in epoch milliseconds. Between these two numbers, snapshots that were
            made at this time or later are kept.
        limit: how many snapshots one run removes at most.
    """

    least: int
    most: int
    cutoff_millis: int
    limit: int

    @classmethod
    def of(
        cls,
        options: opt.Options,
        now_millis: int,
        table: str,
        retain_max: int | None = None,
        retain_min: int | None = None,
        older_than: opt.Moment | None = None,
        max_deletes: int | None = None,
    ) -> "Retention":
        """The limits that the arguments set. For an argument that is None, the table's option
        counts. `now_millis` is the time from which `snapshot.time-retained` counts back. `table` is
        the table's location, for messages. Raises `InvalidOption`.
        """
        least = _limit(retain_min, "retain_min", options, opt.SNAPSHOT_NUM_RETAINED_MIN, table)
        most = _limit(retain_max, "retain_max", options, opt.SNAPSHOT_NUM_RETAINED_MAX, table)
        if retain_max is not None and retain_min is None:
            least = min(least, most)
        if most < least:
            low = opt.SNAPSHOT_NUM_RETAINED_MIN.key
            high = opt.SNAPSHOT_NUM_RETAINED_MAX.key
            raise InvalidOption(
                f"at most {most} snapshots are to be retained, but at least {least}. Nothing was "
                f"deleted. Lower retain_min ({low}) or raise retain_max ({high}).",
                option=low,
                value=least,
            ).of_table(table)
        if older_than is None:
            cutoff = now_millis - options.value(opt.SNAPSHOT_TIME_RETAINED)
        else:
            cutoff = opt.moment_millis(older_than, "older_than", table, now_millis)
        limit = _limit(max_deletes, "max_deletes", options, opt.SNAPSHOT_EXPIRE_LIMIT, table)
        return cls(least=least, most=most, cutoff_millis=cutoff, limit=limit)


def _limit(
    value: int | None, name: str, options: opt.Options, option: opt.Option[int], table: str
) -> int:
    """The value of the argument `name`. If it is None, the value of the option."""
    if value is None:
        return options.value(option)
    return opt.Arguments(table).whole(name, value, least=1)


def expire_snapshots(
    table: Table,
    retain_max: int | None = None,
    retain_min: int | None = None,
    older_than: opt.Moment | None = None,
    max_deletes: int | None = None,
    *,
    dry_run: bool = False,
    protect_streams: bool = True,
    last_of_stream: Snapshot | None = None,
    of_tags: FilesOfTags | None = None,
    runtime: Runtime | None = None,
    progress: Progress = silent,
) -> ExpireReport:
    """Expires old snapshots, and deletes every file that only these snapshots need.
    `last_of_stream` is the last snapshot of the caller's own stream. `of_tags` is what earlier calls
    have read of the tags, and gets what this one reads. `progress` is called with the number of
    snapshots that have expired.

    Writers, other expirers, rollbacks and creators of tags may work at the same time. The next run
    finishes a run that was killed. A run stops when a rollback begins. Raises the errors of
    `PaimonTable.expire_snapshots`, `CorruptMetadata` for a snapshot or tag that cannot be read, and
    `CommitContended` while a rollback is under way, unless `dry_run` is set.
    """
    storage = table.storage
    clock = (runtime or system()).clock
    started = clock.monotonic()
    retention = Retention.of(
        table.options,
        clock.now_millis(),
        storage.location,
        retain_max=retain_max,
        retain_min=retain_min,
        older_than=older_than,
        max_deletes=max_deletes,
    )
    if not dry_run:
        _refuse_expiry(storage)
    snapshots = SnapshotStore(storage, runtime)
    newest = snapshots.latest()
    ids = snapshots.ids()  # listed: a snapshot below a wrong hint would lose files
    if newest is None or not ids:
        return ExpireReport(location=storage.location, dry_run=dry_run)
    end = _end(table.options, snapshots, retention, ids, newest.id)
    if end > ids[0] and protect_streams:
        end = min(end, _least_of_streams(storage, clock.now_millis(), last_of_stream))
    cleaner = Cleaner(
        table=table, snapshots=snapshots, dry_run=dry_run, clock=clock, of_tags=of_tags
    )
    if end > ids[0]:
        cleaner.kept.refresh_tags()  # a tag that cannot be read is named before anything expires
    expired = _expire(cleaner, ids, end, newest, clock, progress)
    return _report(cleaner, expired, newest, (clock.monotonic() - started) * 1000)


@dataclass(slots=True, kw_only=True)
class _Expired:
    """What one run of expiry has removed so far.

    Attributes:
        earliest: the id of the oldest remaining snapshot; None if there is none.
        snapshots: the ids of the snapshots that the run has removed.
        changelogs: the ids of the changelogs that the run has removed.
        complete: false if a rollback has begun.
    """

    earliest: int | None
    snapshots: list[int] = field(default_factory=list)
    changelogs: tuple[int, ...] = ()
    complete: bool = True


def _expire(
    cleaner: Cleaner,
    ids: Sequence[int],
    end: int,
    newest: Snapshot,
    clock: Clock,
    progress: Progress,
) -> _Expired:
    """Expires the snapshots below the id `end`, then long-lived changelogs, and writes EARLIEST.
    `ids` are the ids of all snapshots.
    """
    expired = _Expired(earliest=ids[0])
    try:
        _expire_below(cleaner, ids, end, newest, expired, progress)
        if expired.complete:
            expired.changelogs = _expire_changelogs(cleaner, newest, clock.now_millis())
    finally:
        if not cleaner.remover.dry_run:
            has_moved = bool(expired.snapshots)
            expired.earliest = _write_earliest(cleaner.snapshots, moved=has_moved)
    return expired


def _report(cleaner: Cleaner, expired: _Expired, newest: Snapshot, millis: float) -> ExpireReport:
    """The report of a run. `newest` is the newest snapshot, and `millis` the milliseconds that the
    run took.
    """
    return ExpireReport(
        location=cleaner.storage.location,
        snapshots=tuple(expired.snapshots),
        changelogs=expired.changelogs,
        files=dict(+cleaner.remover.removed),
        left=cleaner.remover.left,
        impossible=cleaner.remover.impossible,
        earliest=expired.earliest,
        latest=newest.id,
        dry_run=cleaner.remover.dry_run,
        complete=expired.complete,
        millis=millis,
    )


def _refuse_expiry(storage: Storage) -> None:
    """Raises `CommitContended` while a rollback is under way, and `UnsupportedFeature` for a table
    of a REST catalog.
    """
    refuse_while_pinned(storage, "nothing was expired")
    if is_served(storage):
        raise UnsupportedFeature(
            "is a table of a REST catalog, whose server or another engine expires snapshots. "
            "Nothing was expired."
        ).of_table(storage.location, subject=True)


def _expire_below(
    cleaner: Cleaner,
    ids: Sequence[int],
    end: int,
    newest: Snapshot,
    expired: _Expired,
    progress: Progress,
) -> None:
    """Expires the snapshots below an id, until a rollback begins.

    Args:
        cleaner: removes the files of the snapshots.
        ids: the ids of all snapshots, ascending.
        end: the id that the oldest snapshot is to have.
        newest: the newest snapshot.
        expired: gets what has expired, also if an error ends the run.
        progress: is called with the number of snapshots that have expired.
    """
    if not cleaner.remover.dry_run:
        _finish_others(cleaner)
    below_end = sum(snapshot_id < end for snapshot_id in ids)
    for group in _groups(cleaner.snapshots, ids, end):
        if _expire_group(cleaner, group, newest, expired):
            progress("snapshots", len(expired.snapshots), below_end)
        if not expired.complete:
            location = cleaner.storage.location
            _LOG.warning("%s: the expiry stopped, because a rollback began.", location)
            return


def _finish_others(cleaner: Cleaner) -> None:
    """Finishes the expiries that other expirers have begun. If another expirer is still at work,
    both delete the same files.
    """
    for group, following in cleaner.notes.unfinished(cleaner.snapshots):
        cleaner.finish(group, following, resumed=True)


def _expire_group(
    cleaner: Cleaner, group: Sequence[Snapshot], newest: Snapshot, expired: _Expired
) -> bool:
    """Expires all snapshots in the group except the last one, which follows the others. Adds the
    expired ones to `expired`. Returns whether this run has removed any snapshot.
    """
    begun = cleaner.own_files.begin(group, newest)
    expired.snapshots += [snapshot.id for snapshot in begun.removed]
    if begun.gone_count:
        expired.earliest = group[begun.gone_count].id
    if begun.removed:
        resumed = len(begun.removed) < begun.gone_count
        cleaner.finish(group[: begun.gone_count], group[begun.gone_count], resumed=resumed)
    elif begun.gone_count:
        # This comes before the next group, whose notes replace these notes. A note is acted upon
        # only if the snapshot after its own exists, or has a note that is acted upon
        # (`expiring.py`).
        _finish_others(cleaner)
    expired.complete = not begun.stopped
    return bool(begun.removed)


def expiry_is_due(
    table: Table, store: SnapshotStore, runtime: Runtime, oldest: Snapshot, latest: int | None
) -> bool:
    """Whether the table's options let any snapshot expire now. Consumers and streams may still
    prevent that. If the caller knows `oldest` (a snapshot) and `latest` (an id), nothing is read.
    Raises `InvalidOption`, `StorageError`.
    """
    retention = Retention.of(table.options, runtime.clock.now_millis(), table.location)
    latest = store.latest_id() if latest is None else latest
    if latest is None or latest - retention.least + 1 <= oldest.id:
        return False
    return oldest.id < latest - retention.most + 1 or oldest.time_millis < retention.cutoff_millis


def _expire_changelogs(cleaner: Cleaner, newest: Snapshot, now_millis: int) -> tuple[int, ...]:
    """Expires long-lived changelogs by the options of the table, and returns their ids. The newest
    changelog stays, as in Java. Changelogs that consumers need always stay.
    """
    store = cleaner.changelogs
    earliest = next(iter(cleaner.snapshots.ids()), None)
    ids = store.ids()
    first = None if earliest is None else cleaner.snapshots.find(earliest)
    if not ids or first is None:
        return ()
    table = cleaner.table
    options = of_changelogs(opt.Options(table.schema.options, location=table.location))
    most = options.value(opt.SNAPSHOT_NUM_RETAINED_MAX)
    retention = Retention.of(options, now_millis, table.location, most)
    end = _end(options, store, retention, ids, newest.id)
    expired_ids: list[int] = []
    for group in _groups(store, ids, min(end, ids[-1])):
        cleaner.finish_changelogs(group[:-1], group[-1], first)
        expired_ids += [
            changelog.id
            for changelog in group[:-1]
            if cleaner.remover.dry_run or not store.exists(changelog.id)
        ]
    if not cleaner.remover.dry_run:
        _write_earliest(store, moved=bool(expired_ids))
    return tuple(expired_ids)


def _end(
    options: opt.Options,
    snapshots: SnapshotStore,
    retention: Retention,
    ids: Sequence[int],
    latest: int,
) -> int:
    """The id below which snapshots may expire. `ids` are the ids of the existing snapshots,
    ascending, and `latest` is the newest of these.
    """
    earliest = ids[0]
    lowest = max(latest - retention.most + 1, earliest)
    end = latest - retention.least + 1
    if len(ids) > retention.limit:
        end = min(end, ids[retention.limit])
    if end <= earliest:
        return earliest
    if not (options.value(opt.CONSUMER_CHANGELOG_ONLY) and changelog_outlives(options)):
        end = min((end, *consumers(snapshots.storage).values()))
    judged = [snapshot_id for snapshot_id in ids if lowest <= snapshot_id < end]
    for ids_of_group in in_groups(judged, AT_ONCE):
        snapshots_read = snapshots.storage.together(
            [partial(snapshots.find, snapshot_id) for snapshot_id in ids_of_group]
        )
        for snapshot_id, snapshot in zip(ids_of_group, snapshots_read, strict=True):
            if snapshot is not None and retention.cutoff_millis <= snapshot.time_millis:
                return snapshot_id
    return max(end, earliest)


def _least_of_streams(storage: Storage, now_millis: int, last_of_stream: Snapshot | None) -> int:
    """The lowest snapshot id that must stay for streams; 2^63 - 1 if there is none. Only streams
    count that have a journal and prepared a batch within the last day. The journal names the
    snapshot of the batch before the newest one. If it does not, it names the snapshot on which the
    newest batch was judged. If it names neither, the id is 1. For the stream of `last_of_stream`,
    the id of that snapshot counts, and the journal is not read.
    """
    least = 2**63 - 1
    known_folder = None
    if last_of_stream is not None:
        least = last_of_stream.id
        known_folder = user_folder(last_of_stream.commit_user)
    for folder in user_folders(storage):
        if folder == known_folder:
            continue
        journal = Journal(storage, user="", folder=folder)
        for batch in journal.batches()[-1:]:
            try:
                entry = journal.read(batch)
            except (CorruptMetadata, UnknownVersion):
                continue  # the stream itself reports that when it starts
            if entry is None or entry.prepared_millis < now_millis - PROTECTED_MILLIS:
                continue
            least_of_stream = 1
            if entry.previous is not None:
                least_of_stream = entry.previous.snapshot.id
            elif entry.base is not None:
                least_of_stream = entry.base.id
            least = min(least, least_of_stream)
    return least


def _groups(snapshots: SnapshotStore, ids: Sequence[int], end: int) -> Iterator[list[Snapshot]]:
    """Divides the snapshots below the id `end` into groups, oldest first. The last snapshot of a
    group follows the others, and is also the first one of the next group.
    """
    below = [snapshot_id for snapshot_id in ids if snapshot_id < end]
    group: list[Snapshot] = []
    for ids_of_group in in_groups(below, _GROUP):
        read = snapshots.storage.together(
            [partial(snapshots.find, snapshot_id) for snapshot_id in ids_of_group]
        )
        # Snapshots that are missing were removed by another expirer.
        group += [snapshot for snapshot in read if snapshot is not None]
        if len(group) > 1:
            yield group
            group = group[-1:]
    if group:
        following = next(filter(None, map(snapshots.find, ids[len(below) :])), None)
        if following is not None:
            yield [*group, following]


def _write_earliest(snapshots: SnapshotStore, *, moved: bool) -> int | None:
    """Points EARLIEST to the oldest snapshot, and returns its id. If the oldest snapshot has not
    `moved`, the hint stays as it is. A missing hint is always written, as in Java. After a write
    the snapshots are listed again, because a rollback may have restored an older snapshot.
    """
    earliest = None
    hint = f"{snapshots.folder}/EARLIEST"
    for _ in range(_LOOKS):
        before = earliest
        earliest = next(iter(snapshots.ids()), None)
        if earliest is None or earliest == before:
            break
        if not moved and snapshots.storage.exists(hint):
            break
        snapshots.storage.write(hint, str(earliest).encode())
    return earliest
