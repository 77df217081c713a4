"""Decides whether anything refers to a file of a table. Code that deletes files which it has not
just written asks this module. There are two exceptions, expiry and the deletion of tags. These two
delete only files that the removed snapshots name, or that the next snapshot replaced. They ask
`maintenance/kept_files.py`.

A file is referred to by the journal of a stream, if it waits to be committed or removed, or by a
*root*: a snapshot, tag or long-lived changelog of the table or of one of its branches.

Invariants:

- Journals are read before roots. An entry disappears only after its batch was published or its
  attempt was given up. So a file that is no longer in a journal is either in a root that is read
  later, or will never be committed.
- Roots are listed again until a listing names only roots that were read completely. A listing may
  miss a tag that is made while its snapshot expires. The next listing does not miss it. The first
  listing is the last one only if there is no root at all.
- The set of names only grows. A name to which a root refers stays in use, even if the root vanishes
  meanwhile.
- If anything cannot be read, an error is raised, because then no file is known to be unused. A
  manifest with another number of entries than its list says is an error, too. The only exception is
  a file that is missing because its root itself has vanished or was replaced in the meantime. To
  find that out, the root is read from the storage itself, and not from what was read ahead.
- The changelog of a snapshot expires with the snapshot, even if a tag or a branch keeps the
  snapshot (semantics.md §8). So the changelog's list and manifests must exist only for a snapshot
  of main that no tag has: a snapshot that a tag has may have been restored from the tag. That is
  why tags are read before the snapshots of their branch.
- Files may be named only in fields that this release does not know, such as the sidecars of
  manifests in lists of Paimon 2 (`_EXTRA_FILES`, format.md §1.5). Every text in an unknown field of
  a root, a list, a manifest or an index manifest counts as a name in use. A name that is only a
  part of a text in a record is not found.
- Names are kept as hashes of 64 bits each. Two names with the same hash make an unused file look
  used, never the reverse.
"""

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from paimon_stream.errors import CommitContended, CorruptMetadata, FormatError, NotFound
from paimon_stream.format.avro_file import blocks_of
from paimon_stream.format.entries import ManifestFileMeta
from paimon_stream.format.json_text import MOST_JSON
from paimon_stream.format.mentions import Mentions
from paimon_stream.format.snapshot_json import Snapshot, decode_snapshot
from paimon_stream.format.unknown_fields import UnknownFields, texts_in
from paimon_stream.reports import Progress, silent
from paimon_stream.runtime import Runtime
from paimon_stream.storage import branch as of_branch
from paimon_stream.storage.base import FileStat, Storage
from paimon_stream.storage.read_ahead import ReadAhead
from paimon_stream.storage.together import AT_ONCE
from paimon_stream.table import layout
from paimon_stream.table.journal import Journal, JournalEntry
from paimon_stream.table.manifests import ManifestStore, expect_manifests
from paimon_stream.table.snapshots import when_whole

_ROOTS: Final = tuple(
    (folder, f"{folder}-")
    for folder in (layout.TAG_FOLDER, layout.SNAPSHOT_FOLDER, layout.CHANGELOG_FOLDER)
)
_ROUNDS: Final = 20
"""How often roots are listed at most, while they come and go."""
_PENDING: Final = 1 << 16
"""How many names may wait to be sorted."""


def name_hash(name: str) -> int:
    """The hash of a file's bare name. The hash is valid only in this process."""
    return hash(name.encode("utf-8", "surrogatepass"))


