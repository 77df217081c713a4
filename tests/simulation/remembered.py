"""Decoders that remember. Processes read the same few files again and again, and in thousands of
orders of the same operations the ids are the same each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

from paimon_stream.commit import publish, stage
from paimon_stream.format import (
    avro_records,
    index_manifest,
    manifest_avro,
    schema_json,
    snapshot_json,
)
from paimon_stream.format.avro_file import AvroBlock
from paimon_stream.maintenance import needed, tags
from paimon_stream.read import scan
from paimon_stream.storage import base, memory
from paimon_stream.table import journal, manifests, references, schema, snapshots
from tests.kits.doubles import in_their_places
from tests.simulation import archive, truth, world
from tests.simulation.figures import summary_of
from tests.simulation.foreign import records_of
from tests.simulation.written import Written

_FILES: Final = 4096
"""How many files of a kind are remembered."""


class _Decoder:
    """Decodes each content once. Its path is only for the message of an error, and an error is
    raised each time.
    """

    def __init__(self, decode: Callable[..., Any]) -> None:
        self._decode = decode
        self._known: dict[bytes, Any] = {}
        self._meant: dict[bytes, Any] = {}

    def __call__(self, data: bytes, path: str, *more: Any) -> Any:
        known = self._known.get(data)
        if known is None:
            known = self._decode(data, path, *more)
            meant = self._meant.get(data)
            assert meant is None or known == meant, f"{path} was written as {meant}, not {known}"
            self._keep(self._known, data, known)
        return known

    def has_written(self, data: bytes, value: Any, *, taken: bool) -> None:
        """These bytes were made of a value. If it is `taken`, they are not decoded; else what comes
        out of them must equal it.
        """
        self._keep(self._known if taken else self._meant, data, value)

    def forget(self) -> None:
        """Decodes everything again."""
        self._known.clear()
        self._meant.clear()

    @staticmethod
    def _keep(values: dict[bytes, Any], data: bytes, value: Any) -> None:
        if len(values) >= _FILES:
            values.clear()
        values[data] = value


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


def forget() -> None:
    """Forgets the files of a schedule. Those of the next one have other ids, so nothing is decoded
    twice, and what is looked up is in the processor's caches.
    """
    for decoder in (_snapshot, _entries, _metas, _names, _index, _journal):
        decoder.forget()
    records_of.cache_clear()
    summary_of.cache_clear()


class _Encoders:
    """Encoders that tell the decoders what they have encoded: whether it is `taken` for what will be
    read. Manifests that hold fields of a newer release are always decoded.
    """

    def __init__(self, *, taken: bool) -> None:
        self._taken = taken
        self._entries: dict[AvroBlock, Sequence[Any]] = {}

    def places(self) -> tuple[tuple[Any, str, object], ...]:
        """The names that the encoders have in the modules that call them."""
        return (
            (stage, "encode_snapshot", self._telling(_snapshot, stage.encode_snapshot)),
            (
                journal,
                "encode_journal_entry",
                self._telling(_journal, journal.encode_journal_entry),
            ),
            (
                manifest_avro,
                "encode_manifest_list",
                self._telling(_metas, manifest_avro.encode_manifest_list),
            ),
            (manifest_avro, "encode_entries", self._encoded(manifest_avro.encode_entries)),
            (manifest_avro, "manifest_of_blocks", self._joined(manifest_avro.manifest_of_blocks)),
        )

    def _telling(self, decoder: _Decoder, encode: Callable[..., bytes]) -> Callable[..., bytes]:
        def telling(value: Any, **named: Any) -> bytes:
            data = encode(value, **named)
            kept = list(value) if isinstance(decoder, _Lists) else value
            decoder.has_written(data, kept, taken=self._taken)
            return data

        return telling

    def _encoded(self, encode: Callable[..., list[AvroBlock]]) -> Callable[..., list[AvroBlock]]:
        def encoded(entries: Sequence[Any], codec: Any, types: Any = ()) -> list[AvroBlock]:
            blocks = encode(entries, codec, types)
            if len(blocks) == 1 and not types:
                self._entries[blocks[0]] = entries
            return blocks

        return encoded

    def _joined(self, join: Callable[..., bytes]) -> Callable[..., bytes]:
        def joined(blocks: Sequence[AvroBlock], codec: Any, types: Any = ()) -> bytes:
            data = join(blocks, codec, types)
            parts = [self._entries.get(one) for one in blocks]
            if parts and not types and all(one is not None for one in parts):
                entries = [entry for part in parts if part is not None for entry in part]
                _entries.has_written(data, entries, taken=self._taken)
            return data

        return joined


@contextmanager
def remembered(written: Written = Written.DECODED) -> Iterator[None]:
    """The decoders of the package, and of the simulation, remember what they have decoded. What
    they make of metadata that was encoded here is as `written` says.
    """
    encoders: tuple[tuple[Any, str, object], ...] = ()
    if written is not Written.DECODED:
        encoders = _Encoders(taken=written is Written.TAKEN).places()
    with in_their_places((*_PLACES, *encoders)):
        yield
