"""Notes of the partitions that a metastore has yet to be told of (spec/catalogs.md §6.2).

A commit writes its note, `_paimon_stream/partitions.<uuid>.json`, before it publishes. The note
goes when the metastore has the partitions, or when the commit has published nothing. So the notes
that are left, after a kill or while the metastore is away, name every partition that the metastore
may lack. It may have some of them already. After a kill before the snapshot, a note may also name a
partition without rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from paimon_stream.format.json_text import MOST_JSON, encode_checksummed, reading_checksummed
from paimon_stream.storage.base import Storage, read_if_there
from paimon_stream.table.layout import OWN_FOLDER

_KIND: Final = "partitions"
_PREFIX: Final = "partitions."
_SUFFIX: Final = ".json"
_CURE: Final = "Move it away, and let a Java engine repair the table's partitions in the metastore."


def note_path(uuid: str) -> str:
    """The file of the note with this id."""
    return f"{OWN_FOLDER}/{_PREFIX}{uuid}{_SUFFIX}"


def encode_note(folders: Iterable[str]) -> bytes:
    """The content of a note of the partitions in these folders, which are relative to the table."""
    return encode_checksummed(_KIND, {"folders": list(folders)})


def decode_note(data: bytes, path: str) -> tuple[str, ...]:
    """The folders in a note; `path` is for messages. Raises `CorruptMetadata`, `UnknownVersion`."""
    with reading_checksummed(_KIND, data, path, "a note of partitions", _CURE) as body:
        return tuple(map(str, body["folders"]))


def read_notes(storage: Storage) -> Mapping[str, tuple[str, ...]]:
    """The folders in each note of a table or branch, by the path of the note. Raises
    `CorruptMetadata`, `UnknownVersion`, `StorageError`.
    """
    paths = [
        f"{OWN_FOLDER}/{name}"
        for name in storage.list_names(OWN_FOLDER, _PREFIX)
        if name.endswith(_SUFFIX)
    ]
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
