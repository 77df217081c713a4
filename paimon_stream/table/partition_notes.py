"""Notes of the partitions that a metastore has yet to be told of (spec/catalogs.md §6.2).

A commit writes its note, `_paimon_stream/partitions.<uuid>.json`, before it publishes. The note
goes when the metastore has the partitions, or when the commit has published nothing. So the notes
that are left, after a kill or while the metastore is away, name every partition that the metastore
may lack. It may have some of them already. After a kill before the snapshot, a note may also name a
partition without rows.

Where a metastore is told of tags, a note names each tag before it is created or deleted. Whoever
tells the metastore looks whether the tag exists, before and after. So whatever the order in which
several tell it, the last one leaves there what the table has.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from paimon_stream.format.json_text import MOST_JSON, encode_checksummed, reading_checksummed
from paimon_stream.storage.base import Storage, read_if_there
from paimon_stream.table.layout import OWN_FOLDER, tag_path

_KIND: Final = "partitions"
_PREFIX: Final = "partitions."
_SUFFIX: Final = ".json"
_CURE: Final = "Move it away, and let a Java engine repair the table's partitions in the metastore."
_LOOKS: Final = 10
"""How often tags are looked at that come and go while the metastore is told of them."""


@dataclass(frozen=True, slots=True)
class PartitionNote:
    """What a metastore has yet to be told. Folders are relative to the table.

    Attributes:
        folders: the folders of partitions that it may lack.
        tags: the folders of the partitions of tags, by the names of the tags. It may lack those of
            tags that exist, and may have those of others.
    """

    folders: Collection[str] = ()
    tags: Mapping[str, str] = field(default_factory=dict)


def note_path(uuid: str) -> str:
    """The file of the note with this id."""
    return f"{OWN_FOLDER}/{_PREFIX}{uuid}{_SUFFIX}"


def encode_note(note: PartitionNote) -> bytes:
    """The content of a note. Without tags, it is as older releases write it."""
    body: dict[str, Any] = {"folders": list(note.folders)}
    if note.tags:
        body["tags"] = dict(note.tags)
    return encode_checksummed(_KIND, body)


def decode_note(data: bytes, path: str) -> PartitionNote:
    """A note; `path` is for messages. Raises `CorruptMetadata`, `UnknownVersion`."""
    with reading_checksummed(_KIND, data, path, "a note of partitions", _CURE) as body:
        tags = {str(name): str(folder) for name, folder in body.get("tags", {}).items()}
        return PartitionNote(tuple(map(str, body["folders"])), tags)


def note_paths(storage: Storage) -> list[str]:
    """The files of the notes of a table or branch. Raises `StorageError`."""
    return [
        f"{OWN_FOLDER}/{name}"
        for name in storage.list_names(OWN_FOLDER, _PREFIX)
        if name.endswith(_SUFFIX)
    ]


def read_notes(storage: Storage) -> Mapping[str, PartitionNote]:
    """The notes of a table or branch, by their paths. Raises `CorruptMetadata`, `UnknownVersion`,
    `StorageError`.
    """
    paths = note_paths(storage)
    contents = storage.together(
        [partial(read_if_there, storage.read, path, MOST_JSON) for path in paths]
    )
    return {
        path: decode_note(content, path)
        for path, content in zip(paths, contents, strict=True)
        if content is not None
    }


def remove_notes(storage: Storage, paths: Sequence[str]) -> None:
    """Removes notes, some of which may be gone. Raises `StorageError`."""
    storage.together([partial(storage.delete, path) for path in paths])


def tell_notes(storage: Storage, own: Mapping[str, PartitionNote] | None = None) -> None:
    """Tells the metastore what is in the notes of a table or branch, and removes them.

    Args:
        storage: a storage whose partitions are in a metastore.
        own: notes of the caller, by their paths. Another process may have removed them already.

    Raises:
        CorruptMetadata, UnknownVersion: a note cannot be read.
        UnsupportedFeature: the metastore's table has no partition columns.
        StorageError: a note cannot be read, or the metastore refused.
    """
    notes = {**read_notes(storage), **(own or {})}
    folders = sorted({folder for note in notes.values() for folder in note.folders})
    if folders:
        cast(Any, storage).add_partitions(folders)
    tags = {name: folder for note in notes.values() for name, folder in note.tags.items()}
    if tags:
        _tell_tags(storage, tags)
    remove_notes(storage, list(notes))


def _tell_tags(storage: Storage, tags: Mapping[str, str]) -> None:
    """Adds the partitions of those tags that exist, and drops those of the others. Tags that were
    created or deleted meanwhile are told again.
    """
    there = _existing(storage, tags)
    changed = set(tags)
    for _ in range(_LOOKS):
        added = sorted(tags[name] for name in changed & there)
        dropped = sorted(tags[name] for name in changed - there)
        if added:
            cast(Any, storage).add_partitions(added)
        if dropped:
            cast(Any, storage).drop_partitions(dropped)
        now_there = _existing(storage, tags)
        changed = there ^ now_there
        if not changed:
            return
        there = now_there


def _existing(storage: Storage, names: Iterable[str]) -> set[str]:
    """Those of the tags with these names that exist."""
    asked = list(names)
    answers = storage.together([partial(storage.exists, tag_path(name)) for name in asked])
    return {name for name, exists in zip(asked, answers, strict=True) if exists}
