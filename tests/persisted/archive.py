"""The persisted state of each release: its own files as bytes, and streams that were killed, packed
up.

`<version>/own` holds the files of `values.py` and `properties.json`.
`<version>/spark-<x.y>/<stream>.tar.xz` holds a folder `<batch>-<where>` for each point at which the
stream was killed: its `source`, `table` and `checkpoint`. Where a checkpoint names an absolute
path, `@ROOT@` stands for that folder.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paimon_stream.storage.base import Storage

HERE = Path(__file__).parent
ROOT_MARK = b"@ROOT@"
OWN_FOLDER = "_paimon_stream"


def releases() -> list[Path]:
    """The folders of all releases, the oldest first."""
    found = [path for path in HERE.iterdir() if path.name[0].isdigit()]
    return sorted(found, key=lambda path: [int(part) for part in path.name.split(".")])


def own_files(storage: Storage) -> dict[str, bytes]:
    """The files that we keep beside a table, by path."""
    folders = [f"{OWN_FOLDER}/{name}" for name in storage.list_folders(OWN_FOLDER)]
    return {
        stat.path: storage.read(stat.path)
        for folder in folders
        for stat in storage.list_files(folder)
    }


def stored_own_files(release: Path) -> dict[str, bytes]:
    """The same files as that release wrote them."""
    own = release / "own"
    found = (path for path in (own / OWN_FOLDER).rglob("*") if path.is_file())
    return {path.relative_to(own).as_posix(): path.read_bytes() for path in found}


# -- streams that were killed
# -----------------------------------------------------------------------


@dataclass(frozen=True)
class Killed:
    """One archive of one stream. `spark` is the version that wrote the checkpoints, such as (3,
    5).
    """

    path: Path

    @property
    def name(self) -> str:
        return "-".join((self.path.parent.parent.name, self.path.parent.name, self.stream))

    @property
    def stream(self) -> str:
        return self.path.name.partition(".")[0]

    @property
    def spark(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.path.parent.name.removeprefix("spark-").split("."))

    def unpack(self, folder: Path) -> list[Path]:
        """Unpacks all of it. Returns the folder of each kill, which is its root now."""
        with tarfile.open(self.path) as archive:
            archive.extractall(folder, filter="data")
        kills = sorted(folder.iterdir())
        for root in kills:
            for file in _files_with_paths(root):
                times = file.stat()
                file.write_bytes(file.read_bytes().replace(ROOT_MARK, bytes(root)))
                os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        return kills


def all_killed() -> list[Killed]:
    """The archives of all releases."""
    return [
        Killed(path) for release in releases() for path in sorted(release.glob("spark-*/*.tar.xz"))
    ]


def pack(kills: Path, made_at: Path, target: Path) -> None:
    """Packs the folders in `kills`, copies of the folder `made_at`. The same content gives the same
    bytes.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:xz", format=tarfile.PAX_FORMAT, preset=9) as archive:
        with_paths = {path for kill in kills.iterdir() for path in _files_with_paths(kill)}
        stale = {path.with_name(f".{path.name}.crc") for path in with_paths}  # Spark does without
        for path in sorted(set(kills.rglob("*")) - stale):
            entry = archive.gettarinfo(path, path.relative_to(kills).as_posix())
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            data = b"" if path.is_dir() else path.read_bytes()
            if path in with_paths:
                data = data.replace(bytes(made_at), ROOT_MARK)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def _files_with_paths(root: Path) -> Iterator[Path]:
    """The files of a checkpoint in which Spark notes absolute paths: what its file source has
    read.
    """
    found = (root / "checkpoint" / "sources").rglob("*")
    return (path for path in found if path.is_file() and not path.name.startswith("."))
