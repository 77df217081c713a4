"""Finds the files that must stay when snapshots expire: the files that tags, other branches,
journals and long-lived changelogs need. `expire_run.py` has the order in which the other files are
deleted.
"""

import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from paimon_stream.errors import CorruptMetadata
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.maintenance.needed import (
    ChangelogStore,
    OtherBranches,
    changelog_needs,
    live_entries,
    metadata_names,
)
from paimon_stream.options import CHANGELOG_PRODUCER, Options
from paimon_stream.storage.base import FileStat
from paimon_stream.table.layout import TAG_FOLDER
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.option_rules import changelog_outlives
from paimon_stream.table.references import NameSet, journalled_names, read_tag
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)
_NEAREST: Final = 2
"""How many ids of tags are looked at on the way down: one of them may lie beside the lineage."""


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


class _FilesOfTags(NamedTuple):
    """The names of the live files of some tagged snapshots. The nonces tell which snapshots these
    are.
    """

    nonces: frozenset[str]
    names: NameSet


class KeptFiles:
    """The files that a run of expiry must not delete."""

    def __init__(
        self,
        table: Table,
        manifests: ManifestStore,
        changelogs: ChangelogStore,
        lists: dict[str, tuple[str, ...]],
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
        self._tag_names: dict[str, frozenset[str]] = {}
        """The metadata that tagged snapshots need, by their nonces."""
        self._files_of_tags: _FilesOfTags | None = None
        """The files of the tags that were asked for last."""
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
        self._tags = {}
        for stat in self._storage.list_files(TAG_FOLDER, "tag-"):
            tag = before.get(stat) or read_tag(self._storage, stat.path)
            if tag is not None:
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

    def _tags_up_to(self, snapshot_id: int) -> list[Snapshot]:
        """The tagged snapshots with the two largest ids up to this one. A tagged snapshot of the
        lineage has everything that an older tag shares with a snapshot that exists now. But a
        writer that does not publish atomically may have replaced a snapshot after it was tagged. So
        an id may have several tags, and the nearest one may be of a snapshot beside the lineage.
        """
        below = [tag for tag in self._tags.values() if tag.id <= snapshot_id]
        nearest_ids = sorted({tag.id for tag in below})[-_NEAREST:]
        return [tag for tag in below if tag.id in nearest_ids]

    def _tags_above(self, snapshot_id: int) -> list[Snapshot]:
        """The tagged snapshots with the smallest id above `snapshot_id`."""
        above = [tag for tag in self._tags.values() if tag.id > snapshot_id]
        nearest_id = min((tag.id for tag in above), default=0)
        return [tag for tag in above if tag.id == nearest_id]

    def names_kept(self, gone: Sequence[Snapshot], following: Snapshot) -> frozenset[str] | None:
        """The metadata that is kept when everything from the first of `gone` up to `following` is
        removed; None if that cannot be determined. It is what these need: `following`, the other
        branches, the tags in between, and the tags next below and above. The nearest tags are asked
        because snapshots may lie beside the lineage. The tags below are asked even where the id of
        the first snapshot is tagged: a paused writer may have created that id again after the
        tagged snapshot expired.
        """
        first = gone[0].id
        tags = [tag for tag in self._tags.values() if first <= tag.id < following.id]
        tags += self._tags_up_to(first - 1)
        for snapshot in gone:
            tags += self._tags_above(snapshot.id)
        try:
            kept = (
                metadata_names(self._storage, self._manifests, following, self._lists)
                | self.branches.metadata
            )
            before = self._tag_names
            self._tag_names = {}
            for nonce, tag in {tag.nonce: tag for tag in tags}.items():
                names = before.get(nonce)
                if names is None:
                    names = metadata_names(self._storage, self._manifests, tag)
                self._tag_names[nonce] = names
                kept |= names
            return kept
        except CorruptMetadata as error:
            _LOG.warning(
                "%s: metadata of the snapshots before %d stays as orphans; what is needed cannot "
                "be read: %s",
                self._storage.location,
                following.id,
                error,
            )
            return None

    def protected(self, snapshot_id: int, of_changelogs: NameSet) -> Callable[[str], bool]:
        """Returns a function for the names of data files that the snapshot after `snapshot_id`
        deleted. The function tells whether a tag, a branch, a journal or a long-lived changelog
        (`of_changelogs`) refers to the file.
        """
        sets = [self.journal_names(), self.branches.live_names(), of_changelogs]
        tags = self._tags_up_to(snapshot_id)
        if tags:
            nonces = frozenset(tag.nonce for tag in tags)
            if self._files_of_tags is None or self._files_of_tags.nonces != nonces:
                by_nonce = {tag.nonce: tag for tag in tags}
                self._files_of_tags = _FilesOfTags(nonces, self.live_names_of([*by_nonce.values()]))
            sets.append(self._files_of_tags.names)
        return lambda name: any(name in names for names in sets)

    def live_names_of(self, snapshots: Sequence[Snapshot]) -> NameSet:
        """The names of all data files and extra files that are live in these snapshots."""
        names = NameSet()
        for entry in live_entries(self._manifests, *snapshots):
            names.add((entry.file.file_name, *entry.file.extra_files))
        return names

    def journal_names(self) -> NameSet:
        """The names of the files in journals. The journals are read once in a run."""
        # Not a `cached_property`, which before Python 3.12 has one lock for all tables: to read
        # many journals takes long.
        if self._journalled is None:
            names = NameSet()
            names.add(journalled_names(self._storage))
            self._journalled = names
        return self._journalled
