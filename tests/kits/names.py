"""Names that no file of a table can have, and tables on a real disk with something outside to
lose.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from paimon_stream.format.entries import (
    EMPTY_STATS,
    FileKind,
    IndexManifestEntry,
    ManifestEntry,
    ManifestFileMeta,
)
from paimon_stream.format.index_manifest import encode_index_manifest
from paimon_stream.format.manifest_avro import encode_manifest_list
from paimon_stream.format.snapshot_json import Snapshot, SnapshotId, encode_snapshot
from paimon_stream.storage.local import LocalStorage
from tests.kits.commits import Bench
from tests.kits.manifests import encode_manifest

EVIL_NAMES: Final = (
    "",
    ".",
    "..",
    "/",
    "../../x",
    "../canary",
    "/etc/passwd",
    "sub/x",
    "sub/canary",
    "sub/../../canary",
    "x/",
    "a\0b",
    "x" * 300,
    "ü" * 128,
    "\ud800",
)
IN_UTF8: Final = tuple(name for name in EVIL_NAMES if name != "\ud800")
"""The evil names that Avro can hold."""

_OLD: Final = 1_000_000_000
_PLAIN: Final[Any] = {"compression": "null", "level": 1}


@dataclass
class Disk:
    """A table in a folder of a real disk, between folders of others."""

    folder: Path
    options: dict[str, str] = field(default_factory=dict)
    partitioned: bool = False

    def __post_init__(self) -> None:
        self.root = self.folder / "db" / "t"
        self.bench = Bench(
            options=self.options, partitioned=self.partitioned, storage=LocalStorage(str(self.root))
        )
        for path in (
            "canary",
            "db/canary",
            "db/x",
            "x",
            "outside/canary",
            "outside/x",
            "outside/bucket-0/canary",
        ):
            self.write(self.folder / path)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"alive")

    def outside(self) -> dict[str, bytes | None]:
        """Every file and folder outside the table, with the content of the files."""
        return {
            str(path): path.read_bytes() if path.is_file() else None
            for path in sorted(self.folder.rglob("*"))
            if self.root not in (path, *path.parents)
        }

    def inside(self) -> set[str]:
        """Every file inside the table, without a look through links."""
        return {
            str(Path(folder, name).relative_to(self.root))
            for folder, _, names in os.walk(self.root)
            for name in names
        }

    def link(self, name: str, target: str = "outside") -> None:
        """Makes a symbolic link inside the table to a folder or file outside."""
        place = self.root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(self.folder / target)

    def age(self) -> None:
        """Makes every file old enough to be an orphan."""
        for folder, _, names in os.walk(self.folder):
            for name in names:
                os.utime(Path(folder, name), (_OLD, _OLD), follow_symlinks=False)


def entry(kind: FileKind, like: ManifestEntry, name: str, **changed: Any) -> ManifestEntry:
    """An entry like another, of a file with that name."""
    return replace(like, kind=kind, file=replace(like.file, file_name=name), **changed)


def publish_as_others(
    bench: Bench,
    entries: Sequence[ManifestEntry] = (),
    *,
    changelog: Sequence[ManifestEntry] = (),
    index: Sequence[IndexManifestEntry] = (),
    **changed: Any,
) -> Snapshot:
    """Publishes these entries as the next snapshot, as a writer does that checks nothing."""
    before, storage, made = bench.latest(), bench.storage, str(uuid.uuid4())

    def manifest(some: Sequence[ManifestEntry], number: int) -> ManifestFileMeta:
        name, data = f"manifest-{made}-{number}", encode_manifest(some, **_PLAIN)
        storage.write(f"manifest/{name}", data)
        deleted = sum(one.kind is FileKind.DELETE for one in some)
        return ManifestFileMeta(
            file_name=name,
            file_size=len(data),
            num_added_files=len(some) - deleted,
            num_deleted_files=deleted,
            partition_stats=EMPTY_STATS,
            schema_id=0,
        )

    def manifest_list(metas: Sequence[ManifestFileMeta], number: int) -> str:
        name = f"manifest-list-{made}-{number}"
        storage.write(f"manifest/{name}", encode_manifest_list(metas, **_PLAIN))
        return name

    rows = sum(one.file.row_count * (1 if one.kind is FileKind.ADD else -1) for one in entries)
    snapshot = replace(
        before,
        id=SnapshotId(before.id + 1),
        base_manifest_list=manifest_list(bench.metas_of(before), 0),
        base_manifest_list_size=None,
        delta_manifest_list=manifest_list([manifest(entries, 0)] if entries else [], 1),
        delta_manifest_list_size=None,
        changelog_manifest_list=manifest_list([manifest(changelog, 1)], 2) if changelog else None,
        changelog_manifest_list_size=None,
        changelog_record_count=sum(one.file.row_count for one in changelog) if changelog else None,
        index_manifest=f"index-manifest-{made}-0" if index else before.index_manifest,
        commit_identifier=before.commit_identifier + 1,
        delta_record_count=rows,
        total_record_count=before.total_record_count + rows,
    )
    if index:
        storage.write(f"manifest/index-manifest-{made}-0", encode_index_manifest(index, **_PLAIN))
    storage.write(f"snapshot/snapshot-{snapshot.id}", encode_snapshot(replace(snapshot, **changed)))
    storage.write("snapshot/LATEST", str(snapshot.id).encode())
    return snapshot
