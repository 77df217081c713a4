"""The storage of one simulated process whose table lies in HDFS: the package's own code for HDFS, on a
client whose calls meet faults.

A file comes in three steps, before each of which others may act: half of its content is there under
the name of a temporary file, then all of it, then the file has its name. What the package does when
one of them fails is its own code, with its own waits. The client repeats a rename whose answer was
lost and hides that, as hdfs-native does.

Files are read as on a disk: by the active name node, which knows every change. A standby refuses to
read, and observers are never asked (hdfs_client.py). So an older state can only come from a name node
that was replaced and has not noticed it, because nobody has fenced it. That is not played here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from paimon_stream.errors import NoSpace
from paimon_stream.storage import hdfs_errors
from paimon_stream.storage.base import PutResult
from paimon_stream.storage.hdfs import HdfsStorage
from paimon_stream.storage.hdfs_client import UNHURRIED, HdfsClient
from paimon_stream.storage.hdfs_sources import HdfsSettings, hdfs_settings_of
from paimon_stream.storage.location import hdfs_location
from paimon_stream.storage.store_client import Handle
from tests.kits.hdfs_double import WriteOptions
from tests.simulation.faults import Fault, ProcessStorage

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process

KIND: Final = "HDFS"
"""Its name among those who take part."""
FROM: Final = 20261201_000000
"""From this seed on, a draw decides whether a table lies in HDFS. Earlier seeds keep their meaning."""
OPEN: Final = "open"
CLOSE: Final = "close"
LOOK: Final = "look"
DROP: Final = "drop"
STEPS: Final = (OPEN, CLOSE, LOOK, DROP)
"""The calls on a temporary file: half of it is there, all of it is, is it there, away with it."""
_ROOT: Final = "/t/"
_MODULE: Final = SimpleNamespace(WriteOptions=WriteOptions)


def _settings(max_outage: str) -> HdfsSettings:
    return hdfs_settings_of(
        hdfs_location("hdfs://name-node:8020/t"),
        {"paimon-stream.store.max-outage": max_outage},
        environment={},
    )


_IMPATIENT: Final = _settings("0 s")
_PATIENT: Final = _settings("10 min")


class HdfsProcessStorage(ProcessStorage):
    """The table's storage as one process sees it, in HDFS."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        # In every other schedule an outage ends a call at once, so that the callers see it.
        settings = _PATIENT if process.world.seed % 2 else _IMPATIENT
        client = _Client(settings, _MODULE, answered=True, right=True, pace=UNHURRIED)
        client.name_node = NameNode(self, process)
        self.hdfs = _Hdfs(settings, runtime=process.runtime)
        object.__setattr__(self.hdfs, "held", client)

    def write(self, path: str, data: bytes) -> None:
        self.hdfs.write(path, data)

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        return self.hdfs.put_if_absent(path, data)


class _Hdfs(HdfsStorage):
    """The package's storage, with a client of its own in each process."""

    held: HdfsClient

    @property
    def client(self) -> HdfsClient:
        return self.held


class _Client(HdfsClient):
    """The package's client, whose calls do not run in threads: the scheduler stops them."""

    name_node: NameNode

    def _run(self, effect: Callable[[Any], Any], handle: Handle) -> Any:
        return effect(self._handle(Handle.CALM))

    def _open(self, handle: Handle) -> Any:
        return self.name_node


