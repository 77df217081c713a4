"""Checks the history of a table: snapshots, tags, the users who committed, and the files that refer
to snapshots (hints, consumers, journals).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from paimon_stream.errors import (
    CorruptMetadata,
    FormatError,
    IncompatibleSchema,
    InvalidOption,
    NotFound,
)
from paimon_stream.format.json_text import MOST_JSON
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, Snapshot, decode_snapshot
from paimon_stream.format.snapshot_marks import is_ours
from paimon_stream.maintenance.hints import lost_history
from paimon_stream.maintenance.pins import read_pins
from paimon_stream.storage.base import FileStat, Storage
from paimon_stream.storage.read_ahead import ReadAhead
from paimon_stream.table import layout
from paimon_stream.table.consumers import consumer_files, next_snapshot
from paimon_stream.table.journal import Journal
from paimon_stream.table.message_files import data_files
from paimon_stream.table.references import removal_of_tag
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table, check_definition, table_of
from paimon_stream.verify.findings import Findings

_STREAM: Final = "paimon-stream_"
_LOST: Final = (
    "Restore the snapshot files from a backup before anything else writes or cleans here."
)
_REPAIR: Final = "Run repair-hints, or write the right id into the file."
_RESTORE: Final = "Restore the file from a backup, or roll the table back to a snapshot before it."


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRoot:
    """A readable snapshot, tag or long-lived changelog: its file and its content."""

    path: str
    snapshot: Snapshot

    @property
    def tag(self) -> str | None:
        """The tag's name; None for a snapshot or a long-lived changelog."""
        prefix = f"{layout.TAG_FOLDER}/tag-"
        return self.path.removeprefix(prefix) if self.path.startswith(prefix) else None

    @property
    def is_tag(self) -> bool:
        """Whether the root is a tag."""
        return self.tag is not None

    @property
    def name(self) -> str:
        """The name of the root, for messages."""
        if self.tag is not None:
            return f"tag {self.tag!r}"
        folder = self.path.partition("/")[0]
        return f"{folder} {self.snapshot.id}"

    def broken(self, findings: Findings, code: str, message: str, path: str, cure: str) -> None:
        """Adds an error about a file that this root needs. Other roots that need the file add the
        same error.

        Args:
            findings: the collector that gets the error.
            code: as in `Finding`.
            message: as in `Finding`.
            path: the file, relative to the table.
            cure: as in `Finding`.
        """
        findings.error(code, message, path, cure)
        findings.needed(path, self.snapshot.id, self.tag)


def check_pins(storage: Storage, findings: Findings) -> None:
    """Warns of a rollback that is under way or was interrupted."""
    for pin in read_pins(storage):
        if pin.snapshot is None:
            continue  # the broken tag is a finding of its own
        target = pin.snapshot.id
        findings.warning(
            "rollback-unfinished",
            f"A rollback to snapshot {target} is under way or was interrupted. Nothing "
            "expires meanwhile.",
            pin.path,
            f"If it no longer runs, roll back to snapshot {target} again: that completes it.",
        )


def read_roots(storage: Storage, findings: Findings) -> list[CheckedRoot]:
    """All snapshots, ascending, then all tags. Raises `StorageError`."""
    tags = [
        _read_root(storage, stat, None, findings)
        for stat in storage.list_files(layout.TAG_FOLDER, "tag-")
    ]
    return [
        *read_numbered(storage, layout.SNAPSHOT_FOLDER, findings),
        *(tag for tag in tags if tag is not None),
    ]


def read_numbered(storage: Storage, folder: str, findings: Findings) -> list[CheckedRoot]:
    """All snapshots, or all long-lived changelogs, ascending. Raises `StorageError`."""
    stats = storage.list_files(folder, f"{folder}-")
    ahead = ReadAhead(storage)
    numbered = [(layout.id_in_name(stat.name, f"{folder}-"), stat) for stat in stats]
    ascending = sorted((number, stat.path, stat) for number, stat in numbered if number is not None)
    ahead.expect([(path, stat.size) for _, path, stat in ascending])
    roots = [_read_root(ahead, stat, number, findings) for number, _, stat in ascending]
    return [root for root in roots if root is not None]


