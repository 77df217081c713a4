"""Creates, reads and deletes tags. A tag names a snapshot, and keeps the snapshot's files after the
snapshot has expired (semantics.md §11). A tag is a copy of the snapshot's file under `tag/`.

Invariants:

- All files of a tag exist, or its creator removes the tag again. After the creator has written the
  tag, it checks whether the snapshot still exists. If not, an earlier tag must still keep all files
  of the snapshot, and no expiry may be unfinished. An expiry deletes the snapshot's own file first,
  and reads the tags after that (`expire_run.py`). So either the expiry sees the tag, or the creator
  sees that the snapshot is gone.
- When a tag is deleted, its file is deleted first, so a kill leaves orphans and never a tag without
  files. Then the journals are read: a batch may be committed again with files that only the tag
  has (`stream/recommit.py`), and its entry disappears after that. A batch that no journal has may
  be committed again, too, so nothing else is deleted if the tag's id has another snapshot or tag,
  which shows that the tag's snapshot was replaced. Then all tags and
  snapshots are read. A file is deleted only if no tag, snapshot, branch or journal has it
  (`files_of_tags.py` says why the nearest ones are not enough).
"""

import datetime as dt
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Final, NamedTuple

from paimon_stream.commit.metastore_tags import telling_of_tags
from paimon_stream.errors import (
    AlreadyExists,
    CorruptMetadata,
    FormatError,
    InvalidOption,
    NotFound,
)
from paimon_stream.format.json_text import MOST_JSON, parse_json
from paimon_stream.format.names import shown_name, wrong_with
from paimon_stream.format.snapshot_json import Snapshot, decode_snapshot, encode_snapshot
from paimon_stream.maintenance.expire_run import Cleaner
from paimon_stream.maintenance.expiring import ExpiringNotes
from paimon_stream.maintenance.files_of_tags import FilesOfTags
from paimon_stream.maintenance.needed import refuse_beside, refuse_missing, tag_names
from paimon_stream.maintenance.pins import is_pin, read_pins, refuse_while_pinned
from paimon_stream.options import TAG_TIME_RETAINED, Age, age_of
from paimon_stream.reports import Report
from paimon_stream.runtime import Clock, Runtime, system
from paimon_stream.storage.base import PutResult, Storage
from paimon_stream.storage.read_ahead import in_groups
from paimon_stream.storage.together import AT_ONCE
from paimon_stream.table.layout import PIN_PREFIX, tag_path
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.references import read_tag
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)
_LOOKS: Final = 10
_LONGEST_MILLIS: Final = 86_400_000 * 365 * 1000
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


@dataclass(frozen=True, slots=True, kw_only=True)
class TagReport(Report):
    """What was done to a tag.

    Attributes:
        location: where the table is.
        tag: the name of the tag.
        snapshot: the id of the tagged snapshot.
        found: false if the tag to delete did not exist.
        unreadable: true if the tag to delete could not be read, so that only its own file was
            deleted.
        files: how many files were deleted, by kind.
        left: how many files stay as orphans.
    """

    location: str
    tag: str
    snapshot: int | None = None
    found: bool = True
    unreadable: bool = False
    files: Mapping[str, int] = field(default_factory=dict, hash=False)
    left: int = 0


def create_tag(
    table: Table,
    name: str,
    snapshot_id: int | None = None,
    time_retained: Age | None = None,
    *,
    runtime: Runtime | None = None,
    known: Mapping[str, Snapshot] | None = None,
) -> TagReport:
    """Creates a tag of a snapshot. Raises the errors of `PaimonTable.create_tag`, and `NotFound` if
    the snapshot has expired, or if only tags keep it while an expiry is unfinished. `known` has the
    existing tags, if the caller has just read them.
    """
    storage = table.storage
    clock = (runtime or system()).clock
    _check_name(name, storage.location, new=True)
    retention: dt.timedelta | None = None
    if time_retained is not None:
        retention = age_of(time_retained, "time_retained", storage.location)
    elif table.options.is_set(TAG_TIME_RETAINED):
        retention = dt.timedelta(
            milliseconds=min(table.options.value(TAG_TIME_RETAINED), _LONGEST_MILLIS)
        )
    snapshots = SnapshotStore(storage, runtime)
    snapshot = _snapshot_to_tag(snapshots, snapshot_id)
    try:  # the snapshot may be damaged, or its writer may be about to take it back
        ManifestStore(storage).base_and_delta(snapshot)
    except CorruptMetadata as error:
        raise _cannot_be_tagged(storage, snapshot.id, f"cannot be read: {error}") from error
    if snapshots.stands(snapshot):
        refuse_beside(snapshots, snapshot, read_pins(storage))
    content = _tag_json(snapshot, retention, clock)
    # Only earlier tags count, because another new tag may be removed again, as this one may.
    kept_by = _tags_of(storage, snapshot, known)
    with telling_of_tags(table, [name], runtime):
        if storage.put_if_absent(tag_path(name), content) is PutResult.EXISTS:
            raise AlreadyExists(
                f"already has a tag {name!r}. Take another name, or delete that tag.",
                path=tag_path(name),
            ).of_table(storage.location, subject=True)
        if not snapshots.stands(snapshot):
            refused = _why_not_whole(table, snapshots, name, snapshot, kept_by)
            if refused is not None:
                storage.delete(tag_path(name))
                raise refused
    return TagReport(location=storage.location, tag=name, snapshot=snapshot.id)


