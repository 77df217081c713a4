"""The journal: what a run had prepared when it began to commit (exactly-once.md §4). A batch has one small file beside
the table, `_paimon_stream/<commit user>/<batch id>`. It is written atomically before the commit; the last two stay."""

from functools import partial

from paimon_stream.errors import FormatError
from paimon_stream.format.journal_entry import JournalEntry, decode_journal_entry, encode_journal_entry
from paimon_stream.storage.base import Storage, read_if_there
from paimon_stream.table.layout import id_in_name, user_folder


class Journal:
    """The journal of one commit user in one table."""

    def __init__(self, storage: Storage, user: str, folder: str | None = None) -> None:
        """`folder` is for callers that read the journals of all users, and do not know the user."""
        self._storage = storage
        self._folder = folder or user_folder(user)
        self._kept: tuple[int, ...] | None = None  # the batches with an entry; None if unknown

    def batches(self) -> list[int]:
        """The batches that have an entry, ascending."""
        names = (stat.name for stat in self._storage.list_files(self._folder))
        return sorted(found for name in names if (found := id_in_name(name, "")) is not None)

    def read(self, batch_id: int) -> JournalEntry | None:
        """The entry of that batch. Raises `CorruptMetadata`, `UnknownVersion`."""
        path = self._path(batch_id)
        data = read_if_there(self._storage.read, path)
        return None if data is None else decode_journal_entry(data, path)

    def write(self, entry: JournalEntry) -> None:
        """Writes the entry atomically, and replaces that of an earlier attempt."""
        self._storage.write(self._path(entry.batch_id), encode_journal_entry(entry))
        if self._kept is not None:
            self._kept = (*(batch for batch in self._kept if batch != entry.batch_id), entry.batch_id)

    def trim(self, batch_id: int) -> None:
        """Removes the entries of batches before this one, except the last of them. Raises `StorageError`. Entries of
        later batches stay. They exist if this run was paused, and a later run went on without it."""
        there = self.batches() if self._kept is None else self._kept
        earlier = sorted(batch for batch in there if batch < batch_id)
        self._storage.together([partial(self.remove, batch) for batch in earlier[:-1]])
        self._kept = (*earlier[-1:], batch_id)

    def remove(self, batch_id: int) -> None:
        """Removes one entry. It is no error if the entry is missing."""
        self._storage.delete(self._path(batch_id))

    def remove_other_tables(self, schema_digest: str) -> None:
        """Removes the entries of other tables that were at this location: those with another digest of the
        first schema. Entries that cannot be read stay. Raises `StorageError`."""
        for batch_id in self.batches():
            try:
                entry = self.read(batch_id)
            except FormatError:
                continue
            if entry is not None and entry.schema_digest != schema_digest:
                self.remove(batch_id)

    def clear(self) -> None:
        """Removes all entries."""
        for batch_id in self.batches():
            self.remove(batch_id)

    def _path(self, batch_id: int) -> str:
        return f"{self._folder}/{batch_id}"
