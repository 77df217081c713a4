"""Reads what a Spark checkpoint says about a batch: its source offsets, its watermark, and whether
the query has state. The checkpoint is only read, and never required. A checkpoint in an object
store is read with the sink's options for such a store. If the checkpoint cannot be read, the
functions return None, and the sink uses the table alone. The reason may be a scheme without a
storage, a missing permission, or a format of a later Spark.
"""

import hashlib
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from paimon_stream.errors import (
    ConfigError,
    CorruptMetadata,
    NotFound,
    PaimonStreamError,
    StorageError,
)
from paimon_stream.format.json_text import MOST_JSON, parse_json
from paimon_stream.storage.base import FileStat, Storage
from paimon_stream.storage.hdfs_sources import default_file_system
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.location import HDFS_SCHEMES, KIND_OF, scheme_of, shown_location
from paimon_stream.storage.store_sources import SparkOptions
from paimon_stream.storage.uri import open_folder, storage_options_for

_LOG = logging.getLogger(__name__)

_UNREADABLE: Final = (StorageError, ConfigError)
"""What a storage raises. An object store with wrong settings raises a `ConfigError`."""


class Kind(Enum):
    """What exists at the location of a checkpoint, and what Spark does with it."""

    QUERY = "a query's checkpoint: Spark goes on with its next batch"
    MISSING = "nothing: Spark begins a new query"
    EMPTY = "an empty folder: Spark begins a new query"
    NO_METADATA = "batches without the file metadata: Spark goes on with them under a new query id"
    OTHER = "a folder of something else: Spark begins a new query"
    FILE = "a file: Spark fails"
    DAMAGED = "a damaged file: Spark fails"
    UNREADABLE = "not to be read from here"


T = TypeVar("T")