def delete_tag(
    table: Table,
    name: str,
    *,
    of_tags: FilesOfTags | None = None,
    runtime: Runtime | None = None,
) -> TagReport:
    """Deletes a tag, and the files that only this tag needed. If the tag is missing, the report
    says so, and no error is raised. `of_tags` is what earlier calls have read of the tags.

    The tag's file is deleted first, so a kill leaves orphans and never a tag without files. If the
    tag's snapshot was replaced, its files stay as orphans, because `recommit` may need them. Raises
    `StorageError`, `InvalidOption` for a name that no tag can have, `CommitContended` while a
    rollback is under way, and `CorruptMetadata` if one of the other tags cannot be read. If the
    deleted tag itself cannot be read, only its own file is deleted, also while a rollback is under
    way. The data files that this tag kept are not known, so all of them stay. Orphan removal finds
    the files that nothing needs.
    """
    storage = table.storage
    tag = find_tag(storage, name)
    if tag is None:  # an existing tag may have any name, because another engine may have made it
        _check_name(name, storage.location, new=False)
        return TagReport(location=storage.location, tag=name, found=False)
    if isinstance(tag, FormatError):
        with telling_of_tags(table, [name], runtime):
            storage.delete(tag_path(name))
        _LOG.warning(
            "%s: only the file of tag %r was deleted, because it could not be read. The data files "
            "that only it kept stay until remove_orphan_files removes them.",
            storage.location,
            name,
        )
        return TagReport(location=storage.location, tag=name, unreadable=True)
    refuse_while_pinned(storage, f"tag {name!r} was not deleted, and nothing was changed")
    read_tags(storage)  # a tag that cannot be read is named before anything is deleted
    with telling_of_tags(table, [name], runtime):
        storage.delete(tag_path(name))
    cleaner = Cleaner(table=table, snapshots=SnapshotStore(storage, runtime), of_tags=of_tags)
    _remove_files_of(tag, cleaner)
    removed = cleaner.remover.removed
    left = cleaner.remover.left
    return TagReport(
        location=storage.location, tag=name, snapshot=tag.id, files=dict(+removed), left=left
    )


def _remove_files_of(tag: Snapshot, cleaner: Cleaner) -> None:
    """Removes the files that only a deleted tag needed. They stay as orphans if a journal, a list
    or a manifest that may refer to them cannot be read. Raises `StorageError`, and
    `CorruptMetadata` for a tag or snapshot.
    """
    storage = cleaner.storage
    try:
        cleaner.kept.journal_names()  # kept for `remove_tagged`: journals are read before roots
    except CorruptMetadata as error:
        _warn_of_orphans(storage.location, error)
        return
    roots = _roots_beside(cleaner.snapshots, tag)
    if roots is None:
        return
    of_same_id = [root for root in (*roots.tags, *roots.history) if root.id == tag.id]
    if any(root.nonce == tag.nonce for root in of_same_id):
        return
    if of_same_id:
        _LOG.warning(
            "%s: snapshot %d was replaced after it was tagged, and recommit may be about to commit its "
            "files again, so they stay as orphans.",
            storage.location,
            tag.id,
        )
        return
    try:
        cleaner.remove_tagged(tag, roots.history)
    except CorruptMetadata as error:
        _warn_of_orphans(storage.location, error)


def _warn_of_orphans(location: str, error: CorruptMetadata) -> None:
    _LOG.warning("%s: files of a deleted tag stay as orphans: %s", location, error)