class NameSet:
    """A set of names that only grows. Each name takes eight bytes of memory."""

    def __init__(self, hashes: npt.NDArray[np.int64] | None = None) -> None:
        self._sorted = np.empty(0, dtype=np.int64) if hashes is None else hashes
        self._pending: list[int] = []

    def add(self, names: Iterable[str]) -> None:
        """Adds the names."""
        self._pending.extend(map(name_hash, names))
        if len(self._pending) > _PENDING:
            self._settle()

    def update(self, other: "NameSet") -> None:
        """Adds the names of another set."""
        self._pending.extend(other._pending)
        if len(other._sorted):
            self._sorted = np.union1d(self._sorted, other._sorted)
        if len(self._pending) > _PENDING:
            self._settle()

    def __contains__(self, name: str) -> bool:
        if self._pending:
            self._settle()
        wanted = name_hash(name)
        position = int(np.searchsorted(self._sorted, wanted))
        return position < len(self._sorted) and int(self._sorted[position]) == wanted

    def _settle(self) -> None:
        self._sorted = np.union1d(self._sorted, np.array(self._pending, dtype=np.int64))
        self._pending = []


def histories(storage: Storage) -> list[Storage]:
    """The storages of the table and of each of its branches. `storage` may show any of them."""
    table = of_branch.whole_of(storage)
    branch_names = of_branch.branch_names(table)
    return [table, *(of_branch.branch_storage(table, name) for name in branch_names)]


def branches(storage: Storage) -> list[str]:
    """The folders that have snapshots: the table's own (`""`), and `branch/branch-<name>/` of each
    branch.
    """
    return ["", *map(of_branch.branch_folder, of_branch.branch_names(storage))]


class Root(NamedTuple):
    """A file that defines a state of the table: a `tag`, `snapshot` or `changelog` of one of the
    `branches`.
    """

    branch: str
    folder: str
    stat: FileStat


def list_roots(storage: Storage, *, others: bool = False) -> Iterator[Root]:
    """The snapshots, tags and long-lived changelogs of the table and of all its branches. Their
    paths are relative to the table's folder.

    Args:
        storage: the table or one of its branches.
        others: whether only other branches count. If so, the roots of the branch (or of main) that
            the storage shows are left out.
    """
    shown = _branch_folder(storage)
    for branch in branches(storage):
        if others and branch == shown:
            continue
        for folder, prefix in _ROOTS:
            for stat in of_branch.whole_of(storage).list_files(f"{branch}{folder}", prefix):
                if folder == layout.TAG_FOLDER or layout.id_in_name(stat.name, prefix) is not None:
                    yield Root(branch, folder, stat)


def _branch_folder(storage: Storage) -> str:
    """The folder of the branch that the storage shows; empty for main."""
    return storage.folder if isinstance(storage, of_branch.BranchStorage) else ""


def read_tag(storage: Storage | ReadAhead, path: str) -> Snapshot | None:
    """The snapshot in the file of a tag or pin; None if the file is gone. Raises `StorageError`,
    and `CorruptMetadata` or `UnknownVersion`, whose messages say how to remove the file.
    """
    advice = f"Restore the file, or {removal_of_tag(path)}"
    try:
        return decode_snapshot(storage.read(path, MOST_JSON), f"{storage.location}/{path}", advice)
    except NotFound:
        return None
    except FormatError as error:
        if advice in error.message:
            raise
        raise type(error)(f"{error.message} {advice}", **error.context) from None


def removal_of_tag(path: str) -> str:
    """Says how to remove a tag or pin that cannot be read, as the end of a sentence."""
    name = path.removeprefix(layout.tag_path(""))
    if name.startswith(layout.PIN_PREFIX):
        return (
            "end the rollback that made it: make sure that it no longer runs, and call "
            "rollback_to() with take_over (--take-over)."
        )
    return (
        f"delete the tag {name!r} with delete_tag(). "
        "The data files that only it kept then stay until remove_orphan_files() removes them."
    )


def _journal_entries(storage: Storage) -> Iterator[JournalEntry]:
    for history in histories(storage):
        for folder in layout.user_folders(history):
            journal = Journal(history, user="", folder=folder)
            for batch in journal.batches():
                entry = journal.read(batch)
                if entry is not None:  # else its batch was published meanwhile
                    yield entry


def journalled_names(storage: Storage) -> Iterator[str]:
    """The names of all data, changelog, index and extra files in journals, including files that a
    batch removes or that an earlier attempt gave up. Raises `CorruptMetadata`, `UnknownVersion`,
    `StorageError`.
    """
    for entry in _journal_entries(storage):
        yield from _named_by(entry)


