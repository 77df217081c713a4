"""Decoders that remember. Processes read the same few files again and again, and in thousands of
orders of the same operations the ids are the same each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

from paimon_stream.commit import publish
from paimon_stream.format import (
    avro_records,
    index_manifest,
    manifest_avro,
    schema_json,
    snapshot_json,
)
from paimon_stream.maintenance import needed, tags
from paimon_stream.read import scan
from paimon_stream.storage import base, memory
from paimon_stream.table import journal, manifests, references, schema, snapshots
from tests.kits.doubles import in_their_places
from tests.simulation import archive, truth, world

_FILES: Final = 4096
"""How many files of a kind are remembered."""


class _Decoder:
    """Decodes each content once. Its path is only for the message of an error, and an error is
    raised each time.
    """

    def __init__(self, decode: Callable[..., Any]) -> None:
        self._decode = decode
        self._known: dict[bytes, Any] = {}

    def __call__(self, data: bytes, path: str, *more: Any) -> Any:
        known = self._known.get(data)
        if known is None:
            if len(self._known) >= _FILES:
                self._known.clear()
            known = self._known[data] = self._decode(data, path, *more)
        return known


class _Lists(_Decoder):
    """The same for a list, which its reader may change."""

    def __call__(self, data: bytes, path: str, *more: Any) -> list[Any]:
        return list(super().__call__(data, path, *more))


class _Entries(_Lists):
    """The same for the entries of a manifest. Those of some partitions are chosen from all."""

    def __call__(
        self,
        data: bytes,
        path: str,
        holds: Callable[[bytes], bool] | None = None,
        of_interest: object = None,
    ) -> list[Any]:
        entries = super().__call__(data, path)
        return entries if holds is None else [one for one in entries if holds(one.partition)]


_snapshot = _Decoder(snapshot_json.decode_snapshot)
_entries = _Entries(manifest_avro.decode_manifest)
_metas = _Lists(manifest_avro.decode_manifest_list)
_names = _Lists(lambda *given: [*avro_records.read_records(*given)])
_index = _Decoder(index_manifest.decode_index_manifest)
_schema = _Decoder(schema_json.decode_schema)
_journal = _Decoder(journal.decode_journal_entry)
_path = lru_cache(1 << 16)(base.checked_path)

_PLACES: Final[tuple[tuple[Any, str, object], ...]] = (
    *((one, "decode_manifest", _entries) for one in (manifest_avro, archive)),
    (manifest_avro, "decode_manifest_list", _metas),
    *(
        (one, "decode_snapshot", _snapshot)
        for one in (snapshots, references, publish, needed, tags, scan, truth)
    ),
    *((one, "decode_index_manifest", _index) for one in (manifests, archive)),
    (needed, "read_records", _names),
    (schema, "decode_schema", _schema),
    *((one, "decode_journal_entry", _journal) for one in (journal, world)),
    (memory, "checked_path", _path),
)


@contextmanager
def remembered() -> Iterator[None]:
    """The decoders of the package, and of the simulation, remember what they have decoded."""
    with in_their_places(_PLACES):
        yield
