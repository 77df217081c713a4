"""Finds the batches in the journals of all streams of a table, and the files of these batches in
snapshots.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from urllib.parse import unquote

from paimon_stream.errors import FormatError
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.storage.base import Storage
from paimon_stream.table.journal import Journal, JournalEntry
from paimon_stream.table.layout import user_folders
from paimon_stream.table.live import live_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.message_files import written_files
from paimon_stream.table.partition_spec import PartitionFilter
from paimon_stream.table.table import Table


def journalled_batches(storage: Storage) -> Iterator[tuple[str, JournalEntry]]:
    """All pairs of a commit user of the table and an entry of this user's journal. Entries that
    cannot be read are left out, because each stream reports its own damaged entries. Raises
    `StorageError`.
    """
    for folder in user_folders(storage):
        journal = Journal(storage, user="", folder=folder)
        for batch_id in journal.batches():
            with suppress(FormatError):
                entry = journal.read(batch_id)
                if entry is not None:
                    yield unquote(folder.rpartition("/")[2]), entry


def live_files_of(
    table: Table, snapshot: Snapshot | None, entry: JournalEntry | None, *, removed: bool = False
) -> int:
    """How many data files of the attempts that `entry` names are live in a snapshot. File names are
    unique, so one live file proves that its attempt was published.

    Args:
        table: the table.
        snapshot: the snapshot; None for an empty table.
        entry: an entry of a journal; None if there is none.
        removed: whether also files count that were removed since, for example by a compaction, and
            that manifests still mention.

    Raises:
        FormatError: a manifest cannot be read.
        StorageError: the storage failed.
    """
    if snapshot is None or entry is None:
        return 0
    manifests = ManifestStore(table.storage)
    layout = table.layout
    prepared = {*entry.abandoned, *written_files(layout, entry.messages)}
    if not prepared:
        return 0
    # The partitions of the abandoned files are not recorded.
    touched = None if entry.abandoned else {message.partition for message in entry.messages}
    chosen = PartitionFilter(table.partition_types, rows=touched)
    metas = manifests.base_and_delta(snapshot)
    entries: Iterable[ManifestEntry]
    if removed:
        entries = manifests.entries_of(metas, chosen)
    else:
        entries = live_files(manifests, metas, table.partition_types, chosen)
    # Another engine may have committed entries whose files can have no path in the table.
    names = {path.rpartition("/")[2] for path in prepared}
    named_so = [
        manifest_entry for manifest_entry in entries if manifest_entry.file.file_name in names
    ]
    return len(prepared & {layout.file_of(manifest_entry) for manifest_entry in named_so})
