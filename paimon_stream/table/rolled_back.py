"""Which snapshots rollbacks removed (`_paimon_stream/rolled-back.json`): their nonces, the newest first.

It is a hint: a rollback that was killed, or one of another engine, leaves none. It only keeps a batch that
was removed on purpose from being committed again.
"""

import logging
from collections.abc import Iterable
from typing import Final

from paimon_stream.errors import FormatError, NotFound, StorageError
from paimon_stream.format.json_text import MOST_JSON, decode_checksummed, encode_checksummed
from paimon_stream.storage.base import Storage
from paimon_stream.table.layout import OWN_FOLDER

_LOG = logging.getLogger(__name__)
_PATH: Final = f"{OWN_FOLDER}/rolled-back.json"
_KIND: Final = "rollbacks"
_MOST: Final = 1000


def note_rolled_back(storage: Storage, nonces: Iterable[str]) -> None:
    """Adds nonces, the newest first. A failure is logged, because a rollback must work on a full disk."""
    try:
        kept = [*nonces, *rolled_back(storage)][:_MOST]
        storage.write_hint(_PATH, encode_checksummed(_KIND, {"nonces": kept}))
    except StorageError as why:
        _LOG.warning("%s: could not note which snapshots were rolled back: %s", storage.location, why)


def rolled_back(storage: Storage) -> tuple[str, ...]:
    """The nonces; none if the file is missing or cannot be read. Raises `StorageError`."""
    try:
        return tuple(map(str, decode_checksummed(_KIND, storage.read(_PATH, MOST_JSON), _PATH)["nonces"]))
    except (NotFound, FormatError, KeyError, TypeError):
        return ()
