"""Consumers: readers that record in `consumer/consumer-<id>` which snapshot they read next
(semantics.md §11). Unless `consumer.changelog-only` is set, no engine expires snapshots from the
smallest `nextSnapshot` on. A stream can be a consumer, too, to keep its own last snapshot
(`paimon-stream.protect-last-snapshot` = `consumer`).
"""

import json
import logging
from typing import Final

from paimon_stream.errors import CorruptMetadata, NotFound
from paimon_stream.format.json_text import MOST_JSON, integer, parse_json, understanding
from paimon_stream.storage.base import FileStat, Storage

_LOG = logging.getLogger(__name__)
CONSUMER_FOLDER: Final = "consumer"
_PREFIX: Final = "consumer-"


def consumer_path(name: str) -> str:
    """The file of the consumer with that name."""
    return f"{CONSUMER_FOLDER}/{_PREFIX}{name}"


def consumer_files(storage: Storage) -> list[FileStat]:
    """The files of all consumers. Raises `StorageError`."""
    return storage.list_files(CONSUMER_FOLDER, _PREFIX)


def consumers(storage: Storage) -> dict[str, int]:
    """The consumers by name, each with the id of the snapshot that it reads next. A consumer whose
    file cannot be understood counts as reading snapshot 0, so that nothing it may need expires.
    Raises `StorageError`.
    """
    next_ids: dict[str, int] = {}
    for file in consumer_files(storage):
        name = file.name[len(_PREFIX) :]
        try:
            next_ids[name] = next_snapshot(storage, file.path)
        except NotFound:
            continue  # the file was removed since the listing
        except CorruptMetadata:
            next_ids[name] = 0
            _LOG.warning(
                "%s/%s is not a consumer file; snapshots do not expire until it is repaired or removed.",
                storage.location,
                file.path,
            )
    return next_ids


def next_snapshot(storage: Storage, path: str) -> int:
    """The id of the snapshot that a consumer reads next, from the consumer's file. Raises
    `CorruptMetadata`, `StorageError`.
    """
    data = storage.read(path, MOST_JSON)
    with understanding(path, len(data), "a consumer file", "Repair it, or remove the consumer."):
        return integer(parse_json(data)["nextSnapshot"])


def write_consumer(storage: Storage, name: str, next_snapshot: int) -> None:
    """Records in the consumer's file which snapshot the consumer reads next. Raises
    `StorageError`.
    """
    content = json.dumps({"nextSnapshot": next_snapshot}, indent=2, separators=(",", " : "))
    storage.write(consumer_path(name), content.encode())
