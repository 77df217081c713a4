"""Tables in HDFS, by hdfs-native: no JVM, no files of Hadoop on executors (stores.md §11).

The atomic create is a rename: the content goes to a temporary file beside the target, which is then
renamed without overwriting. The name node does that in one step, and refuses it if the target
exists. Java Paimon publishes snapshots by the same rename, so both may commit to a table side by
side. A file that is created under its final name would be seen while it is empty.

Invariant: only the writer of a temporary file knows its name, which no other file ever has. So that
    file is gone if and only if a rename of its writer took effect. This decides after every error,
    because hdfs-native repeats calls (hdfs_client.py): an earlier try may have taken effect.
    If somebody else removes the temporary file, as with the table's whole folder, the file is not
    there either. Then the outcome counts as unknown. Another writer may have created the file since
    then, so a create compares the content.

Temporary files are named `.<name>.<uuid>.tmp`, or without a name that is too long for that.
Listings leave out names that begin with a dot unless they are asked for, so a file left by a killed
process does no harm.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, BinaryIO, Final, NamedTuple, TypeVar, cast

from paimon_stream import errors
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import (
    MOST_BYTES,
    FileStat,
    PutResult,
    Storage,
    check_size,
    checked_path,
    delete_each,
)
from paimon_stream.storage.hdfs_client import UNHURRIED, HdfsClient, WriterBroken, finish
from paimon_stream.storage.hdfs_sources import HdfsSettings
from paimon_stream.storage.read_ahead import pages_of_all
from paimon_stream.storage.store_client import Handle, client_of, is_right, trust
from paimon_stream.storage.store_errors import Request as Asked
from paimon_stream.storage.store_files import LEAST_READ, Block, HeldOutput, source_of
from paimon_stream.storage.together import Request, RequestTally, at_once

T = TypeVar("T")

_LARGE: Final = 1 << 20
"""A file of more bytes gets more time."""
_PIECE: Final = 4 << 20
"""How many bytes hdfs-native gets at once."""
_PAGE: Final = 1000
"""How many entries of a folder a name node lists in a call, unless it was set up otherwise."""
_HELD: Final = 8 << 20
"""A file of at most this size is written in one call when its stream ends."""
_MOST_NAME_BYTES: Final = 255
"""The longest name that a name node allows, unless it was set up otherwise."""
_KINDS: Final = {"read": "GET", "head": "HEAD", "list": "LIST", "delete": "DELETE"}
_FORBIDDEN: Final = re.compile("[:\x00-\x1f\x7f\ud800-\udfff]")
_NOT_EMPTY: Final = "PathIsNotEmptyDirectoryException"


class _Entry(NamedTuple):
    """What is directly in a folder.

    Attributes:
        name: its name.
        is_folder: whether it is a folder.
        size: the bytes of a file.
        modified_millis: when it was modified.
    """

    name: str
    is_folder: bool
    size: int
    modified_millis: int

    @property
    def is_hidden(self) -> bool:
        return self.name.startswith(".")

    def stat_in(self, folder: str) -> FileStat:
        """The file, given its folder below the root."""
        path = f"{folder}/{self.name}" if folder else self.name
        return FileStat(path=path, size=self.size, modified_millis=self.modified_millis)


@dataclass(frozen=True, slots=True, repr=False)
class HdfsStorage(Storage):
    """A folder in HDFS. The file system is opened when it is first used, in each process. A pickle
    holds Hadoop's configuration, which executors need; `repr` does not.

    Attributes:
        settings: the settings with which the file system is opened.
        runtime: the clock of outages, and the ids of temporary files.
        tally: counts what this object sends: a call, or several that belong together.
    """

    has_folders = True
    answers_late = True
    settings: HdfsSettings
    runtime: Runtime = field(default_factory=system, kw_only=True, compare=False)
    tally: RequestTally = field(default_factory=RequestTally, kw_only=True, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.settings, is_right(self.settings))

    def __repr__(self) -> str:
        return f"HdfsStorage({self.location!r})"

    @property
    def location(self) -> str:
        """The folder, as it was given."""
        return self.settings.location

    @property
    def client(self) -> HdfsClient:
        """The connections of this process. Raises `ConfigError` after a fork, and
        `MissingExtra`.
        """
        return client_of(self.settings, HdfsClient)

    def read(self, path: str, limit: int = MOST_BYTES) -> bytes:
        """See `Storage.read`. A folder is not found."""
        full = self._full(path)

        def content(hdfs: Any) -> bytes:
            source = hdfs.read(full)
            check_size(f"{self.location}/{path}", len(source), limit)
            return _range(source, 0, len(source))

        return self.ask("read", path, content, Handle.LARGE)

    def write(self, path: str, data: bytes) -> None:
        """Creates or replaces the file by renaming a synced temporary file over it."""
        self._rename(self._temporary(path, data), path, overwrite=True)

    def write_all(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Writes the files in parallel. If a path comes twice, its last content counts. Raises the
        first error when all have ended.
        """
        last = dict(files)
        for path in last:
            self._full(path)  # raises for a wrong path, before anything is written
        at_once([partial(self.write, path, data) for path, data in last.items()])

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        """See `Storage.put_if_absent`. Raises `Unavailable` if an outage lasts too long: the file
        may exist then.
        """
        return self._rename(self._temporary(path, data), path, overwrite=False, data=data)

    def list_files(self, folder: str, prefix: str = "") -> list[FileStat]:
        """See `Storage.list_files`."""
        shows_hidden = prefix.startswith(".")
        return [
            entry.stat_in(folder)
            for page in self._pages(folder)
            for entry in page
            if not entry.is_folder
            and entry.name.startswith(prefix)
            and (shows_hidden or not entry.is_hidden)
        ]

    def list_folders(self, folder: str) -> list[str]:
        """See `Storage.list_folders`."""
        return [
            entry.name
            for page in self._pages(folder)
            for entry in page
            if entry.is_folder and not entry.is_hidden
        ]

    def list_pages(self, folder: str) -> Iterator[list[FileStat]]:
        """See `Storage.list_pages`. Each page is a call."""
        for page in self._pages(folder):
            yield [entry.stat_in(folder) for entry in page if not entry.is_folder]

    def list_below(self, folder: str) -> Iterator[list[FileStat]]:
        """See `Storage.list_below`. Several folders are listed at once, each a page at a time."""
        level = [folder]
        while level:
            inner: list[str] = []
            for number, page in pages_of_all(self, map(self._pages, level)):
                above = level[number]
                yield [entry.stat_in(above) for entry in page if not entry.is_folder]
                inner += [
                    entry.stat_in(above).path
                    for entry in page
                    if entry.is_folder and not entry.is_hidden
                ]
            level = inner

    def stat(self, path: str) -> FileStat:
        """The size and modification time. Raises `NotFound`, also for a folder."""
        full = self._full(path)

        def facts(hdfs: Any) -> Any:
            status = hdfs.get_file_info(full)
            if status.isdir:
                raise IsADirectoryError
            return status

        status = self.ask("head", path, facts)
        return FileStat(
            path=path, size=status.length, modified_millis=int(status.modification_time)
        )

    def delete(self, path: str) -> None:
        """See `Storage.delete`. Nothing goes to the trash."""
        full = self._full(path)

        def deleted(hdfs: Any) -> None:
            try:
                hdfs.delete(full, False)
            except RuntimeError as refused:
                if _NOT_EMPTY not in str(refused):
                    raise

        with suppress(errors.NotFound):
            self.ask("delete", path, deleted)

    def delete_all(self, paths: Sequence[str]) -> dict[str, errors.PaimonStreamError]:
        """Deletes files, several at once."""
        failures = at_once([partial(delete_each, self.delete, (path,)) for path in paths])
        return {path: error for failed in failures for path, error in failed.items()}

    def rename(self, source: str, target: str) -> None:
        """Renames a folder in one step. Raises `StorageError` if it is missing, or the target
        exists.
        """
        old, new = self._full(source), self._full(target)
        try:
            self.ask("write", target, lambda hdfs: hdfs.rename(old, new, False))
        except errors.StorageError:
            names = self.list_folders(source.rpartition("/")[0])
            if source.rpartition("/")[2] in names or not any(self._pages(target)):
                raise
            # The folder was renamed by an earlier try, whose answer was lost.

    def is_link(self, path: str) -> bool:
        """False, because name nodes allow no links. Raises `InvalidOption` for a wrong path."""
        self._full(path)
        return False

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A stream for a new file, which appears when the context ends without an exception. Raises
        `AlreadyExists` then.
        """
        return cast("AbstractContextManager[BinaryIO]", _Output(self, path))

    def open_input(self, path: str) -> AbstractContextManager[Any]:
        """An Arrow file for random access. Raises `NotFound`."""
        full = self._full(path)

        def tail(hdfs: Any) -> Block:
            source = hdfs.read(full)
            start = max(0, len(source) - LEAST_READ)
            return Block(start, _range(source, start, len(source)))

        last = self.ask("read", path, tail, Handle.LARGE)
        return cast("AbstractContextManager[Any]", source_of(self, path, last))

    def together(self, requests: Sequence[Request]) -> list[Any]:
        """The results of the requests, which are in flight at once."""
        return at_once(requests)

    def ranged(self, path: str, start: int, end: int) -> bytes:
        """The bytes from `start` to before `end`, or fewer at the end of the file."""
        full = self._full(path)
        return self.ask(
            "read", path, lambda hdfs: _range(hdfs.read(full), start, end), Handle.LARGE
        )

    def ask(
        self, verb: str, path: str, effect: Callable[[Any], T], handle: Handle = Handle.CALM
    ) -> T:
        """The result of calls of hdfs-native, all of which are made again if one of them must be.

        Args:
            verb: `read`, `head`, `list`, `write`, `create` or `delete`. In messages, `head` is
                `read`.
            path: the file or folder, for messages.
            effect: takes hdfs-native's client, and makes the calls.
            handle: whether the calls are repeated in an outage, and how long they may take.
        """
        self.tally.add(_KINDS.get(verb, "PUT"))
        verb_shown = "read" if verb == "head" else verb
        request = Asked(verb=verb_shown, location=self.location, path=path)
        try:
            return self.client.ask(request, self.runtime, effect, handle)
        except errors.AlreadyExists as refused:
            if verb not in _KINDS:
                raise
            missing = refused  # a folder above it is a file, so there is no such file
        raise errors.NotFound(missing.message, path=request.full)

    def temporary_of(self, path: str) -> str:
        """A path beside the file that no other file has."""
        above, slash, name = path.rpartition("/")
        end = f".{self.runtime.ids.uuid()}.tmp"
        is_short = len(name.encode()) + len(end) < _MOST_NAME_BYTES
        return f"{above}{slash}.{name}{end}" if is_short else f"{above}{slash}{end}"

    def open_temporary(self, path: str, data: bytes) -> tuple[str, Any]:
        """A new temporary file for the file at `path`, which begins with the data, and hdfs-native's
        writer of it. An outage is waited for.
        """
        return self._new_temporary(path, data, lambda hdfs, full, writer: None)

    def complete(self, path: str, temporary: str, writer: Any, size: int) -> None:
        """Makes the temporary file of a writer durable. Its lease is not recovered: that could make
        the writer fail, and then the content is lost, and with it a task of Spark.
        """
        full = self._full(temporary)

        def finished(hdfs: Any) -> None:
            finish(hdfs, writer, full, size, UNHURRIED)

        self.ask("write", path, finished, Handle.PARTS)

    def publish(self, temporary: str, path: str) -> PutResult:
        """Gives a complete temporary file its name, unless there is such a file."""
        return self._rename(temporary, path, overwrite=False)

    def drop(self, temporary: str) -> None:
        """Deletes a temporary file, or notes it for the next call that HDFS answers."""
        full = self._full(temporary)
        try:
            self.ask("delete", temporary, lambda hdfs: hdfs.delete(full, False), Handle.ONCE)
        except errors.Unavailable:
            self.client.left_behind.add(full)
        except errors.PaimonStreamError:
            pass  # this user may not delete, so the file stays for `remove_orphan_files`

    def _temporary(self, path: str, data: bytes) -> str:
        """The path of a new temporary file beside the file, with the data."""
        temporary, _ = self._new_temporary(
            path,
            data,
            lambda hdfs, full, writer: finish(hdfs, writer, full, len(data), self.client.pace),
        )
        return temporary

    def _new_temporary(
        self, path: str, data: bytes, completed: Callable[[Any, str, Any], None]
    ) -> tuple[str, Any]:
        """A new temporary file beside the file, and its writer, which has got the data. Each try has
        a file of its own: a try that is not waited for any more may still change its file. It may
        also create the file after that was deleted, so it notes it as left behind.

        Args:
            path: the file.
            data: what is written.
            completed: is called in each try with hdfs-native's client, the full path and the writer.
        """
        self._full(path)
        tried: list[str] = []
        dropped: set[str] = set()

        def created(hdfs: Any) -> tuple[str, Any]:
            while True:  # a few times at most: each waits longer before it may break its writer
                with suppress(WriterBroken):
                    return attempt(hdfs)

        def attempt(hdfs: Any) -> tuple[str, Any]:
            own = self.temporary_of(path)
            tried.append(own)
            try:
                writer = self._created(hdfs, own)
                for start in range(0, len(data), _PIECE):
                    writer.write(data[start : start + _PIECE])
                completed(hdfs, self._full(own), writer)
                return own, writer
            finally:
                if own in dropped:
                    self.client.left_behind.add(self._full(own))

        handle = Handle.LARGE if len(data) > _LARGE else Handle.CALM
        temporary = None
        try:
            temporary, writer = self.ask("write", path, created, handle)
        finally:
            for other in tried:
                if other != temporary:
                    dropped.add(other)
                    self.drop(other)
        return temporary, writer

    def _created(self, hdfs: Any, temporary: str) -> Any:
        """hdfs-native's writer of a new temporary file."""
        options = self.client.module.WriteOptions(overwrite=False, create_parent=True)
        try:
            return hdfs.create(self._full(temporary), options)
        except FileExistsError:
            # hdfs-native has repeated the call. Which of its tries comes last is not known.
            raise ConnectionResetError from None

    def _rename(
        self, temporary: str, path: str, *, overwrite: bool, data: bytes | None = None
    ) -> PutResult:
        """Gives a temporary file its name. Deletes it if it does not get the name.

        Args:
            temporary: the path of the temporary file.
            path: the file.
            overwrite: whether an existing file is replaced.
            data: the content, if the caller has it. It tells a file of ours from that of another
                writer.
        """
        source, target = self._full(temporary), self._full(path)
        verb = "write" if overwrite else "create"
        try:
            self.ask(verb, path, lambda hdfs: hdfs.rename(source, target, overwrite))
        except errors.PaimonStreamError as refused:
            failure = refused
        else:
            return PutResult.CREATED
        try:
            if self._is_gone(temporary, failure):
                # An earlier try took effect, and its answer was lost. If there is no such file now,
                # somebody has removed it since then, or the temporary file before.
                is_ours = self._holds(path, data, failure)
                return PutResult.CREATED if is_ours else PutResult.EXISTS
        except errors.PaimonStreamError as unreadable:
            if not isinstance(failure, errors.Unavailable):
                failure = errors.Unavailable(
                    f"{failure.message} Whether it was written nevertheless cannot be seen: "
                    f"{unreadable.message}",
                    path=target,
                )
        self.drop(temporary)
        if isinstance(failure, errors.AlreadyExists) and not overwrite:
            return PutResult.EXISTS
        raise failure from None

    def _is_gone(self, temporary: str, failure: errors.PaimonStreamError) -> bool:
        """Whether there is no such file."""
        try:
            self._require(temporary, failure)
        except errors.NotFound:
            return True
        return False

    def _holds(self, path: str, data: bytes | None, failure: errors.PaimonStreamError) -> bool:
        """Whether the file has this content, or any content for None. Raises what `_require`
        raises.
        """
        self._require(path, failure)
        if data is None:
            return True
        full = self._full(path)

        def is_same(hdfs: Any) -> bool:
            source = hdfs.read(full)
            return len(source) == len(data) and _range(source, 0, len(source)) == data

        return self.ask("read", path, is_same, _after(failure, Handle.LARGE))

    def _require(self, path: str, failure: errors.PaimonStreamError) -> None:
        """Raises `NotFound` if there is no such file. An outage is not waited for again if
        `failure` is one.
        """
        full = self._full(path)
        handle = _after(failure, Handle.CALM)
        self.ask("head", path, lambda hdfs: hdfs.get_file_info(full), handle)

    def _pages(self, folder: str) -> Iterator[list[_Entry]]:
        """What is directly in a folder, a page at a time; nothing for a missing folder. Each page
        has the time of a call. Name nodes list a folder in the order of the names, so a listing
        that has to begin again goes on after the last name.
        """
        full = self._full(folder) if folder else self.settings.prefix
        last = ""
        listing: Any = None
        is_complete = False
        while not is_complete:
            next_page = partial(_next_page, full, iter([listing]))
            try:
                listing, statuses = self.ask("list", folder, next_page, Handle.LARGE)
            except errors.NotFound:
                return
            is_complete = len(statuses) < _PAGE
            entries = [
                _Entry(
                    status.path.rpartition("/")[2],
                    status.isdir,
                    status.length,
                    int(status.modification_time),
                )
                for status in statuses
                if status.path.rstrip("/") != full  # a file is listed as itself
            ]
            page = [entry for entry in entries if entry.name > last]
            if page:
                last = page[-1].name
                yield page

    def _full(self, path: str) -> str:
        """The absolute path in HDFS. Raises `InvalidOption` for a path outside the root, or one
        that HDFS refuses.
        """
        checked_path(path)
        if _FORBIDDEN.search(path):
            raise self._no_path(
                path,
                "has a colon or a control character, or bytes that are not text, which HDFS does not "
                "allow. Use another name.",
            )
        return f"{self.settings.prefix}/{path}"

    def _no_path(self, path: str, problem: str) -> errors.InvalidOption:
        return errors.InvalidOption(
            f"The path {path!r} below {self.location} {problem}", path=f"{self.location}/{path}"
        )


