"""Decoders that remember. Thousands of orders read the same few files: ids are the same each time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import pytest

from paimon_stream.format import manifest_avro, snapshot_json
from paimon_stream.format.entries import ManifestEntry, ManifestFileMeta
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.table import snapshots
from tests.simulation import archive, truth

_SNAPSHOT = snapshot_json.decode_snapshot
_ENTRIES = manifest_avro.decode_manifest
_LIST = manifest_avro.decode_manifest_list


@lru_cache(4096)
def _snapshot(data: bytes, path: str) -> Snapshot:
    return _SNAPSHOT(data, path)


@lru_cache(4096)
def _entries(data: bytes, path: str) -> tuple[ManifestEntry, ...]:
    return tuple(_ENTRIES(data, path))


@lru_cache(4096)
def _metas(data: bytes, path: str) -> tuple[ManifestFileMeta, ...]:
    return tuple(_LIST(data, path))


def _some_entries(data: bytes, path: str, *some: Any, **wanted: Any) -> list[ManifestEntry]:
    if any(one is not None for one in (*some, *wanted.values())):
        return _ENTRIES(data, path, *some, **wanted)
    return list(_entries(data, path))


def _list(data: bytes, path: str) -> list[ManifestFileMeta]:
    return list(_metas(data, path))


@contextmanager
def remembered() -> Iterator[None]:
    """The decoders of the package, and of the simulation, remember what they have decoded."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (manifest_avro, archive):
            patch.setattr(module, "decode_manifest", _some_entries)
            patch.setattr(module, "decode_manifest_list", _list)
        for module in (snapshots, truth):
            patch.setattr(module, "decode_snapshot", _snapshot)
        yield
