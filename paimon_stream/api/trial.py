"""Tries whether a sink in this process could write a table. Files are created in the folders to
which a sink writes, in the same way as by a sink, and are removed again. The names of these files
begin with a dot. So if a killed process leaves such a file, no reader and no listing shows it.

Only this process, on this machine, is tried. `WriteTrial.not_tried` says what was not tried.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

from paimon_stream import options as opt
from paimon_stream.errors import NotAtomic, PaimonStreamError, StorageError
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import PutResult, Storage
from paimon_stream.storage.branch import is_served, whole_of
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.location import shown_location
from paimon_stream.table.layout import INDEX_FOLDER, MANIFEST_FOLDER, OWN_FOLDER, SNAPSHOT_FOLDER
from paimon_stream.table.table import Table

_FOLDERS: Final = (SNAPSHOT_FOLDER, MANIFEST_FOLDER, OWN_FOLDER)
_BYTES: Final = 1 << 20
"""The size of the data file of a trial, in bytes."""
_DATA_FOLDERS: Final = 3
"""The most folders of buckets or partitions in which files are tried, for each root."""
_ALWAYS: Final = (
    "other machines and other users, such as those of Spark's executors",
    "the checkpoint, which Spark writes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTrial:
    """The result of a trial.

    Attributes:
        tried: the folders in which files were created and removed; "" for the table's own folder.
        failures: the errors that a sink would raise in these folders; empty if the sink can write.
        not_tried: what was not tried, as parts of a sentence.
        free_bytes: the free bytes on the disk; None if the number is not known.
    """

    tried: tuple[str, ...]
    failures: tuple[PaimonStreamError, ...]
    not_tried: tuple[str, ...]
    free_bytes: int | None = None


NOT_TRIED: Final = WriteTrial(
    tried=(), failures=(), not_tried=("whether files can be created and removed", *_ALWAYS)
)
"""The trial of a doctor that may not write."""


def try_writing(table: Table, runtime: Runtime | None = None) -> WriteTrial:
    """Tries to create and remove files in a table's folders. `runtime` gives the files their names.
    Raises `StorageError` if the folders cannot be listed.
    """
    storage = table.storage
    ids = (runtime or system()).ids
    is_atomic_needed = table.options.value(opt.COMMIT_GUARD) != "trust"
    tried = []
    failures: dict[str, PaimonStreamError] = {}
    not_tried = list(_ALWAYS)
    if is_served(storage):
        not_tried.insert(0, "the catalog's server, which publishes the snapshots")
    not_tried[:0] = [
        f"the external path {shown_location(address)}, in which the table has no folder yet"
        for address in _empty_roots(table)
    ]
    for folder in _folders(table):
        above = f"{folder}/" if folder else ""
        path = f"{above}.probe-{ids.uuid()}"
        try:
            if folder in _FOLDERS:
                _create_metadata_file(storage, path, is_atomic_needed=is_atomic_needed)
            else:
                _create_data_file(storage, path)
        except PaimonStreamError as error:
            failures.setdefault(type(error).__name__, error)
            with suppress(StorageError):
                storage.delete(path)
            continue
        try:
            storage.delete(path)
            tried.append(folder)
        except StorageError as error:
            failures.setdefault(f"removing: {type(error).__name__}", error)
            break  # each further folder might keep a file
    disk = whole_of(storage)
    free_bytes = disk.free_bytes() if isinstance(disk, LocalStorage) else None
    if free_bytes is None:
        not_tried.insert(0, "how much space the storage has left")
    return WriteTrial(
        tried=tuple(tried),
        failures=tuple(failures.values()),
        not_tried=tuple(not_tried),
        free_bytes=free_bytes,
    )


def _create_data_file(storage: Storage, path: str) -> None:
    """Creates a file as a sink creates data files: as a stream of bytes. Raises `StorageError`."""
    with storage.open_output(path) as stream:
        stream.write(b"\0" * _BYTES)


def _create_metadata_file(storage: Storage, path: str, *, is_atomic_needed: bool) -> None:
    """Creates a file as a sink creates metadata files: only if it is absent. Raises `StorageError`,
    and `NotAtomic` if it was not created atomically, although that is needed.
    """
    results = [storage.put_if_absent(path, b"trial") for _ in range(2)]
    if is_atomic_needed and results != [PutResult.CREATED, PutResult.EXISTS]:
        raise NotAtomic(
            f"{storage.location} does not create files atomically: {path} could be created twice. "
            "Use a storage that can.",
            path=path,
            location=storage.location,
        )


def _folders(table: Table) -> Iterator[str]:
    """The folders to which a sink writes: those of metadata, and some folders of data in each root.
    On a disk, an empty or missing folder is left out, because the trial must not create folders.
    The folder above is tried.
    """
    storage = table.storage
    there = storage.list_folders("")
    for folder in (*_FOLDERS, INDEX_FOLDER):
        if folder == SNAPSHOT_FOLDER and is_served(storage):
            continue
        is_there = folder in there
        if is_there and storage.has_folders:
            # A branch lists the folders of its table, and may not have all of these folders itself.
            is_there = bool(storage.list_names(folder) or storage.list_folders(folder))
        if is_there or not (storage.has_folders or folder == INDEX_FOLDER):
            yield folder
    yield ""
    for root in ("", *table.layout.roots):
        yield from islice(_data_folders(table, root), _DATA_FOLDERS)


def _data_folders(table: Table, root: str) -> Iterator[str]:
    """The folders of buckets and partitions directly in a root, sorted by name in descending
    order.
    """
    data = f"{root}{table.layout.directory}".rstrip("/")
    above = f"{data}/" if data else ""
    for name in reversed(table.storage.list_folders(data)):
        if "=" in name or name.startswith("bucket-"):
            yield f"{above}{name}"


def _empty_roots(table: Table) -> Iterator[str]:
    """The external paths in which the table has no folder of data. They are not tried, because
    creating a file in such a path would create folders.
    """
    layout = table.layout
    if layout.external is None:
        return
    for address, root in zip(dict.fromkeys(layout.external.turns), layout.roots, strict=True):
        if next(_data_folders(table, root), None) is None:
            yield address
