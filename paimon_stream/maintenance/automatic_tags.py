"""Automatic tags: when a period such as a day has ended, a snapshot gets a tag with the period's
name (table-kinds.md §10). The first snapshot whose time is at least `tag.creation-delay` after the
end of a period gets the tag of that period. Which tags are due follows from the tags and snapshots
that exist. So kills do no harm, and other writers may create tags, too.
"""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from paimon_stream import options as opt
from paimon_stream.errors import AlreadyExists, NotFound, naming
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.maintenance.files_of_tags import FilesOfTags
from paimon_stream.maintenance.tags import create_tag, delete_tag, read_tags
from paimon_stream.reports import Report
from paimon_stream.runtime import Runtime
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.option_rules import tag_period
from paimon_stream.table.period_names import EPOCH, PeriodNames, local_time, zone_of
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_LOOKS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomaticTagsReport(Report):
    """What the creation of automatic tags has done, or would do in a dry run.

    Attributes:
        location: where the table is.
        dry_run: whether nothing was done.
        created: the tags that were created, each with the id of its snapshot.
        deleted: the tags that were deleted because of `tag.num-retained-max`.
        next_time: the time at which the next tag becomes due, a local time such as
            `2026-11-30T00:00:00`; None if that is not known.
    """

    location: str
    dry_run: bool
    created: Mapping[str, int] = field(default_factory=dict, hash=False)
    deleted: tuple[str, ...] = ()
    next_time: str | None = None


def create_automatic_tags(
    table: Table,
    *,
    dry_run: bool = False,
    of_tags: FilesOfTags | None = None,
    runtime: Runtime | None = None,
) -> AutomaticTagsReport:
    """Creates the tags that are due. If a tag was created, deletes automatic tags beyond
    `tag.num-retained-max`, the oldest first. In mode `batch`, the newest snapshot gets a tag. The
    new tag replaces a tag of the same name, and all tags are counted. `of_tags` is what earlier
    calls have read of the tags. Raises what `create_tag` and `delete_tag` raise, and
    `InvalidOption`.
    """
    of_tags = of_tags or FilesOfTags()
    snapshots = SnapshotStore(table.storage, runtime)
    with naming(table.location):
        names = TagNames.of(table.options)
    created: dict[str, int] = {}
    for _ in range(_LOOKS):
        tags: dict[str, Snapshot] = {}
        if names.mode != "none":
            tags = read_tags(table.storage)
        due = [
            (name, snapshot)
            for name, snapshot in names.due(snapshots, tags)
            if names.is_wanted(tags.get(name), snapshot)
        ]
        counted = {(snapshot.id, name) for name, snapshot in tags.items() if names.counts(name)}
        counted.update((snapshot.id, name) for name, snapshot in due)
        by_age = [name for _, name in sorted(counted)]
        too_many: set[str] = set()
        if due and names.most:
            too_many = set(by_age[: -names.most])
        wanted = [(name, snapshot) for name, snapshot in due if name not in too_many]
        if dry_run or _create_tags(table, snapshots, wanted, tags, created, runtime):
            break
    else:
        wanted = []  # others create tags all the time; the next run goes on
    created |= {name: snapshot.id for name, snapshot in wanted}
    deleted = tuple(name for name in by_age if name in too_many and name in tags)
    if not dry_run:
        for name in deleted:
            delete_tag(table, name, of_tags=of_tags, runtime=runtime)
    due_at = names.due_at({**tags, **dict(wanted)})
    next_time = None
    if due_at is not None:
        next_time = due_at.replace(tzinfo=None).isoformat()
    return AutomaticTagsReport(
        location=table.location,
        dry_run=dry_run,
        created=created,
        deleted=deleted,
        next_time=next_time,
    )