_LOGS: Final = {"offsets", "commits", "sources", "state"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The checkpoint of one query. `storage` is None if this process cannot read the checkpoint."""

    root: str
    storage: Storage | None

    def kind(self) -> tuple[Kind, str]:
        """What exists at the location, with a path: that of the damaged file if there is one, and
        otherwise the root.
        """
        if self.storage is None:
            return Kind.UNREADABLE, self.root
        try:
            if self._is_file():
                return Kind.FILE, self.root
            files = self.storage.list_files("")
            folders = self.storage.list_folders("")
            if not files and not folders:
                return Kind.EMPTY if self._is_folder() else Kind.MISSING, self.root
            damaged = self._damaged(self.storage)
            if damaged is not None:
                return Kind.DAMAGED, f"{self.root}/{damaged}"
            if self.query_id() is not None:
                return Kind.QUERY, self.root
            if self.planned_batch() is not None or self.done_batch() is not None:
                return Kind.NO_METADATA, self.root
        except _UNREADABLE:
            return Kind.UNREADABLE, self.root
        return Kind.OTHER if files or set(folders) - _LOGS else Kind.EMPTY, self.root

    @property
    def _is_local(self) -> bool:
        return isinstance(self.storage, LocalStorage)

    def _is_file(self) -> bool:
        """Whether the location is a local file."""
        if not self._is_local:
            return False
        return LocalStorage(os.path.dirname(self.root)).exists(os.path.basename(self.root))

    def _is_folder(self) -> bool:
        """Whether there is a folder at the location, which may be empty. Object stores have no
        empty folders.
        """
        name = os.path.basename(self.root)
        parent = LocalStorage(os.path.dirname(self.root))
        return self._is_local and (not name or name in parent.list_folders(""))

    def _damaged(self, storage: Storage) -> str | None:
        """The path of the first file that Spark needs when it starts the query, and that is missing
        or damaged; None if there is no such file. A power failure can leave empty files, and files
        that end early.
        """
        if storage.exists("metadata") and self.query_id() is None:
            return "metadata"
        planned = self.planned_batch()
        done = self.done_batch()
        if planned is not None:
            # Spark starts the newest planned batch at the offsets where the previous batch ended.
            for batch in range(max(planned - 1, 0), planned + 1):
                # The file has one line each for the version, the batch's metadata, and the offsets
                # of each source. There is at least one source.
                lines = _content(storage, f"offsets/{batch}").splitlines()
                if len(lines) < 3 or not lines[0].startswith(b"v"):
                    return f"offsets/{batch}"
        if done is not None and not _content(storage, f"commits/{done}").startswith(b"v"):
            return f"commits/{done}"
        return self._empty_record(storage)

    def _empty_record(self, storage: Storage) -> str | None:
        """The path of an empty file in which a source should have recorded its files or offsets;
        None if there is no such file. Spark reads the newest compacted file of a source, and the
        files after that one.
        """
        for folder in storage.list_folders("sources"):
            records: dict[int, FileStat] = {}
            for stat in storage.list_files(f"sources/{folder}"):
                number, _, kind = stat.name.partition(".")
                if number.isascii() and number.isdigit() and kind in ("", "compact"):
                    records[int(number)] = stat
            compacted = [batch for batch, stat in records.items() if stat.name.endswith(".compact")]
            first = max(compacted, default=0)
            for batch in sorted(records):
                if batch >= first and records[batch].size == 0:
                    return records[batch].path
        return None

    def query_id(self) -> str | None:
        """The query id from the file `metadata`; None if it cannot be read."""
        id_ = (self._json("metadata", line=0) or {}).get("id")
        return id_ if isinstance(id_, str) and id_ else None

    def planned_batch(self) -> int | None:
        """The newest batch that Spark has planned; None if there is none, or if the checkpoint
        cannot be read.
        """
        return self._newest("offsets")

    def done_batch(self) -> int | None:
        """The newest batch that Spark has noted as done; None if there is none, or if the
        checkpoint cannot be read.
        """
        return self._newest("commits")

    def offsets_hash(self, batch_id: int) -> str | None:
        """A hash of the batch's source offsets as Spark planned them. A replay does not change the
        file of the offsets. If a batch is planned again, that file contains another time, even with
        the same offsets.
        """
        data = self._read(f"offsets/{batch_id}")
        return None if data is None else hashlib.sha256(data).hexdigest()

    def watermark(self, batch_id: int) -> int | None:
        """The watermark of the query at the batch, in epoch milliseconds. None if there is no
        watermark: Spark then writes 0 (semantics.md §1.5).
        """
        millis = (self._json(f"offsets/{batch_id}", line=1) or {}).get("batchWatermarkMs")
        return millis if isinstance(millis, int) and millis > 0 else None

    def is_continuous(self, batch_id: int) -> bool:
        """Whether a query with a continuous trigger has planned the batch. For such a batch, Spark
        leaves the second line empty.
        """
        lines = (self._read(f"offsets/{batch_id}") or b"").splitlines()
        return len(lines) > 1 and not lines[1].strip()

    def last_done_millis(self, batch_id: int) -> int | None:
        """The time when Spark noted the newest batch before this one as done, in epoch
        milliseconds; None if there is no such batch, or if the time cannot be read. Object stores
        give whole seconds, so the end of the second is used.

        Usually the newest such batch is number `batch_id` - 1. There is an exception. If somebody
        put an older copy of the checkpoint back while a run was alive, that run may have planned
        the batch in the copy. Spark goes on with that batch, and the copy has only the time of an
        earlier one.
        """
        if batch_id <= 0:
            return None

        def look(storage: Storage) -> int | None:
            try:
                return storage.stat(f"commits/{batch_id - 1}").modified_millis
            except NotFound:
                done = _numbered(storage, "commits")
            earlier = [number for number in done if number < batch_id]
            return done[max(earlier)].modified_millis if earlier else None

        millis = self._ask(look)
        if millis is None or self._is_local:
            return millis
        return millis + 999

    def planned_millis(self, batch_id: int) -> int | None:
        """The time when Spark planned the batch, in epoch milliseconds; None if it cannot be
        read.
        """
        return self._ask(lambda storage: storage.stat(f"offsets/{batch_id}").modified_millis)

    def has_state(self) -> bool | None:
        """Whether the query keeps state (an aggregation, a stream join, …); None if the checkpoint
        cannot be read.
        """

        def look(storage: Storage) -> bool | None:
            begun = storage.list_files("", "metadata")
            return "state" in storage.list_folders("") if begun else None

        return self._ask(look)

    def _newest(self, folder: str) -> int | None:
        return max(self._ask(lambda storage: _numbered(storage, folder)) or (), default=None)

    def _read(self, path: str) -> bytes | None:
        return self._ask(lambda storage: storage.read(path, MOST_JSON))

    def _ask(self, look: Callable[[Storage], T]) -> T | None:
        """The result of `look`, which reads the checkpoint's storage; None if the checkpoint cannot
        be read.
        """
        try:
            return None if self.storage is None else look(self.storage)
        except (*_UNREADABLE, CorruptMetadata):
            return None

    def _json(self, path: str, line: int) -> dict[str, Any] | None:
        data = self._read(path)
        lines = [] if data is None else data.splitlines()
        if len(lines) <= line:
            return None
        try:
            node = parse_json(lines[line])
        except ValueError:
            return None
        return node if isinstance(node, dict) else None


def _numbered(storage: Storage, folder: str) -> dict[int, FileStat]:
    """The files of one of Spark's logs, by batch id. Raises `StorageError`."""
    return {
        int(stat.name): stat
        for stat in storage.list_files(folder)
        if stat.name.isascii() and stat.name.isdigit()
    }


def open_checkpoint(
    location: str,
    storage_options: Mapping[str, str] | None = None,
    spark: SparkOptions | None = None,
) -> Checkpoint:
    """The checkpoint at a location. Its `root` is the absolute path of a local checkpoint, so the
    same checkpoint always has the same name. A path without a scheme is where Spark finds it: on
    the file system that `fs.defaultFS` names.

    Args:
        location: the checkpoint's location, in the form that Spark expects. Unlike in URIs, nothing
            is percent-encoded.
        storage_options: the options of the table's storage. A checkpoint in an object store or in
            HDFS uses the options that its own store knows.
        spark: returns the session's options of object stores and HDFS; None if no session is known.
    """
    if not scheme_of(location):
        qualified = _qualified(location, storage_options or {}, spark)
        if qualified is None:
            return Checkpoint(root=location, storage=None)
        location = qualified
    scheme = scheme_of(location)
    if scheme in (*KIND_OF, *HDFS_SCHEMES):
        return Checkpoint(
            root=location.rstrip("/"), storage=_store(location, storage_options or {}, spark)
        )
    path = location
    if location.startswith("file:"):
        path = "/" + location.removeprefix("file:").lstrip("/")
    elif "://" in location or location.startswith("dbfs:"):
        return Checkpoint(root=location.rstrip("/"), storage=None)
    root = os.path.abspath(path)
    return Checkpoint(root=root, storage=LocalStorage(root))


def recorded_checkpoint(
    root: str,
    storage_options: Mapping[str, str] | None = None,
) -> Checkpoint:
    """The checkpoint whose `root` a stream has recorded in the table. An absolute path without a
    scheme is local, whatever `fs.defaultFS` is here. A relative one was not known to the stream.

    Args:
        root: the recorded root.
        storage_options: the options of the table's storage.
    """
    if scheme_of(root):
        return open_checkpoint(root, storage_options)
    return Checkpoint(root=root, storage=LocalStorage(root) if os.path.isabs(root) else None)


def _qualified(path: str, options: Mapping[str, str], spark: SparkOptions | None) -> str | None:
    """A path without a scheme, as Spark understands it: on Hadoop's default file system. None if
    that is not known here, as for a relative path, which is below the home of Spark's user there.
    """
    try:
        default = default_file_system(path, options, spark=spark)
    except PaimonStreamError as unreadable:
        _LOG.info("The checkpoint %s is not read from here: %s", path, unreadable)
        return None
    if scheme_of(default) in ("", "file"):
        return path
    if not path.startswith("/"):
        _LOG.info(
            "The checkpoint %s is not read from here: it is relative, and Spark's file system is %s. "
            "Give its whole location.",
            path,
            shown_location(default),
        )
        return None
    scheme, _, address = default.partition("://")
    authority = address.partition("/")[0]  # Hadoop passes over a path of the default, too
    return f"{scheme}://{authority}{path}"


def _store(location: str, options: Mapping[str, str], spark: SparkOptions | None) -> Storage | None:
    """The object store or HDFS of a checkpoint. None if the store cannot be read, so that later
    batches do not wait for it.
    """
    try:
        storage = open_folder(location, storage_options_for(location, options), spark=spark)
        storage.exists("metadata")  # raises if the storage cannot be read
    except PaimonStreamError as unreadable:
        _LOG.info(
            "The checkpoint %s is not read from here: %s", shown_location(location), unreadable
        )
        return None
    return storage


def _content(storage: Storage, path: str) -> bytes:
    """The content of a file; empty if it is missing or too large. Raises `StorageError` if the file
    cannot be read now.
    """
    try:
        return storage.read(path, MOST_JSON)
    except (NotFound, CorruptMetadata):
        return b""