def _read_root(
    storage: Storage | ReadAhead, stat: FileStat, number: int | None, findings: Findings
) -> CheckedRoot | None:
    """The root in a file. None if the file no longer exists, or if a finding says what is wrong
    with it. `number` is the id in the name of the file; None for a tag.
    """
    kind = stat.path.partition("/")[0]  # the folder is named for what is in it
    try:
        snapshot = decode_snapshot(storage.read(stat.path, MOST_JSON), stat.path)
    except NotFound:
        return None  # it was removed since the listing
    except FormatError as error:
        repair = _RESTORE
        if number is None:
            repair = f"Restore the file, or {removal_of_tag(stat.path)}"
        findings.error(f"{kind}-broken", f"{stat.path} cannot be read: {error}", stat.path, repair)
        return None
    findings.checked[f"{kind}s"] += 1
    if number is not None and snapshot.id != number:
        findings.error(
            f"{kind}-id",
            f"{stat.path} holds {kind} {snapshot.id}: it was copied or renamed.",
            stat.path,
            _RESTORE,
        )
        return None
    return CheckedRoot(path=stat.path, snapshot=snapshot)


def check_line(roots: Iterable[CheckedRoot], findings: Findings) -> None:
    """Checks that the snapshots have no gaps between them, and that their counts and watermarks are
    consistent.
    """
    line = [root for root in roots if not root.is_tag]
    for before, after in pairwise(line):
        old = before.snapshot
        new = after.snapshot
        if new.id != old.id + 1:
            findings.warning(
                "snapshot-gap",
                f"Snapshots {old.id + 1} to {new.id - 1} are missing, with others on both sides.",
                layout.snapshot_path(old.id + 1),
                "They were deleted by hand, an expiry was cut short, or a rollback "
                f"restored snapshot {old.id} or {new.id} from a tag and was then given up. "
                "expire_snapshots removes what is below the gap when its time has come. "
                "Readers that follow changes stop at the gap.",
            )
            continue
        if new.total_record_count != old.total_record_count + new.delta_record_count:
            findings.error(
                "record-count-line",
                f"Snapshot {new.id} has {new.total_record_count} records in all, but "
                f"{old.id} had {old.total_record_count} and {new.delta_record_count} were "
                "added.",
                after.path,
                "Counts of this table cannot be trusted.",
            )
        if old.watermark is not None and (new.watermark is None or new.watermark < old.watermark):
            findings.warning(
                "watermark-back",
                f"The watermark of snapshot {new.id} is below that of {old.id}.",
                after.path,
                "Find out which writer made that snapshot.",
            )
        if new.time_millis < old.time_millis:
            findings.info(
                "time-back",
                f"Snapshot {new.id} is {old.time_millis - new.time_millis} ms older than {old.id}.",
                after.path,
                "Set the clocks of all writers right: expiry and time travel go by these times.",
            )


