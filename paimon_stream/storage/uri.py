"""Turns a location, as a user writes it, into a `Storage`.

The storage of a table with external roots shows each of them as one of the table's folders
(`external.py`). So the code that reads, writes or deletes data files by their paths needs no second
storage.

`catalogs/opening.py` also opens branches, and tables of catalogs that publish or lock.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

from paimon_stream.errors import InvalidOption, UnsupportedFeature
from paimon_stream.extras import require
from paimon_stream.options import UNSAFE_SINGLE_WRITER, Arguments, Options
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import (
    PathPlace,
    StorageView,
    branch_of,
    branch_storage,
    whole_of,
)
from paimon_stream.storage.external import real_root, split_root
from paimon_stream.storage.hdfs import HdfsStorage
from paimon_stream.storage.hdfs_sources import hdfs_options_for, hdfs_settings_of, moved_settings
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.location import (
    HDFS_SCHEMES,
    KIND_OF,
    SUPPORTED,
    hdfs_location,
    scheme_of,
    shown_location,
    store_location,
)
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.storage.object_store import ObjectStorage
from paimon_stream.storage.store_sources import SparkOptions, options_for, settings_of, store_of

Location: TypeAlias = str | PathLike[str]


def open_folder(
    location: Location,
    storage_options: Mapping[str, str] | None = None,
    *,
    spark: SparkOptions | None = None,
) -> Storage:
    """The storage whose root is a location: a plain path, a `file:` URI (percent-decoded),
    `memory://name`, or a folder in an object store or in HDFS. No request is sent to a store yet.

    Messages never contain the values of storage options, nor a user, password or query of the URI.

    Args:
        location: the table's folder.
        storage_options: the options of the store, which docs/stores.md lists. A local path has only
            one: `paimon-stream.unsafe-single-writer`.
        spark: reads Spark's Hadoop configuration. Settings that the storage options lack are taken
            from that configuration, and after that from the environment.

    Raises:
        UnsupportedFeature: the location has another scheme.
        InvalidOption: the location is malformed, or a storage option is unknown.
        MissingExtra: obstore is not installed, for a location in a store, or hdfs-native, for one
            in HDFS.

    >>> open_folder("file:///data/db.db/orders").location
    '/data/db.db/orders'
    """
    location, options = checked_options(location, storage_options)
    scheme = scheme_of(location)
    if scheme in KIND_OF:
        settings = settings_of(store_location(location), options, spark=spark)
        require("obstore", "store", f"The location {settings.location}")
        return ObjectStorage(settings)
    if scheme in HDFS_SCHEMES:
        of_hdfs = hdfs_settings_of(hdfs_location(location), options, spark=spark)
        require("hdfs_native", "hdfs", f"The location {of_hdfs.location}")
        return HdfsStorage(of_hdfs)
    if scheme in ("", "file"):
        return _local(location, options)
    if scheme == "memory":
        _refuse_unknown(options, location, known=set())
        name, _, root = location.partition("://")[2].partition("/")
        if not name:
            raise InvalidOption(
                f"{location!r} names no store. Give memory://name.", location=location
            )
        return MemoryStorage(name, root=root.strip("/"))
    raise UnsupportedFeature(
        f"Locations of scheme {scheme!r} are not supported ({shown_location(location)}). "
        f"Give {SUPPORTED}.",
        location=shown_location(location),
        scheme=scheme,
    )


def place_of(location: str, options: Mapping[str, str]) -> tuple[str, ...]:
    """Values that distinguish a folder from all others. They are the same for different spellings
    of its location. No value is a credential. No request is sent to a store. Raises
    `InvalidOption`.

    Args:
        location: the location of the folder.
        options: the storage options of the folder's catalog.
    """
    scheme = scheme_of(location)
    if scheme in KIND_OF:
        place = store_location(location)
        return (*store_of(place, options), place.bucket, place.prefix)
    if scheme in HDFS_SCHEMES:
        in_hdfs = hdfs_location(location)
        return in_hdfs.scheme, in_hdfs.authority, in_hdfs.path
    if scheme in ("", "file"):
        path = path_of_file_uri(location) if scheme else location
        return "file", os.path.realpath(path)
    return (shown_location(location).rstrip("/"),)


def storage_options_for(location: str, options: Mapping[str, str]) -> dict[str, str]:
    """Those options that are storage options of the location. Raises `InvalidOption` for a location
    in a store that cannot be one.
    """
    scheme = scheme_of(location)
    if scheme in KIND_OF:
        return options_for(store_location(location), options)
    return hdfs_options_for(options) if scheme in HDFS_SCHEMES else {}


def _local(location: str, options: Mapping[str, str]) -> LocalStorage:
    """The storage of a plain path or a `file:` URI."""
    unsafe_single_writer = Options(options).value(UNSAFE_SINGLE_WRITER)
    _refuse_unknown(options, location, known={UNSAFE_SINGLE_WRITER.key})
    path = path_of_file_uri(location) if scheme_of(location) == "file" else location
    storage = LocalStorage(path, unsafe_single_writer=unsafe_single_writer)
    _refuse_other_bytes(storage.location)
    return storage


def checked_options(
    location: Location, storage_options: Mapping[str, str] | None
) -> tuple[str, dict[str, str]]:
    """The location as text, and the storage options as a dict.

    Raises:
        InvalidOption: an argument has another type, or the location is not valid.
    """
    if not isinstance(location, str):
        raise InvalidOption(
            f"The table's location is {location!r}. Give {SUPPORTED}.", location=repr(location)
        )
    if not location.strip():
        raise InvalidOption(f"The table's location is empty. Give {SUPPORTED}.", location=location)
    if location.startswith("~"):
        raise InvalidOption(
            f"The table's location is {location!r}. "
            "Only a shell knows what '~' is: give the path in full.",
            location=location,
        )
    arguments = Arguments(shown_location(location))
    return location, arguments.mapping("storage_options", storage_options, "{'name': 'value'}")


def open_beside(storage: Storage, location: str) -> Storage:
    """The storage of an external path of the table in `storage`. If the table and the path are in
    stores of one kind and account, the result has the settings of `storage`. Otherwise it has those
    of the environment. Raises what `open_folder` raises.
    """
    storage = getattr(storage, "wrapped", storage)  # a view has no settings
    if scheme_of(location) == "file":
        # As in Java, nothing is percent-encoded.
        return open_folder("/" + location.partition(":")[2].lstrip("/"))
    kind = KIND_OF.get(scheme_of(location))
    if isinstance(storage, ObjectStorage) and kind == storage.settings.kind:
        place = store_location(location)
        is_of_account = place.account == storage.settings.config.get("account_name")
        if is_of_account or not place.account:
            moved = replace(
                storage.settings, location=place.shown, bucket=place.bucket, prefix=place.prefix
            )
            return replace(storage, settings=moved)
    if isinstance(storage, HdfsStorage) and scheme_of(location) in HDFS_SCHEMES:
        return HdfsStorage(moved_settings(storage.settings, hdfs_location(location)))
    return open_folder(location)


def path_of_file_uri(location: str) -> str:
    """The path of a `file:` URI, percent-decoded. Raises `InvalidOption` if the URI names a host,
    or if its path is not absolute.
    """
    path = location.partition(":")[2]
    if path.startswith("//"):
        host, slash, path = path[2:].partition("/")
        if host not in ("", "localhost"):
            raise InvalidOption(
                f"{shown_location(location)} names a host; "
                "a file URI has three slashes: file:///path.",
                location=shown_location(location),
            )
        path = slash + path
    path = unquote(path, errors="surrogateescape")
    if not path.startswith("/"):
        raise InvalidOption(
            f"{location!r} is not an absolute path. Give file:///path.", location=location
        )
    return path


def _refuse_other_bytes(path: str) -> None:
    """Raises `InvalidOption` for a path that is not UTF-8. Arrow, Spark and Java read paths as
    UTF-8, so they could not open a file below it.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        raise InvalidOption(
            f"The table's location is {path!r}, whose bytes are not UTF-8: "
            "Arrow cannot open data files there. Nothing was changed. "
            "Rename the folder, or give another one.",
            location=ascii(path),
        ) from None