class _Output(HeldOutput):
    """The context of `open_output`, and its stream. A file of at most 8 MiB is written when the
    context ends, and again if HDFS fails meanwhile. A larger one goes to a temporary file while it
    is written.
    """

    def __init__(self, storage: HdfsStorage, path: str) -> None:
        super().__init__(
            storage.location,
            path,
            piece_bytes=_PIECE,
            whole_bytes=_HELD,
            sent_bytes=_PIECE,
        )
        storage.is_link(path)  # raises for a wrong path
        self._storage = storage
        self._temporary = ""  # the path of the temporary file of a writer

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
        if self._writer is None:
            if error is None:
                self._require_new(self._storage.put_if_absent(self._path, bytes(self._held)))
            return
        try:
            if error is None:
                self._send()
                self._storage.complete(self._path, self._temporary, self._writer, self._size)
        except BaseException:
            self._storage.drop(self._temporary)
            raise
        if error is None:
            self._require_new(self._storage.publish(self._temporary, self._path))
            return
        with suppress(errors.PaimonStreamError):
            self._ask(self._writer.close)
        self._storage.drop(self._temporary)

    def _open(self) -> Any:
        # The writer gets what is held, so all that it has to ask of nodes first can be repeated.
        held = bytes(self._held)
        self._temporary, writer = self._storage.open_temporary(self._path, held)
        self._held.clear()
        return writer

    def _send(self) -> None:
        for start in range(0, len(self._held), _PIECE):
            data = bytes(self._held[start : start + _PIECE])
            self._ask(partial(self._writer.write, data))
        self._held.clear()

    def _ask(self, call: Callable[[], object]) -> None:
        self._storage.ask("write", self._path, lambda hdfs: call(), Handle.PARTS)

    def _require_new(self, result: PutResult) -> None:
        if result is PutResult.EXISTS:
            raise self._exists()


def _range(source: Any, start: int, end: int) -> bytes:
    """The bytes of a file that was opened, from `start` to before `end`. hdfs-native panics beyond
    the end of the file.
    """
    end = min(end, len(source))
    return bytes(source.read_range(start, end - start)) if start < end else b""


def _next_page(full: str, unfinished: Iterator[Any], hdfs: Any) -> tuple[Any, list[Any]]:
    """A listing of hdfs-native, and its next page. A listing that has failed seems to be complete,
    and one that is late may be used by its thread. So only the first try goes on with the listing
    in `unfinished`, which may be None, and each other try begins anew.
    """
    listing = next(unfinished, None) or iter(hdfs.list_status(full))
    return listing, list(islice(listing, _PAGE))


def _after(failure: errors.PaimonStreamError, handle: Handle) -> Handle:
    """The handle of a call after a failure: one that waits for no outage if the failure was one."""
    return Handle.ONCE if isinstance(failure, errors.Unavailable) else handle


def _unpickled(settings: HdfsSettings, right: bool) -> HdfsStorage:
    """A storage that another process pickled. `right` says whether the settings were known to be
    right there.
    """
    if right:
        trust(settings)
    return HdfsStorage(settings)