def check_identifiers(roots: Sequence[CheckedRoot], findings: Findings) -> None:
    """Checks that each append of a stream exists once, that the commits of a stream are in order,
    and that no stream goes on after a batch commit (semantics.md §1.3).
    """
    last: dict[str, int] = {}
    published: dict[tuple[str, int, str], int] = {}
    batch: dict[str, CheckedRoot] = {}
    going_on: set[str] = set()
    for root in roots:
        snapshot = root.snapshot
        if root.is_tag:
            continue
        user = snapshot.commit_user
        number = snapshot.commit_identifier
        if number == BATCH_IDENTIFIER:
            batch.setdefault(user, root)
            continue
        if user in batch:
            going_on.add(user)
        key = (user, number, snapshot.commit_kind.value)
        if key in published and snapshot.commit_kind.value == "APPEND":
            findings.error(
                "identifier-repeated",
                f"Commit {number} of user {user!r} was published twice, as snapshots "
                f"{published[key]} and {snapshot.id}: its rows may be there twice.",
                root.path,
                "Compare the two snapshots; remove duplicate rows by rolling back or overwriting.",
            )
        published[key] = snapshot.id
        if number < last.get(user, number):
            findings.warning(
                "identifier-back",
                f"Commit {number} of user {user!r} (snapshot {snapshot.id}) came after its "
                f"commit {last[user]}.",
                root.path,
                "Was a checkpoint restored or reset? Check whether rows were written twice.",
            )
        elif user.startswith(_STREAM) and number > last.get(user, number) + 1:
            findings.info(
                "identifier-gap",
                f"User {user!r} went from batch {last[user]} to {number} (snapshot {snapshot.id}).",
                root.path,
                "Batches without rows make no snapshot. If there were rows, look into the "
                "stream's log.",
            )
        last[user] = max(number, last.get(user, number))
    ended = batch.keys() & last.keys() - going_on
    of_ours = {user for user in ended if user.startswith(_STREAM) or is_ours(batch[user].snapshot)}
    _check_batch_identifiers({user: batch[user] for user in going_on | of_ours}, findings)


def _check_batch_identifiers(batch: Mapping[str, CheckedRoot], findings: Findings) -> None:
    """Adds an error for each stream that has a snapshot with the identifier of batch commits. Such
    a snapshot is right as the last commit of another engine's stream: Flink ends a bounded stream
    so. `batch` has the snapshots that are wrong, by commit user.
    """
    for user in sorted(batch):
        findings.error(
            "batch-identifier-of-stream",
            f"Snapshot {batch[user].snapshot.id} has the identifier of batch commits under "
            f"the stream user {user!r}: engines that ask for the last commit of that user "
            "skip all that follow.",
            batch[user].path,
            "Give the stream another commit user, and batch commits a user of their own.",
        )


def check_hints(storage: Storage, findings: Findings) -> None:
    """Checks that each hint names a snapshot from which readers find the right one (semantics.md
    §2.4).
    """
    for path, place in ((layout.LATEST_HINT, -1), (layout.EARLIEST_HINT, 0)):
        ids = SnapshotStore(storage).ids()
        if not ids:
            _check_lost_history(storage, findings)
            return
        hint = layout.read_hint(storage, path)
        if hint is None:
            continue  # readers list the snapshots instead
        findings.checked["hints"] += 1
        if SnapshotStore(storage).ids() != ids:
            continue  # a writer is at work and has not written the hint yet
        _check_hint(path, hint.strip(), ids, ids[place], findings)


def _check_lost_history(storage: Storage, findings: Findings) -> None:
    """Checks whether a table without snapshots has lost them."""
    evidence = lost_history(storage, in_doubt=False)
    if evidence is not None:
        sentence = f"{evidence[0].upper()}{evidence[1:]}."
        findings.error("snapshots-lost", sentence, layout.SNAPSHOT_FOLDER, _LOST)
    elif lost_history(storage, in_doubt=True) is not None:
        findings.warning(
            "no-snapshot",
            "There is no snapshot, but there are manifest lists: a first commit was killed, or "
            "worse.",
            layout.SNAPSHOT_FOLDER,
            f"If rows were here: {_LOST}",
        )


def _check_hint(path: str, hint: str, ids: Sequence[int], right: int, findings: Findings) -> None:
    """Checks a hint. `ids` are the ids of the snapshots, and `right` is the id that the hint should
    name.
    """
    named = layout.id_in_name(hint, "")
    if named is None:
        findings.warning("hint-unreadable", f"{path} holds {hint!r}, not a number.", path, _REPAIR)
    elif named == right:
        return
    elif path == layout.EARLIEST_HINT:
        findings.warning(
            "earliest-hint", f"{path} says {hint}; the oldest snapshot is {right}.", path, _REPAIR
        )
    elif named + 1 in ids:
        findings.info(
            "latest-hint-behind", f"{path} says {hint}; the newest is {right}.", path, _REPAIR
        )
    else:
        findings.error(
            "latest-hint",
            f"{path} says {hint}; the newest snapshot is {right}. Java trusts it and reads nothing.",
            path,
            f"If snapshots up to {hint} were there: {_LOST} If not: {_REPAIR}",
        )