def _refuse_unknown(options: Mapping[str, str], location: str, known: set[str]) -> None:
    unknown = sorted(key for key in options if key.lower() not in known)
    if unknown:
        shown = shown_location(location)
        advice = f"Known: {', '.join(sorted(known))}." if known else "This storage has none."
        raise InvalidOption(
            f"Unknown storage options for {shown}: {', '.join(unknown)}. {advice}",
            location=shown,
            options=tuple(unknown),
        )


class ExternalStorage(StorageView):
    """A storage that shows the folder of a table and its external roots. `with_roots` returns it as
    a `Storage`. Roots that are not among `roots` are opened when they are first used.

    Attributes:
        wrapped: the storage of the table's folder.
        roots: the external roots, as `shown_root` names them.
    """

    __slots__ = ("_opened", "roots")

    def __init__(
        self, wrapped: Storage, roots: tuple[str, ...], opened: Mapping[str, Storage] | None = None
    ) -> None:
        self.wrapped = wrapped
        self.roots = roots
        self._opened = {"": wrapped, **(opened or {})}

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process may have no settings for stores of another kind than the table's.
        opened = {root: self._storage(root) for root in self.roots}
        return ExternalStorage, (self.wrapped, self.roots, opened)

    def _place(self, path: str) -> PathPlace:
        root, _ = split_root(path)
        return PathPlace(self._storage(root), here=root)

    def _storage(self, root: str) -> Storage:
        if root not in self._opened:
            self._opened[root] = open_beside(self.wrapped, real_root(root))
        return self._opened[root]


def with_roots(storage: Storage, roots: tuple[str, ...]) -> Storage:
    """The storage of a table or of one of its branches. It also shows the external roots `roots`,
    which are named as by `shown_root`.
    """
    table = whole_of(storage)
    if getattr(table, "roots", None) == roots:
        return storage
    folder = table.wrapped if isinstance(table, ExternalStorage) else table
    view = cast(Storage, ExternalStorage(folder, roots))
    return view if table is storage else branch_storage(view, branch_of(storage))