@dataclass
class NameNode:
    """hdfs-native's client, as one process has it. Each call may meet a fault."""

    storage: ProcessStorage
    process: Process

    def create(self, full: str, options: WriteOptions) -> _Writer:
        path = full.removeprefix(_ROOT)
        if self._disk.exists(path):
            raise FileExistsError(path)
        return _Writer(self, path)

    def get_file_info(self, full: str) -> SimpleNamespace:
        path = full.removeprefix(_ROOT)

        def found() -> SimpleNamespace:
            if not self._disk.exists(path):
                raise FileNotFoundError(path)
            return SimpleNamespace(isdir=False, length=self._disk.stat(path).size)

        status: SimpleNamespace = self.call(LOOK, path, found)
        return status

    def read(self, full: str) -> _Content:
        path = full.removeprefix(_ROOT)

        def content() -> _Content:
            if not self._disk.exists(path):
                raise FileNotFoundError(path)
            return _Content(self._disk.read(path))

        opened: _Content = self.call(LOOK, path, content)
        return opened

    def delete(self, full: str, recursive: bool) -> bool:
        path = full.removeprefix(_ROOT)

        def gone() -> bool:
            was_there = self._disk.exists(path)
            self._disk.delete(path)
            self._paths.discard(path)
            return was_there

        return bool(self.call(DROP, path, gone))

    def rename(self, old: str, new: str, overwrite: bool) -> None:
        """Gives a temporary file its name. The change counts from here on."""
        source, target = old.removeprefix(_ROOT), new.removeprefix(_ROOT)
        verb = "write" if overwrite else "put"

        def renamed() -> PutResult:
            if not self._disk.exists(source):
                raise FileNotFoundError(source)
            if self._disk.exists(target) and not overwrite:
                raise FileExistsError(target)
            self._disk.write(target, self._disk.read(source))
            self._disk.delete(source)
            self._paths.discard(source)
            return PutResult.CREATED

        self.call(verb, target, partial(self.storage.take_effect, verb, target, renamed), renamed)

    def keep(self, path: str, data: bytes) -> None:
        """A temporary file is there. It is no change of the table."""
        self._disk.write(path, data)
        self._paths.add(path)

    def call(
        self,
        verb: str,
        path: str,
        effect: Callable[[], Any],
        late: Callable[[], PutResult] | None = None,
    ) -> Any:
        """Does what is asked, or lets a fault happen. `late` is what a rename does that arrives
        later.
        """
        fault = self.process.reached(verb, path)
        if fault in (Fault.NONE, Fault.SLOW):
            return effect()
        if fault is Fault.DIES_BEFORE:
            raise self.process.die()
        if fault is Fault.NO_SPACE:
            raise NoSpace(f"{verb} of {path!r}: {fault.value}", path=path)
        if fault is Fault.FAILS_BEFORE:
            raise ConnectionResetError
        if fault in (Fault.LATE, Fault.LATE_AND_DEAD):
            assert late is not None
            self.process.world.late.append((self.process, "put", path, partial(_late, late)))
            if fault is Fault.LATE_AND_DEAD:
                raise self.process.die()
            raise hdfs_errors.Late
        effect()
        if fault is Fault.DIES_AFTER:
            raise self.process.die()
        if fault is Fault.TWICE:
            return effect()
        raise ConnectionResetError

    @property
    def _disk(self) -> Any:
        return self.process.world.disk

    @property
    def _paths(self) -> set[str]:
        return self.process.world.truth.paths


def _late(renamed: Callable[[], PutResult]) -> PutResult:
    """A rename that arrives late. Nobody hears its answer."""
    try:
        return renamed()
    except (FileNotFoundError, FileExistsError):
        return PutResult.EXISTS


@dataclass
class _Content:
    data: bytes

    def __len__(self) -> int:
        return len(self.data)

    def read_range(self, start: int, length: int) -> bytes:
        return self.data[start : start + length]


@dataclass
class _Writer:
    name_node: NameNode
    path: str
    data: bytes = b""

    def write(self, piece: bytes) -> int:
        self.data += piece
        return len(piece)

    def hsync(self) -> None:
        half = self.data[: len(self.data) // 2]
        self.name_node.call(OPEN, self.path, partial(self.name_node.keep, self.path, half))
        self.name_node.call(CLOSE, self.path, partial(self.name_node.keep, self.path, self.data))

    def close(self) -> None:
        """Runs in a thread, so nothing may happen here, except that an empty file is there."""
        if not self.data:
            self.name_node.keep(self.path, b"")
