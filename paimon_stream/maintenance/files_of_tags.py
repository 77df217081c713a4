"""Reads which files the tags of a table need.

Invariant: all tags count, wherever they are. In the lineage the tag next below a snapshot has every
file that a tag further below shares with that snapshot. But a writer that does not publish
atomically may have replaced tagged snapshots, any number of them, and files of a replaced snapshot
may be committed again above later tags (`stream/recommit.py`). When the snapshots in their place
have expired, nothing shows that a tag lies beside the lineage.

A tag may be deleted while it is read, and its files with it. Such a tag needs nothing: nobody can
make it again without another tag that keeps its files (`tags.py`). So it is left out.

What a tag needs never changes. So whoever expires again and again keeps a `FilesOfTags`, and each
tag is read once.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from paimon_stream.errors import CorruptMetadata
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.maintenance.needed import live_entries, metadata_names
from paimon_stream.storage.base import Storage
from paimon_stream.storage.read_ahead import in_groups
from paimon_stream.storage.together import AT_ONCE
from paimon_stream.table.layout import tag_path
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.references import NameSet, read_tag, removal_of_tag

_NO_FILE: Final = frozenset[str]()


class FilesOfTags:
    """The files that tags need, as far as they were read. A snapshot is known by its nonce, which no
    other snapshot of any table has.
    """

    def __init__(self) -> None:
        self._metadata: dict[str, frozenset[str]] = {}
        """The names of the metadata files of each tagged snapshot, by its nonce."""
        self._live = NameSet()
        """The names of the data files that are live in some of the tagged snapshots."""
        self._live_of: set[str] = set()
        """The nonces of these snapshots."""

    def metadata(self, storage: Storage, tags: Mapping[str, Snapshot]) -> frozenset[str]:
        """The names of all files in `manifest/`, `index/` and `statistics/` that the tags need.

        Args:
            storage: the table.
            tags: all tags of the table: their snapshots, by the paths of the tags.

        Raises:
            CorruptMetadata: a list or an index manifest is gone or broken. The message names the
                tag that needs it.
            StorageError: the storage fails.
        """
        nonces = {tag.nonce for tag in tags.values()}
        self._metadata = {
            nonce: names for nonce, names in self._metadata.items() if nonce in nonces
        }
        unread = {tag.nonce: path for path, tag in tags.items() if tag.nonce not in self._metadata}
        for paths in in_groups(unread.values(), AT_ONCE):
            reads = [partial(_metadata_of, storage, path, tags) for path in paths]
            for path, names in zip(paths, storage.together(reads), strict=True):
                if names is not None:
                    self._metadata[tags[path].nonce] = names
        return _NO_FILE.union(*self._metadata.values())

    def live(self, storage: Storage, tags: Mapping[str, Snapshot]) -> NameSet:
        """The names of all data files and extra files that are live in the tags. Reads each manifest
        of tags that are new since the last call; if a tag was deleted since then, those of all
        tags. Takes the arguments, and raises the errors, of `metadata`.
        """
        self.metadata(storage, tags)
        by_nonce = {tag.nonce: tag for tag in tags.values() if tag.nonce in self._metadata}
        if not self._live_of <= by_nonce.keys():
            self._live = NameSet()
            self._live_of = set()
        unread = [tag for nonce, tag in by_nonce.items() if nonce not in self._live_of]
        try:
            for entry in live_entries(ManifestStore(storage), *unread):
                self._live.add((entry.file.file_name, *entry.file.extra_files))
        except CorruptMetadata as error:
            broken = str(error.context.get("path", "")).rpartition("/")[2]
            needing = {
                path: tag
                for path, tag in tags.items()
                if broken in self._metadata.get(tag.nonce, ())
            }
            path = _still_there(storage, needing)
            if path is not None:
                raise _needed_by(path, error) from None
            if not needing:
                raise
            left = {path: tag for path, tag in tags.items() if path not in needing}
            return self.live(storage, left)
        self._live_of.update(by_nonce)
        return self._live


def _metadata_of(
    storage: Storage, path: str, tags: Mapping[str, Snapshot]
) -> frozenset[str] | None:
    """The names of the metadata files that the tag at a path needs; None if it and all other
    `tags` of its snapshot were deleted meanwhile.
    """
    tag = tags[path]
    try:
        return metadata_names(storage, ManifestStore(storage), tag)
    except CorruptMetadata as error:
        of_snapshot = {other: tags[other] for other in tags if tags[other].nonce == tag.nonce}
        standing = _still_there(storage, of_snapshot)
        if standing is None:
            return None
        raise _needed_by(standing, error) from None


def _still_there(storage: Storage, tags: Mapping[str, Snapshot]) -> str | None:
    """The path of the first of these tags that exists with the same snapshot; None if there is
    none.
    """
    for path, tag in tags.items():
        present = read_tag(storage, path)
        if present is not None and present.nonce == tag.nonce:
            return path
    return None


def _needed_by(path: str, error: CorruptMetadata) -> CorruptMetadata:
    """The error for a file that a tag or pin needs."""
    name = path.removeprefix(tag_path(""))
    return CorruptMetadata(
        f"{error.message} The tag {name!r} needs it. If verify() names no snapshot that needs it, "
        f"{removal_of_tag(path)}",
        **error.context,
    )