def _named_by(entry: JournalEntry) -> Iterator[str]:
    yield from (path.rpartition("/")[2] for path in entry.abandoned)
    for message in entry.messages:
        yield from message.file_names()


def names_in_use(storage: Storage, runtime: Runtime, names: Collection[str]) -> frozenset[str]:
    """The file names among `names` to which anything in the table refers. Reads every manifest of
    the table once, so it is to be called rarely. Raises what `References.read` raises. After an
    error, no name is known to be unused.
    """
    wanted = [name.encode("utf-8", "surrogatepass") for name in names]
    used = NameSet(References(storage, runtime, Mentions(wanted)).read())
    return frozenset(name for name in names if name in used)


def names_kept_beside_history(
    storage: Storage, runtime: Runtime, names: Collection[str]
) -> frozenset[str]:
    """The file names among `names` to which a tag, a long-lived changelog or another branch refers.
    The snapshots of the history that the storage shows, and the journals, are not read, because the
    caller has checked them. If there is no tag, changelog or branch, this costs one listing of each
    folder. If there are any, their manifests are read. Raises what `References.read` raises. After
    an error, no name is known to be unused.
    """
    wanted = [name.encode("utf-8", "surrogatepass") for name in names]
    kept = NameSet(References(storage, runtime, Mentions(wanted)).read_beside(storage))
    return frozenset(name for name in names if name in kept)


