"""What the simulated table's metadata files held, kept after they are deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paimon_stream.format.entries import FileKind, IndexManifestEntry, ManifestEntry
from paimon_stream.format.index_manifest import decode_index_manifest
from paimon_stream.format.manifest_avro import decode_manifest
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.table.layout import Layout, manifest_path
from tests.simulation import rules
from tests.simulation.foreign import records_of
from tests.simulation.state import State, Token, Violation

if TYPE_CHECKING:
    from tests.simulation.changing import Held
    from tests.simulation.rewriting import Piece


@dataclass
class Archive:
    """All files of the folder `manifest` that were ever written, by name, and of the folder
    `index`. `pieces` says what rows a compacted file has, and `commits` in which piece of work a
    manifest list was written. Where rows are changed, `rows` has those of files that were read, and
    `lineage` the files of writers on which a snapshot with these live files is built.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    indexes: dict[str, bytes] = field(default_factory=dict)
    pieces: dict[str, tuple[Piece, ...]] = field(default_factory=dict)
    commits: dict[str, Token] = field(default_factory=dict)
    rows: dict[str, list[Held]] = field(default_factory=dict)
    lineage: dict[frozenset[str], tuple[str, ...]] = field(default_factory=dict)
    _folders: dict[tuple[bytes, int], str] = field(default_factory=dict)
    _lists: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _manifests: dict[str, list[ManifestEntry]] = field(default_factory=dict)

    def state(self, snapshot: Snapshot, layout: Layout, *, is_changed: bool = False) -> State:
        """A snapshot with everything that it refers to. `is_changed`: in a table whose rows are
        changed.
        """
        base = self._list(snapshot.base_manifest_list)
        delta = self._list(snapshot.delta_manifest_list)
        before = self._fold([entry for name in base for entry in self._entries(name)])
        names = frozenset(name for name, _ in before)
        own = [entry for name in delta for entry in self._entries(name)]
        everything = (entry for name in (*base, *delta) for entry in self._entries(name))
        mentioned = frozenset(entry.file.file_name for entry in everything)
        live = {name: one for (name, _), one in self._fold([*before.values(), *own]).items()}
        lists = (snapshot.base_manifest_list, snapshot.delta_manifest_list)
        files = {manifest_path(one) for one in (*lists, *base, *delta)}
        files.update(self._path(entry, layout) for entry in live.values())
        index: tuple[IndexManifestEntry, ...] = ()
        if snapshot.index_manifest is not None:
            index = decode_index_manifest(
                self._file(snapshot.index_manifest), snapshot.index_manifest
            )
            files.add(manifest_path(snapshot.index_manifest))
            files.update(layout.index_file(e.partition, e.bucket, e.file) for e in index)
        return State(
            snapshot=snapshot,
            live=live,
            base=names,
            files=frozenset(files),
            mentioned=mentioned,
            written=self._built_on(names, live) if is_changed else self._in_files(live),
            index=index,
            commit=self.commits.get(snapshot.nonce),
        )

    def _in_files(self, live: Iterable[str]) -> tuple[str, ...]:
        return tuple(one for name in live for one in self.written(name))

    def _built_on(self, base: frozenset[str], live: Mapping[str, object]) -> tuple[str, ...]:
        """The files of writers that a snapshot has, and those on which it is built. Rows of these
        may have been deleted, or be in other files now.
        """
        new = tuple(name for name in live if name not in base and not name.startswith("data-"))
        written = (*self.lineage.get(base, ()), *new) if live else ()
        return self.lineage.setdefault(frozenset(live), written)

    def written(self, name: str) -> tuple[str, ...]:
        """The files whose rows a file has: itself, or those that were compacted into it."""
        pieces = self.pieces.get(name)
        return (name,) if pieces is None else tuple(one.file for one in pieces)

    def _fold(self, entries: list[ManifestEntry]) -> dict[tuple[str, int], ManifestEntry]:
        """The live files by name and level. A compaction may change the level."""
        live: dict[tuple[str, int], ManifestEntry] = {}
        for entry in entries:
            name, level = entry.file.file_name, entry.file.level
            if entry.kind is FileKind.DELETE:
                live.pop((name, level), None)
            elif (name, level) in live:
                raise Violation(rules.ONCE, f"file {name} is listed twice")
            else:
                live[name, level] = entry
        return live

    def _path(self, entry: ManifestEntry, layout: Layout) -> str:
        """The path of a data file. Tables that follow each other at one place have equal layouts."""
        key = entry.partition, entry.bucket
        if key not in self._folders:
            self._folders[key] = layout.bucket_folder(*key)
        return layout.in_folder(self._folders[key], entry.file.file_name)

    def _list(self, name: str) -> tuple[str, ...]:
        if name not in self._lists:
            records = records_of(self._file(name))
            self._lists[name] = tuple(record["_FILE_NAME"] for record in records)
        return self._lists[name]

    def _entries(self, name: str) -> list[ManifestEntry]:
        if name not in self._manifests:
            self._manifests[name] = decode_manifest(self._file(name), name)
        return self._manifests[name]

    def _file(self, name: str) -> bytes:
        if name not in self.files:
            raise Violation(rules.WHOLE, f"a snapshot names {name}, which was never written")
        return self.files[name]
