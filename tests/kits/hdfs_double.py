"""A double of hdfs-native over files in memory, which fails where a test says so.

hdfs = HdfsDouble()
storage = hdfs.storage()
hdfs.fail("rename", lost_answer)      # the next rename takes effect, and is repeated
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from paimon_stream.runtime import Runtime, system
from paimon_stream.storage import store_client
from paimon_stream.storage.hdfs import HdfsStorage
from paimon_stream.storage.hdfs_client import HdfsClient
from paimon_stream.storage.hdfs_sources import HdfsSettings, hdfs_settings_of
from paimon_stream.storage.location import hdfs_location

Fault = Callable[[Callable[[], Any]], Any]
"""What happens instead of a call. It gets the call."""
_ROOTS: Final = itertools.count(1)
PAGE: Final = 1000
"""How many entries of a folder the name node lists in a call."""


def lost_answer(call: Callable[[], Any]) -> Any:
    """The call takes effect, its answer is lost, and hdfs-native repeats it."""
    call()
    return call()


def lost_request(call: Callable[[], Any]) -> Any:
    """The call does not reach the name node, which does not come back."""
    raise OSError("Connection refused (os error 111)")


def lost_for_good(call: Callable[[], Any]) -> Any:
    """The call takes effect, and its answer is lost. Nobody repeats it."""
    call()
    raise OSError("Connection reset by peer (os error 104)")


def refused(exception: str) -> Fault:
    """The name node answers with a Java exception."""

    def answer(call: Callable[[], Any]) -> Any:
        raise RuntimeError(f'RPCError("{exception}", "user=SECRET\\n\\tat org.apache.hadoop")')

    return answer


@dataclass
class _Status:
    path: str
    isdir: bool
    length: int = 0
    modification_time: int = 0


@dataclass
class WriteOptions:
    """hdfs-native's class."""

    overwrite: bool = False
    create_parent: bool = True


@dataclass
class HdfsDouble:
    """The module, and the files of its only name node.

    Attributes:
        files: the content of each complete or open file, by its path.
        open_files: the paths of the files that are being written.
        calls: the names of the calls so far.
        opened: how many clients were made.
        config: what the last client was made with.
        knows_blocks: whether the name node knows the last block of a file when it is asked to close
            it; if not, hdfs-native closes the file only when `released` is set.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    open_files: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    opened: int = 0
    config: dict[str, str] = field(default_factory=dict)
    knows_blocks: bool = True
    released: threading.Event = field(default_factory=threading.Event)
    WriteOptions: type = WriteOptions
    _faults: dict[str, list[Fault]] = field(default_factory=dict)

    def Client(self, url: str, config: dict[str, str], **login: str) -> _Client:
        """Makes a client."""
        self.opened += 1
        self.config = config
        return _Client(self)

    def fail(self, name: str, *faults: Fault) -> None:
        """The next calls of this name meet the faults, one each."""
        self._faults.setdefault(name, []).extend(faults)

    def heal(self) -> None:
        """No call meets a fault any more."""
        self._faults.clear()

    def call(self, name: str, effect: Callable[[], Any]) -> Any:
        """Does what a client asks, or what a fault says."""
        self.calls.append(name)
        faults = self._faults.get(name)
        return faults.pop(0)(effect) if faults else effect()

    def settings(self, options: dict[str, str] | None = None) -> HdfsSettings:
        """Settings of a new file system."""
        location = f"hdfs://name-node-{next(_ROOTS)}:8020/wh/t"
        return hdfs_settings_of(hdfs_location(location), options or {}, environment={})

    def storage(
        self, options: dict[str, str] | None = None, *, runtime: Runtime | None = None
    ) -> HdfsStorage:
        """A storage on the double, whose client is known to have answered."""
        settings = self.settings(options)
        client = HdfsClient(settings, self, answered=True, right=True)
        store_client._CLIENTS[store_client.shared_settings(settings)] = client
        return HdfsStorage(settings, runtime=runtime or system())


@dataclass
class _Client:
    name_node: HdfsDouble

    def create(self, path: str, options: WriteOptions) -> _Writer:
        def effect() -> _Writer:
            if path in self.name_node.files and not options.overwrite:
                raise FileExistsError(path)
            self.name_node.files[path] = b""
            self.name_node.open_files.add(path)
            return _Writer(self.name_node, path)

        writer: _Writer = self.name_node.call("create", effect)
        return writer

    def rename(self, source: str, target: str, overwrite: bool) -> None:
        def effect() -> None:
            files = self.name_node.files
            if source not in files:
                raise FileNotFoundError(source)
            if target in files and not overwrite:
                raise FileExistsError(target)
            files[target] = files.pop(source)

        self.name_node.call("rename", effect)

    def delete(self, path: str, recursive: bool) -> bool:
        return bool(
            self.name_node.call("delete", lambda: self.name_node.files.pop(path, None) is not None)
        )

    def get_file_info(self, path: str) -> _Status:
        def effect() -> _Status:
            if path not in self.name_node.files:
                raise FileNotFoundError(path)
            return _Status(path, False, len(self.name_node.files[path]))

        status: _Status = self.name_node.call("get_file_info", effect)
        return status

    def list_status(self, path: str) -> Iterator[_Status]:
        """One call for each page, when it is reached. As with hdfs-native, an iterator that has
        raised an error is at its end.
        """
        last = ""

        def effect() -> list[str]:
            files = sorted(file for file in self.name_node.files if file.startswith(f"{path}/"))
            return [file for file in files if file > last][:PAGE]

        while page := self.name_node.call("list_status", effect):
            for file in page:
                yield _Status(file, False, len(self.name_node.files[file]))
            if len(page) < PAGE:
                return
            last = page[-1]

    def read(self, path: str) -> _Reader:
        def effect() -> _Reader:
            if path not in self.name_node.files:
                raise FileNotFoundError(path)
            return _Reader(self.name_node.files[path])

        reader: _Reader = self.name_node.call("read", effect)
        return reader

    def recover_lease(self, path: str) -> bool:
        def effect() -> bool:
            self.name_node.open_files.discard(path)
            return True

        return bool(self.name_node.call("recover_lease", effect))


@dataclass
class _Writer:
    name_node: HdfsDouble
    path: str

    def write(self, data: bytes) -> int:
        def effect() -> int:
            self.name_node.files[self.path] += bytes(data)
            return len(data)

        return int(self.name_node.call("write", effect))

    def hsync(self) -> None:
        self.name_node.call("hsync", lambda: None)

    def close(self) -> None:
        if not self.name_node.knows_blocks:
            self.name_node.released.wait(30)
        self.name_node.call("close", lambda: self.name_node.open_files.discard(self.path))


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def read_range(self, start: int, size: int) -> bytes:
        assert start + size <= len(self._data), "hdfs-native panics"
        return self._data[start : start + size]
