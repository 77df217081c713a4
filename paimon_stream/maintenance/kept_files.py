"""Finds the files that must stay when snapshots expire: the files that tags, other branches,
journals and long-lived changelogs need. `expire_run.py` has the order in which the other files are
deleted.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import NamedTuple

from paimon_stream.errors import CorruptMetadata
from paimon_stream.format.entries import FileKind, ManifestEntry, ManifestFileMeta
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.maintenance.files_of_tags import FilesOfTags
from paimon_stream.maintenance.needed import (
    ChangelogStore,
    OtherBranches,
    changelog_needs,
    entries_above,
    metadata_names,
)
from paimon_stream.options import CHANGELOG_PRODUCER, Options
from paimon_stream.storage.base import FileStat
from paimon_stream.storage.read_ahead import in_groups
from paimon_stream.storage.together import AT_ONCE
from paimon_stream.table.layout import TAG_FOLDER
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.option_rules import changelog_outlives
from paimon_stream.table.references import NameSet, journalled_names, read_tag
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)


class ChangelogRetention(NamedTuple):
    """How long changelogs are kept.

    Attributes:
        outlive: whether changelogs are kept longer than snapshots.
        with_appended: whether appended files are kept with changelogs.
    """

    outlive: bool
    with_appended: bool

    @classmethod
    def of(cls, schema: TableSchema) -> "ChangelogRetention":
        """The retention that the options in a schema ask for."""
        options = Options(schema.options)
        outlive = changelog_outlives(options)
        return cls(outlive, outlive and options.value(CHANGELOG_PRODUCER) == "none")


class _Listed(NamedTuple):
    """What the manifest lists of a snapshot name.

    Attributes:
        snapshot: the snapshot.
        metadata: the names of the files in `manifest/`, `index/` and `statistics/` that it needs.
        base: the names of the manifests in its base list.
        delta: the manifests of its own changes.
    """

    snapshot: Snapshot
    metadata: frozenset[str]
    base: frozenset[str]
    delta: tuple[ManifestFileMeta, ...]


class KeptFiles:
    """The files that a run of expiry must not delete."""

    def __init__(
        self,
        table: Table,
        manifests: ManifestStore,
        changelogs: ChangelogStore,
        lists: dict[str, tuple[str, ...]],
        of_tags: FilesOfTags,
    ) -> None:
        self._table = table
        self._storage = table.storage
        self._manifests = manifests
        self._changelogs = changelogs
        self._lists = lists
        """The manifests in the lists that the run has read, by the name of the list."""
        self.branches = OtherBranches(self._storage, manifests)
        """The other branches, as of `refresh_tags`."""
        self._tags: dict[FileStat, Snapshot] = {}
        """The tagged snapshots, as of `refresh_tags`, by the files of the tags."""
        self._of_tags = of_tags
        self._journalled: NameSet | None = None
        """The files in journals."""

    def tagged_nonces(self) -> set[str]:
        """The nonces of the tagged snapshots."""
        return {tag.nonce for tag in self._tags.values()}

    def refresh_tags(self) -> None:
        """Reads which branches and tags exist now. A branch or tag may have been made before the
        last snapshot was removed. Raises `CorruptMetadata`, `UnknownVersion`, `StorageError`.
        """
        self.branches.look()
        before = self._tags
        stats = self._storage.list_files(TAG_FOLDER, "tag-")
        self._tags = {stat: before[stat] for stat in stats if stat in before}
        for unread in in_groups([stat for stat in stats if stat not in before], AT_ONCE):
            reads = [partial(read_tag, self._storage, stat.path) for stat in unread]
            for stat, tag in zip(unread, self._storage.together(reads), strict=True):
                if tag is not None:  # else it was deleted meanwhile
                    self._tags[stat] = tag

    def older_changelogs(self) -> tuple[frozenset[str], NameSet]:
        """The names of the metadata files, and of the data files, that older long-lived changelogs
        need. These changelogs were written while the table had other options, so their changes are
        the data files of a delta list. Usually there are none.
        """
        metadata = frozenset[str]()
        files = NameSet()
        if not self._table.schema.id or ChangelogRetention.of(self._table.schema).with_appended:
            return metadata, files
        ids = self._changelogs.ids()
        if not ids or not self._appended_stayed:
            return metadata, files
        for changelog in filter(None, map(self._changelogs.find, ids)):
            if changelog.changelog_manifest_list is None:
                names, of_delta = changelog_needs(self._storage, self._manifests, changelog)
                metadata |= names
                files.add(of_delta)
        return metadata, files

    @cached_property
    def _appended_stayed(self) -> bool:
        """Whether the options of any schema keep appended files with changelogs. The schemas are
        read once in a run.
        """
        schemas = SchemaStore(self._storage)
        return any(
            ChangelogRetention.of(schemas.get(schema_id)).with_appended
            for schema_id in schemas.ids()
        )

    def names_kept(self, following: Snapshot) -> frozenset[str] | None:
        """The metadata that is kept when snapshots below `following` are removed; None if that
        cannot be determined. It is what `following`, the other branches and all tags need.
        """
        try:
            return (
                metadata_names(self._storage, self._manifests, following, self._lists)
                | self.branches.metadata
                | self.metadata_of_tags()
            )
        except CorruptMetadata as error:
            _LOG.warning(
                "%s: metadata of the snapshots before %d stays as orphans; what is needed cannot "
                "be read: %s",
                self._storage.location,
                following.id,
                error,
            )
            return None

    def protected(self, of_changelogs: NameSet) -> Callable[[str], bool]:
        """Returns a function for the names of data files that snapshots deleted. The function tells
        whether a tag, a branch, a journal or a long-lived changelog (`of_changelogs`) refers to the
        file. Raises `CorruptMetadata`, `StorageError`.
        """
        sets = [
            self.journal_names(),
            self.branches.live_names(),
            of_changelogs,
            self.live_names_of_tags(),
        ]
        return lambda name: any(name in names for names in sets)

    def metadata_of_tags(self) -> frozenset[str]:
        """The names of the metadata files that the tags need. Raises `CorruptMetadata`,
        `StorageError`.
        """
        return self._of_tags.metadata(self._storage, self._tags_by_path())

    def live_names_of_tags(self) -> NameSet:
        """The names of all data files and extra files that are live in the tags. Raises
        `CorruptMetadata`, `StorageError`.
        """
        return self._of_tags.live(self._storage, self._tags_by_path())

    def _tags_by_path(self) -> dict[str, Snapshot]:
        return {stat.path: tag for stat, tag in self._tags.items()}

    def files_of_history(
        self, snapshots: SnapshotStore, history: Sequence[Snapshot]
    ) -> tuple[frozenset[str], NameSet]:
        """The names of the metadata files, and of the data files and extra files, that the
        snapshots in `history` need, which are ascending. Those that have expired are left out.
        Raises `CorruptMetadata`, `StorageError`.
        """
        metadata = frozenset[str]()
        live = NameSet()
        expired: set[str] = set()
        below: _Listed | None = None
        for group in in_groups(history, AT_ONCE):
            reads = [partial(self._listed, snapshots, snapshot) for snapshot in group]
            listed: list[_Listed | None] = self._storage.together(reads)
            pairs = [*zip([below, *listed], listed, strict=False)]
            additions = [partial(self._added_above, snapshots, *pair) for pair in pairs]
            for (lower, upper), added in zip(pairs, self._storage.together(additions), strict=True):
                names: NameSet | None = added
                if lower is not None and lower.snapshot.nonce in expired:
                    names = self._added_above(snapshots, None, upper)
                if upper is None:
                    continue
                if names is None:
                    expired.add(upper.snapshot.nonce)
                    continue
                metadata |= upper.metadata
                live.update(names)
            below = listed[-1]
        return metadata, live

    def _listed(self, snapshots: SnapshotStore, snapshot: Snapshot) -> "_Listed | None":
        """What the manifest lists of a snapshot name. None if it has expired."""
        try:
            delta = self._manifests.delta(snapshot)
            lists = {snapshot.delta_manifest_list: tuple(meta.file_name for meta in delta)}
            metadata = metadata_names(self._storage, self._manifests, snapshot, lists)
        except CorruptMetadata:
            if snapshots.stands(snapshot):
                raise
            return None
        return _Listed(
            snapshot=snapshot,
            metadata=metadata,
            base=frozenset(lists[snapshot.base_manifest_list]),
            delta=delta,
        )

    def _added_above(
        self, snapshots: SnapshotStore, below: "_Listed | None", above: "_Listed | None"
    ) -> NameSet | None:
        """The names of the data files and extra files that a snapshot needs, apart from those that
        the snapshot below needs as well; all that it needs if there is none below. None if it has
        expired.
        """
        if above is None:
            return None
        live = NameSet()
        try:
            for entry in self._entries_above(snapshots, below, above):
                if entry.kind is FileKind.ADD:
                    live.add((entry.file.file_name, *entry.file.extra_files))
        except CorruptMetadata:
            if snapshots.stands(above.snapshot):
                raise
            return None
        return live

    def _entries_above(
        self, snapshots: SnapshotStore, below: "_Listed | None", above: "_Listed"
    ) -> Iterator[ManifestEntry]:
        if below is None or above.base != below.base | {meta.file_name for meta in below.delta}:
            snapshot_below = None if below is None else below.snapshot
            yield from entries_above(snapshots, self._manifests, snapshot_below, above.snapshot)
            return
        for meta in above.delta:
            if meta.num_added_files:
                yield from self._manifests.read(meta)

    def journal_names(self) -> NameSet:
        """The names of the files in journals. The journals are read once in a run."""
        # Not a `cached_property`, which before Python 3.12 has one lock for all tables: to read
        # many journals takes long.
        if self._journalled is None:
            names = NameSet()
            names.add(journalled_names(self._storage))
            self._journalled = names
        return self._journalled