@dataclass(slots=True)
class References:
    """The names of files in use in a table and all its branches. Either `read` or `read_beside` is
    called, once.

    Attributes:
        storage: the table.
        runtime: the clock for reading half-written files again.
        mentions: finds the file names in question.
        progress: is called with the kind of files that are being read, how many were read, and how
            many there are.
        protected: the uuids of metadata that journalled attempts may still publish.
        roots: how many roots were read.
    """

    storage: Storage
    runtime: Runtime
    mentions: Mentions
    progress: Progress = silent
    protected: set[str] = field(default_factory=set, init=False)
    roots: int = field(default=0, init=False)
    # The hashes of the names in use. The hash of a name that was found several times is listed
    # several times.
    _names: "array[int]" = field(default_factory=lambda: array("q"), init=False)
    # The names of the lists and manifests that were read completely.
    _read: set[str] = field(default_factory=set, init=False)
    # The digests of the blocks of manifests that were searched.
    _blocks: set[bytes] = field(default_factory=set, init=False)
    _ahead: ReadAhead = field(init=False)
    # The nonces of the snapshots that have a tag.
    _tagged: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.storage = of_branch.whole_of(self.storage)
        self._ahead = ReadAhead(self.storage)

    def read(self) -> npt.NDArray[np.int64]:
        """The hashes of all names in use, sorted. Raises `CorruptMetadata`, `UnknownVersion` or
        `StorageError` if anything cannot be read. Raises `CommitContended` if roots come and go
        faster than they can be read.
        """
        self._read_journals()
        return self._read_roots(lambda root: True)

    def read_beside(self, history: Storage) -> npt.NDArray[np.int64]:
        """The hashes of all names to which roots refer, sorted. The snapshots of `history`, which
        is the table or one of its branches, are not read. Raises what `read` raises.
        """
        left_out = (_branch_folder(history), layout.SNAPSHOT_FOLDER)
        return self._read_roots(lambda root: (root.branch, root.folder) != left_out)

    def _read_roots(self, wanted: Callable[[Root], bool]) -> npt.NDArray[np.int64]:
        known: set[FileStat] = set()
        for _ in range(_ROUNDS):
            unread = [
                root for root in self._list_roots() if wanted(root) and root.stat not in known
            ]
            if not unread:
                return np.unique(np.frombuffer(self._names, dtype=np.int64))
            for done, root in enumerate(unread):
                self.progress("snapshots", done, len(unread))
                if done % AT_ONCE == 0:
                    self._expect(unread[done : done + AT_ONCE])
                if self._read_root(root):
                    known.add(root.stat)
                    self.roots += 1
        raise CommitContended(
            f"snapshots came and went while they were read, {_ROUNDS} times. Nothing was deleted. "
            "Try again when fewer writers are at work.",
            attempts=_ROUNDS,
        ).of_table(self.storage.location)

    def _add(self, *names: str | None) -> None:
        self._names.extend([name_hash(name) for name in names if name is not None])

    def _read_journals(self) -> None:
        for entry in _journal_entries(self.storage):
            self._add(*_named_by(entry))
            self.protected.update(entry.stage_uuids)

    def _list_roots(self) -> list[Root]:
        """All roots. Raises an error for a branch without a schema, as Java does, even if only its
        deletion was interrupted.
        """
        for name in of_branch.branch_names(self.storage):
            folder = f"{self.storage.location}/{of_branch.branch_folder(name)}".rstrip("/")
            schemas = self.storage.list_files(
                f"{of_branch.branch_folder(name)}{layout.SCHEMA_FOLDER}", "schema-"
            )
            has_schema = any(
                layout.id_in_name(schema.name, "schema-") is not None for schema in schemas
            )
            if not has_schema and not of_branch.is_noted(self.storage, name):
                raise CorruptMetadata(
                    f"{folder} is a branch without a schema, so what it refers to is not known. "
                    "Delete it with delete_branch(), or restore its schema.",
                    path=folder,
                )
        return list(list_roots(self.storage))

    def _expect(self, roots: list[Root]) -> None:
        """Begins to read the files of these roots. The roots were listed before, so the order of
        listing and reading is the same as without reading ahead. Names in files that expire in the
        meantime stay in use.
        """
        if not self._ahead.helps:
            return
        self._ahead.forget()
        self._ahead.expect([(root.stat.path, root.stat.size) for root in roots])
        snapshots = []
        for root in roots:
            with suppress(FormatError):  # the reader reports it
                data = self._ahead.peek(root.stat.path)
                if data is not None:
                    snapshots.append(decode_snapshot(data, root.stat.path))
        expect_manifests(self._ahead, snapshots, self._read)

    def _read_root(self, root: Root) -> bool:
        """Records the names to which the root refers; False if the root has vanished in the
        meantime.
        """
        snapshot = self._snapshot_in(root.stat, self._ahead)
        if snapshot is None:
            return False
        if root.folder == layout.TAG_FOLDER:
            self._tagged.add(snapshot.nonce)  # tags are listed before snapshots
        # The changelog of a snapshot expires with the snapshot in main. So it may be missing for a
        # branch, for a tag, and for a snapshot that may have been restored from a tag (semantics.md
        # §8).
        changelog_must_exist = (
            not root.branch
            and root.folder == layout.SNAPSHOT_FOLDER
            and snapshot.nonce not in self._tagged
        )
        try:
            self._read_snapshot(
                snapshot,
                data_must_exist=root.folder != layout.CHANGELOG_FOLDER,
                changelog_must_exist=changelog_must_exist,
            )
        except CorruptMetadata as error:
            if self._snapshot_in(root.stat, self.storage) != snapshot:
                return False
            is_tag_of_main = root.folder == layout.TAG_FOLDER and not root.branch
            if not is_tag_of_main:
                raise
            tag = root.stat.name.removeprefix("tag-")
            raise CorruptMetadata(
                f"{error.message} The tag {tag!r} needs it. If verify() names no snapshot that needs it, "
                f"{removal_of_tag(root.stat.path)}",
                **error.context,
            ) from None
        return True

    def _snapshot_in(self, root: FileStat, source: Storage | ReadAhead) -> Snapshot | None:
        """The snapshot in the file of a root, as `source` has it; None if the file is gone. A
        half-written file is read again for a while.
        """
        path = f"{self.storage.location}/{root.path}"

        def look() -> Snapshot | None:
            if root.path.startswith(layout.tag_path("")):
                return read_tag(source, root.path)
            return decode_snapshot(source.read(root.path, MOST_JSON), path)

        try:
            return when_whole(look, self.runtime.clock)
        except NotFound:
            return None

    def _read_snapshot(
        self, snapshot: Snapshot, *, data_must_exist: bool, changelog_must_exist: bool
    ) -> None:
        """Records the names to which a snapshot refers. A long-lived changelog keeps only the lists
        that it needs.

        Args:
            snapshot: the snapshot in the file of the root.
            data_must_exist: whether its base and delta lists must exist.
            changelog_must_exist: whether its changelog list must exist.
        """
        store = ManifestStore(self._ahead)
        lists = (
            (snapshot.base_manifest_list, snapshot.base_manifest_list_size, data_must_exist),
            (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size, data_must_exist),
            (
                snapshot.changelog_manifest_list,
                snapshot.changelog_manifest_list_size,
                changelog_must_exist,
            ),
        )
        self._add(snapshot.index_manifest, snapshot.statistics, *(name for name, _, _ in lists))
        for text in texts_in(snapshot.unknown):
            self._add(text, text.rpartition("/")[2])
        for name, size, must_exist in lists:
            if name is None or name in self._read:
                continue
            if must_exist:
                for meta in store.read_list(name, size):
                    self._read_manifest(meta)
                self._read.add(name)
            else:
                self._read_what_is_left(store, name, size)
        index = snapshot.index_manifest
        if index is None or index in self._read:
            return
        if data_must_exist or self._has_manifest(index):
            for entry in store.index_entries(index):
                self._add(entry.file.file_name)
                self._add_mentioned(entry.unknown)
            self._read.add(index)

    def _read_what_is_left(self, store: ManifestStore, list_name: str, size: int | None) -> None:
        """Records the names to which a manifest list refers. The list and its manifests may have
        expired, or may expire while they are read.
        """
        if not self._has_manifest(list_name):
            return
        name = list_name
        try:
            for meta in store.read_list(list_name, size):
                name = meta.file_name
                if self._has_manifest(name):
                    self._read_manifest(meta)
        except CorruptMetadata:
            if self._has_manifest(name):
                raise

    def _add_mentioned(self, unknown: UnknownFields) -> None:
        """Records those of the names in question that unknown fields mention."""
        for field_of_newer in unknown:
            self._names.extend(self.mentions.hashes(field_of_newer.data))

    def _read_manifest(self, meta: ManifestFileMeta) -> None:
        """Records the names to which a manifest refers, if it was not read yet. Also records the
        names that the manifest list has for the manifest.
        """
        self._add_mentioned(meta.unknown)
        if meta.file_name in self._read:
            return
        path = f"{self.storage.location}/{layout.manifest_path(meta.file_name)}"
        try:
            data = self._ahead.read(layout.manifest_path(meta.file_name))
        except NotFound:
            raise CorruptMetadata(
                f"{path} is missing, although a snapshot names it. {_CURE}", path=path
            ) from None
        _, blocks_read = blocks_of(data, path)
        blocks = list(blocks_read)
        held = sum(block.records for block in blocks)
        listed = meta.num_added_files + meta.num_deleted_files
        if held != listed:
            raise CorruptMetadata(
                f"{path} holds {held} entries; its manifest list says {listed}. {_CURE}", path=path
            )
        for block in blocks:  # merging manifests copies most of their blocks
            digest = blake2b(block.data, digest_size=16).digest()
            if digest not in self._blocks:
                self._blocks.add(digest)
                self._names.extend(self.mentions.hashes(block.data))
        self._add(meta.file_name)
        self._read.add(meta.file_name)

    def _has_manifest(self, name: str) -> bool:
        return self.storage.exists(layout.manifest_path(name))


_CURE: Final = (
    "Nothing was deleted. Restore the file from a backup, let expiry finish with the snapshots that use it, "
    "or roll the table back to one that does not."
)