def expire_tags(
    table: Table,
    *,
    of_tags: FilesOfTags | None = None,
    runtime: Runtime | None = None,
) -> tuple[TagReport, ...]:
    """Deletes the tags whose retention time is over. `of_tags` is what earlier calls have read of
    the tags. Raises what `delete_tag` raises.
    """
    storage = table.storage
    of_tags = of_tags or FilesOfTags()
    runtime = runtime or system()
    now = _EPOCH + dt.timedelta(milliseconds=runtime.clock.local_millis())
    expired: list[str] = []
    for names in in_groups(tag_names(storage), AT_ONCE):
        reads = [partial(_read_until, storage, name) for name in names]
        for name, until in zip(names, storage.together(reads), strict=True):
            if until is not None and until < now:
                expired.append(name)
    return tuple([delete_tag(table, name, of_tags=of_tags, runtime=runtime) for name in expired])


def _read_until(storage: Storage, name: str) -> dt.datetime | None:
    """The time until which a tag is kept (`tagged_until`). In doubt it stays: None if the tag is
    broken or gone. Raises `StorageError`.
    """
    try:
        data = storage.read(tag_path(name), MOST_JSON)
        decode_snapshot(data, tag_path(name))  # raises if the tag is broken
    except (NotFound, FormatError):
        return None
    return tagged_until(data)


def read_tags(storage: Storage) -> dict[str, Snapshot]:
    """The tags without pins: the snapshot of each tag, by the tag's name. Raises `CorruptMetadata`,
    `UnknownVersion`, `StorageError`.
    """
    tags: dict[str, Snapshot] = {}
    for names in in_groups(tag_names(storage), AT_ONCE):
        reads = [partial(read_tag, storage, tag_path(name)) for name in names]
        for name, snapshot in zip(names, storage.together(reads), strict=True):
            if snapshot is not None:  # else it was deleted meanwhile
                tags[name] = snapshot
    return tags


def find_tag(storage: Storage, name: str) -> Snapshot | FormatError | None:
    """The snapshot of a tag, or an error if the tag cannot be read; None if there is no such tag.
    Raises `StorageError`.
    """
    if name not in tag_names(storage):
        return None
    try:
        return read_tag(storage, tag_path(name))
    except FormatError as error:
        return error