def _create_tags(
    table: Table,
    snapshots: SnapshotStore,
    wanted: Sequence[tuple[str, Snapshot]],
    tags: Mapping[str, Snapshot],
    created: dict[str, int],
    runtime: Runtime | None,
) -> bool:
    """Creates the wanted tags. Returns False if another committer has created one of them
    meanwhile, or if a snapshot has expired. In that case, the caller must find again which tags are
    due.

    Args:
        table: the table.
        snapshots: the snapshots of the table.
        wanted: the names of the tags, each with the snapshot to tag.
        tags: the tags that exist.
        created: gets the ids of the snapshots that were tagged, by the names of the tags.
        runtime: the clock and the ids. None: those of the system.
    """
    for name, snapshot in wanted:
        if name in tags:  # a tag of a batch: the older one stays if the new one cannot be made
            ManifestStore(table.storage).base_and_delta(snapshot)
            delete_tag(table, name, runtime=runtime)
        try:
            create_tag(table, name, snapshot.id, runtime=runtime, known=tags)
        except AlreadyExists:
            return False
        except NotFound:
            if snapshots.stands(snapshot):
                raise
            return False
        created[name] = snapshot.id
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class TagNames:
    """The names of a table's automatic tags, and the times at which they become due. The times are
    local times that are labelled as UTC.

    Attributes:
        mode: the value of `tag.automatic-creation`.
        period: the length of a period.
        delay: the time between the end of a period and the moment at which its tag is due.
        names: how tags are named after periods.
        zone: the time zone in which periods begin; None for the machine's zone.
        complete: whether periods without a snapshot get tags, too.
        batch: the name of the tag of a batch job; None for a name with the date.
        most: the largest number of tags that are kept; 0 for all.
    """

    mode: str
    period: dt.timedelta
    delay: dt.timedelta
    names: PeriodNames
    zone: dt.tzinfo | None
    complete: bool
    batch: str | None
    most: int

    @classmethod
    def of(cls, options: opt.Options) -> "TagNames":
        """The rules of automatic tags in a table's options. Raises `InvalidOption`."""
        mode = options.value(opt.TAG_AUTOMATIC_CREATION)
        batch = None
        if options.is_set(opt.TAG_BATCH_NAME):
            batch = options.value(opt.TAG_BATCH_NAME)
        most = 0
        if options.is_set(opt.TAG_NUM_RETAINED_MAX):
            most = options.value(opt.TAG_NUM_RETAINED_MAX)
        return cls(
            mode=mode,
            period=tag_period(options),
            delay=dt.timedelta(milliseconds=options.value(opt.TAG_CREATION_DELAY)),
            names=PeriodNames.of(options),
            zone=zone_of(options, mode),
            complete=options.value(opt.TAG_AUTOMATIC_COMPLETION),
            batch=batch,
            most=most,
        )

    def counts(self, name: str) -> bool:
        """Whether `tag.num-retained-max` counts the tag with this name."""
        return self.mode == "batch" or self.time_of(name) is not None

    def is_wanted(self, tagged: Snapshot | None, snapshot: Snapshot) -> bool:
        """Whether the snapshot gets the tag. `tagged` is the snapshot that has the tag now; None if
        there is no such tag. A batch takes over the tag of an earlier batch.
        """
        return tagged is None or (self.mode == "batch" and tagged.nonce != snapshot.nonce)

    def time_of(self, name: str) -> dt.datetime | None:
        """The beginning of the period that an automatic tag is named after; None for a tag that is
        not automatic.
        """
        return self.names.time_of(name)

    def moment(self, snapshot: Snapshot) -> dt.datetime | None:
        """The time of a snapshot that decides which tags are due. In the mode `watermark`, this is
        the snapshot's watermark. In the other modes, it is the time of the commit. None if the
        snapshot has no watermark, or if the time is before 1970 or after the year 9999.
        """
        millis = snapshot.watermark if self.mode == "watermark" else snapshot.time_millis
        return local_time(millis, self.zone)

    def due_at(self, tags: Mapping[str, Snapshot]) -> dt.datetime | None:
        """The time from which on the next snapshot gets a tag. None in the mode `batch`. Also None
        if the table has no automatic tag: in that case, the next snapshot gets one at any time.
        """
        last = self._last(tags)
        if last is None or self.mode == "batch":
            return None
        return self._after(last[1])

    def _last(self, tags: Mapping[str, Snapshot]) -> tuple[int, dt.datetime] | None:
        """The last automatic tag, which is the one of the newest tagged snapshot. Returns the id of
        that snapshot and the beginning of the tag's period.
        """
        times = []
        for name, snapshot in tags.items():
            time = self.time_of(name)
            if time is not None:
                times.append((snapshot.id, time))
        return max(times, default=None)

    def _after(self, time: dt.datetime) -> dt.datetime:
        """The time at which the next tag is due, if the last tag is named after the period that
        begins at `time`. At that time the next period has ended, and the delay is over.
        """
        try:
            return time + 2 * self.period + self.delay
        except OverflowError:  # somebody's tag 9999-12-31
            return dt.datetime.max.replace(tzinfo=dt.timezone.utc)

    def due(
        self, snapshots: SnapshotStore, tags: Mapping[str, Snapshot]
    ) -> Iterator[tuple[str, Snapshot]]:
        """The tags that are due, each with its snapshot. `tags` are the tags that exist."""
        if self.mode == "batch":
            yield from self._of_batch(snapshots)
        if self.mode not in ("process-time", "watermark"):
            return
        due_at = self.due_at(tags)
        last = self._last(tags)
        for snapshot_id in snapshots.ids():
            if last is not None and snapshot_id <= last[0]:
                continue
            snapshot = snapshots.find(snapshot_id)
            if snapshot is None:
                continue
            moment = self.moment(snapshot)
            if moment is None or (due_at is not None and moment < due_at):
                continue
            time = moment - (moment - EPOCH) % self.period - self.period
            if self.complete and due_at is not None:
                time = due_at - self.period - self.delay
            yield time.strftime(self.names.format), snapshot
            due_at = self._after(time)

    def _of_batch(self, snapshots: SnapshotStore) -> Iterator[tuple[str, Snapshot]]:
        """The tag of a batch job that has committed the newest snapshot."""
        latest = snapshots.latest()
        if latest is None:
            return
        moment = self.moment(latest)
        if moment is not None:
            yield self.batch or f"batch-write-{moment:%Y-%m-%d}", latest
