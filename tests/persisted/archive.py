"""The persisted state of each release: its own files as bytes, and streams that were killed, packed
up.

A folder is named after a release, or after one and the month in which the code was that of no
release. `<folder>/own` holds the files of `values.py` and `properties.json`.
`<folder>/spark-<x.y>/<stream>.tar.xz` holds a folder for each point at which the stream was killed
(`copies.py`): its `source`, `table` and `checkpoint`.
`<folder>/spark-<x.y>/rolled-back/<stream>.tar.xz` holds one for each state of `rolled_back.py`.
Where a checkpoint names an absolute path, `@ROOT@` stands for that folder.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from paimon_stream.storage.base import Storage

HERE = Path(__file__).parent
ROOT_MARK = b"@ROOT@"
OWN_FOLDER = "_paimon_stream"


def releases() -> list[Path]:
    """The folders of all releases, the oldest first."""
    found = [path for path in HERE.iterdir() if path.name[0].isdigit()]
    return sorted(found, key=lambda path: [int(part) for part in re.split("[.-]", path.name)])


def own_files(storage: Storage) -> dict[str, bytes]:
    """The files that we keep beside a table and its branches, by path."""
    paths = [stat.path for page in storage.list_below("") for stat in page]
    return {path: storage.read(path) for path in sorted(paths) if OWN_FOLDER in path.split("/")}


def stored_own_files(release: Path) -> dict[str, bytes]:
    """The same files as that release wrote them."""
    own = release / "own"
    found = (path for path in own.rglob("*") if path.is_file() and OWN_FOLDER in path.parts)
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
        return "-".join((self.release, *self.path.relative_to(HERE).parts[1:-1], self.stream))

    @property
    def release(self) -> str:
        return self.path.relative_to(HERE).parts[0]

    @property
    def stream(self) -> str:
        return self.path.name.partition(".")[0]

    @property
    def spark(self) -> tuple[int, ...]:
        name = self.path.relative_to(HERE).parts[1]
        return tuple(int(part) for part in name.removeprefix("spark-").split("."))

    def points(self) -> set[str]:
        """The names of its folders."""
        with tarfile.open(self.path) as archive:
            return {name.partition("/")[0] for name in archive.getnames()}

    def unpack(self, folder: Path, points: Collection[str] = ()) -> list[Path]:
        """Unpacks the folders of these points, or all. Returns the folder of each, which is its
        root now.
        """
        with tarfile.open(self.path) as archive:
            wanted = [
                one
                for one in archive.getmembers()
                if not points or one.name.partition("/")[0] in points
            ]
            archive.extractall(folder, wanted, filter="data")
        kills = sorted(folder.iterdir())
        for root in kills:
            for file in _files_with_paths(root):
                times = file.stat()
                file.write_bytes(file.read_bytes().replace(ROOT_MARK, bytes(root)))
                os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        return kills


def all_killed() -> list[Killed]:
    """The archives of killed streams of all releases."""
    return [
        Killed(path) for release in releases() for path in sorted(release.glob("spark-*/*.tar.xz"))
    ]


def all_rolled_back() -> list[Killed]:
    """The archives of stopped streams whose tables were rolled back."""
    return [
        Killed(path)
        for release in releases()
        for path in sorted(release.glob("spark-*/rolled-back/*.tar.xz"))
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