def tagged_until(data: bytes) -> dt.datetime | None:
    """The time until which a tag is kept according to its file, in local time (labelled UTC); None
    if the tag is kept for ever, or if its file cannot be understood.
    """
    try:
        node = parse_json(data, parse_float=Decimal)
        created = node.get("tagCreateTime")
        seconds = node.get("tagTimeRetained")
        if created is None or seconds is None:
            return None
        year, month, day, hour, minute, second, nanos = (*map(int, created), 0, 0)[:7]
        moment = dt.datetime(year, month, day, hour, minute, second, nanos // 1000, dt.timezone.utc)
        return moment + dt.timedelta(microseconds=int(Decimal(seconds) * 1_000_000))
    except (ValueError, TypeError, AttributeError, ArithmeticError):
        return None  # in doubt it stays


def _check_name(name: str, location: str, *, new: bool) -> None:
    """Raises `InvalidOption` for a name that no tag of a user can have. A new tag also needs a name
    that is valid UTF-8 and not too long.
    """
    if not name.strip():
        raise InvalidOption(
            "the name of a tag is blank. Nothing was changed. Give a name.",
            option="name",
            value=name,
        ).of_table(location)
    if is_pin(name):
        raise InvalidOption(
            f"{name!r} cannot be the name of a tag: names that begin with {PIN_PREFIX} are those "
            "of rollbacks. Nothing was changed. Take another name.",
            option="name",
            value=name,
        ).of_table(location)
    wrong = wrong_with(tag_path(name).partition("/")[2])
    if wrong is not None and (new or "/" in name or "\0" in name):
        raise InvalidOption(
            f"{shown_name(name)} cannot be the name of a tag. As the name of its file, {wrong}. "
            "Nothing was changed. Take another name.",
            option="name",
            value=name,
        ).of_table(location)


def _snapshot_to_tag(snapshots: SnapshotStore, snapshot_id: int | None) -> Snapshot:
    """The snapshot with this id, even if only a tag keeps it; the newest snapshot if the id is
    None. Raises `NotFound`, and what `SnapshotStore.find` and `read_tags` raise.
    """
    storage = snapshots.storage
    if snapshot_id is None:
        latest = snapshots.latest()
        if latest is None:
            raise NotFound("has no snapshot yet, so there is nothing to tag.").of_table(
                storage.location, subject=True
            )
        return latest
    snapshot = snapshots.find(snapshot_id)
    if snapshot is None:
        snapshot = next(
            (tagged for tagged in read_tags(storage).values() if tagged.id == snapshot_id), None
        )
    if snapshot is None:
        raise _cannot_be_tagged(storage, snapshot_id, "does not exist, and no tag keeps it")
    return snapshot


def _cannot_be_tagged(storage: Storage, snapshot_id: int, problem: str) -> NotFound:
    return NotFound(
        f"Snapshot {snapshot_id} of {storage.location} {problem}. Nothing was tagged. Take one "
        "that exists.",
        table=storage.location,
        snapshot=snapshot_id,
    )


def _why_not_whole(
    table: Table, snapshots: SnapshotStore, name: str, snapshot: Snapshot, kept_by: set[str]
) -> NotFound | None:
    """The reason why a snapshot that only tags keep cannot be tagged again. None if all its files
    exist, and no expiry may still delete some of these. `kept_by` are the snapshot's earlier tags.
    Each of them may itself be about to be removed.
    """
    storage = table.storage
    if not kept_by & _tags_of(storage, snapshot):
        return _cannot_be_tagged(storage, snapshot.id, "expired while it was being tagged")
    now = storage.stat(tag_path(name)).modified_millis  # the new tag was written just now
    if ExpiringNotes(storage).any_begun(snapshots, now):
        return NotFound(
            "an expiry is in progress or was interrupted, and only tags keep snapshot "
            f"{snapshot.id}. Nothing was tagged. Run expire_snapshots, then create the tag again.",
            snapshot=snapshot.id,
        ).of_table(storage.location)
    try:
        refuse_missing(table, snapshot)
    except (CorruptMetadata, NotFound):
        return _cannot_be_tagged(storage, snapshot.id, "has lost files that its tags should keep")
    return None


def _tags_of(
    storage: Storage, snapshot: Snapshot, known: Mapping[str, Snapshot] | None = None
) -> set[str]:
    """The names of the tags that keep this snapshot."""
    tags = read_tags(storage) if known is None else known
    return {name for name, tagged in tags.items() if tagged.nonce == snapshot.nonce}


def _tag_json(snapshot: Snapshot, time_retained: dt.timedelta | None, clock: Clock) -> bytes:
    """The content of a tag's file, as Java writes it. Without `time_retained`, it equals the
    content of the snapshot's file.
    """
    plain = encode_snapshot(snapshot)
    if time_retained is None:
        return plain
    created = _EPOCH + dt.timedelta(milliseconds=clock.local_millis())
    parts = [
        created.year,
        created.month,
        created.day,
        created.hour,
        created.minute,
        created.second,
        created.microsecond * 1000,
    ]
    micros = round(time_retained.total_seconds() * 1_000_000)
    seconds = f"{micros // 1_000_000}.{micros % 1_000_000:06d}000"
    written = f',\n  "tagCreateTime" : [ {", ".join(map(str, parts))} ],\n  "tagTimeRetained" : {seconds}\n}}'
    return plain[: -len(b"\n}")] + written.encode()


class _Roots(NamedTuple):
    """What refers to files in the branch at work, but for long-lived changelogs.

    Attributes:
        tags: the tagged snapshots.
        history: the snapshots, ascending. Some of them may have expired since they were read.
    """

    tags: list[Snapshot]
    history: list[Snapshot]


def _roots_beside(snapshots: SnapshotStore, tag: Snapshot) -> _Roots | None:
    """For a tag whose file is gone: all tags and snapshots. None if a rollback is under way, or if
    tags come and go. In both cases, the tag's files stay as orphans.

    Tags and snapshots are read until two readings show the same tags. So a snapshot that is tagged
    and expires between two reads is not missed: one of the two readings has it, or the tag. A
    snapshot that is published later has files of these, new ones, or those of a journal. No other
    snapshot can come back, because rollbacks and the creators of tags check again after they have
    written.
    """
    before = None
    history: dict[int, Snapshot] = {}
    for _ in range(_LOOKS):
        pins = read_pins(snapshots.storage)
        tags = read_tags(snapshots.storage)
        unread = [snapshot_id for snapshot_id in snapshots.ids() if snapshot_id not in history]
        for group in in_groups(unread, AT_ONCE):
            reads = [partial(snapshots.find, snapshot_id) for snapshot_id in group]
            present = filter(None, snapshots.storage.together(reads))
            history |= {snapshot.id: snapshot for snapshot in present}
        if (pins, tags) == before:
            if not pins and history:
                return _Roots([*tags.values()], [history[each] for each in sorted(history)])
            break
        before = (pins, tags)
    _LOG.warning(
        "%s: files of the deleted tag of snapshot %d stay as orphans.", snapshots.location, tag.id
    )
    return None