def check_schemas(storage: Storage, findings: Findings) -> frozenset[int]:
    """Checks that all schemas can be read, and that rows can be merged under the newest schema.
    Returns the ids of the readable schemas.
    """
    store = SchemaStore(storage)
    readable = set()
    newest: TableSchema | None = None
    for number in store.ids():
        try:
            schema = store.get(number)
        except FormatError as error:
            path = layout.schema_path(number)
            findings.error(
                "schema-broken",
                f"{path} cannot be read: {error}",
                path,
                "Restore the file from a backup.",
            )
            continue
        readable.add(number)
        newest = schema
    if newest is not None:
        try:
            check_definition(table_of(storage, newest))
        except (InvalidOption, IncompatibleSchema) as error:
            path = layout.schema_path(newest.id)
            findings.error(
                "schema-contradictory",
                f"Under {path} no engine can write or merge rows: {error}",
                path,
                "Correct the option or the column with ALTER TABLE of another engine; "
                "files stay as they are.",
            )
    findings.checked["schemas"] = len(readable)
    return frozenset(readable)


def check_consumers(storage: Storage, ids: Sequence[int], findings: Findings) -> None:
    """Checks that consumers can be read, and that the snapshot they read next still exists
    (semantics.md §11).
    """
    for stat in consumer_files(storage):
        try:
            following = next_snapshot(storage, stat.path)
        except NotFound:
            continue
        except CorruptMetadata as error:
            findings.error(
                "consumer-broken",
                f"{error.message} Java fails on it when it expires snapshots.",
                stat.path,
                "Delete the file: the consumer starts over.",
            )
            continue
        findings.checked["consumers"] += 1
        if ids and following < ids[0]:
            findings.warning(
                "consumer-behind",
                f"{stat.path} wants snapshot {following}; the oldest is {ids[0]}.",
                stat.path,
                "Reset the consumer, or delete it if nobody reads with it.",
            )
        elif ids and following > ids[-1] + 1:
            findings.warning(
                "consumer-ahead",
                f"{stat.path} wants snapshot {following}; the newest is {ids[-1]}.",
                stat.path,
                "Was the table rolled back? Reset the consumer.",
            )


def check_journals(table: Table, roots: Sequence[CheckedRoot], findings: Findings) -> None:
    """Checks that journals can be read, and that the files of a batch that is not yet committed
    exist.
    """
    storage = table.storage
    committed = defaultdict[str, set[int]](set)
    for root in roots:
        committed[root.snapshot.commit_user].add(root.snapshot.commit_identifier)
    for folder in layout.user_folders(storage):
        journal = Journal(storage, user="", folder=folder)
        batches = journal.batches()
        for batch in batches:
            path = f"{folder}/{batch}"
            try:
                entry = journal.read(batch)
            except FormatError as error:
                findings.error(
                    "journal-broken",
                    f"{path} cannot be read: {error}",
                    path,
                    "Move the file away, and the file 'writer' beside it.",
                )
                continue
            if entry is None:
                continue
            findings.checked["journals"] += 1
            if batch != batches[-1] or any(batch in numbers for numbers in committed.values()):
                continue  # the batch was published: a later batch is journalled only after that
            missing = [
                path
                for path in data_files(table.layout, entry.messages)
                if not storage.exists(path)
            ]
            if missing:
                findings.warning(
                    "journal-files-missing",
                    f"Batch {batch} is not committed yet, and {len(missing)} of its files "
                    "are gone.",
                    path,
                    "Restart the stream with its checkpoint: it writes the batch again.",
                )
