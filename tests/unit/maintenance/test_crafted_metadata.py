"""Metadata that somebody crafted: commands that delete refuse or pass over it, and no live file is
lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from paimon_stream.errors import PaimonStreamError
from paimon_stream.format.manifest_avro import decode_manifest_list, encode_manifest_list
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.hints import repair_hints
from paimon_stream.maintenance.orphans import remove_orphan_files
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag, delete_tag
from paimon_stream.verify.verifying import verify
from tests.kits.names import Disk


def grown(folder: Path) -> Disk:
    """A table of four snapshots of one file each, and a tag."""
    disk = Disk(folder)
    bench = disk.bench
    for number in range(4):
        bench.committer().commit(bench.request(number, [bench.message(f"f{number}")]))
    create_tag(bench.table, "kept", 2, runtime=bench.runtime)
    for path in ("consumer/consumer-c", "_paimon_stream/expiring.1", "_paimon_stream/u/3"):
        disk.write(disk.root / path)
        (disk.root / path).unlink()
    return disk


def newest(disk: Disk, kind: str) -> str:
    snapshot = disk.bench.latest()
    names = {
        "list": snapshot.base_manifest_list,
        "manifest": disk.bench.metas_of(snapshot)[0].file_name,
    }
    return f"manifest/{names[kind]}"


TARGETS: dict[str, Callable[[Disk], str]] = {
    "snapshot": lambda _: "snapshot/snapshot-2",
    "the newest snapshot": lambda _: "snapshot/snapshot-4",
    "LATEST": lambda _: "snapshot/LATEST",
    "tag": lambda _: "tag/tag-kept",
    "schema": lambda _: "schema/schema-0",
    "consumer": lambda _: "consumer/consumer-c",
    "note of an expiry": lambda _: "_paimon_stream/expiring.1",
    "journal": lambda _: "_paimon_stream/u/3",
    "manifest list": lambda disk: newest(disk, "list"),
    "manifest": lambda disk: newest(disk, "manifest"),
}
CRAFTED: dict[str, Callable[[Path], object]] = {
    "nested deeply": lambda path: path.write_bytes(b"[" * 100_000),
    "infinite": lambda path: path.write_bytes(
        b'{"id": Infinity, "version": 3, "nextSnapshot": Infinity}'
    ),
    "sparse": lambda path: os.truncate(path, 100 << 30) if path.exists() else _sparse(path),
    "a pipe": lambda path: (path.unlink(missing_ok=True), os.mkfifo(path)),
}
COMMANDS: dict[str, Callable[[Disk], object]] = {
    "verify": lambda disk: verify(disk.bench.table, runtime=disk.bench.runtime),
    "repair hints": lambda disk: repair_hints(disk.bench.table, runtime=disk.bench.runtime),
    "expire": lambda disk: expire_snapshots(
        disk.bench.table, 1, older_than="0 s", runtime=disk.bench.runtime
    ),
    "orphans": lambda disk: remove_orphan_files(
        disk.bench.table, dry_run=False, runtime=disk.bench.runtime
    ),
    "delete a tag": lambda disk: delete_tag(disk.bench.table, "kept", runtime=disk.bench.runtime),
    "rollback": lambda disk: rollback_to(disk.bench.table, 3, runtime=disk.bench.runtime),
}


def _sparse(path: Path) -> None:
    path.write_bytes(b"")
    os.truncate(path, 100 << 30)


@pytest.mark.parametrize(
    ("target", "crafted"),
    [
        *((target, "nested deeply") for target in TARGETS),
        *((target, "sparse") for target in ("LATEST", "snapshot", "manifest", "manifest list")),
        *((target, "a pipe") for target in ("LATEST", "tag", "manifest", "journal")),
        ("consumer", "infinite"),
        ("note of an expiry", "infinite"),
    ],
)
def test_commands_refuse_or_go_on_and_lose_no_live_file(
    tmp_path: Path, target: str, crafted: str
) -> None:
    disk = grown(tmp_path)
    path = TARGETS[target](disk)
    CRAFTED[crafted](disk.root / path)
    disk.age()
    data = {name for name in disk.inside() if "bucket-" in name}
    refused = {}
    for name, command in COMMANDS.items():
        try:
            command(disk)
        except PaimonStreamError as raised:
            refused[name] = str(raised)
    assert {name for name in disk.inside() if "bucket-" in name} == data
    name = path.rpartition("/")[2]
    assert all(name in text or "snapshot" in text for text in refused.values()), refused
    assert "verify" not in refused


def test_a_list_that_names_a_manifest_twice_is_corrupt(tmp_path: Path) -> None:
    disk = grown(tmp_path)
    path = disk.root / newest(disk, "list")
    metas = decode_manifest_list(path.read_bytes(), str(path))
    path.write_bytes(encode_manifest_list([*metas, metas[0]], compression="zstd", level=1))
    with pytest.raises(
        PaimonStreamError, match=f"{path.name} cannot be read: it names a manifest twice"
    ):
        remove_orphan_files(disk.bench.table, dry_run=False)
