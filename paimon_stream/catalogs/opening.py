"""Opens the storage of a table in a folder, or in a catalog that publishes its snapshots or takes a
lock. `storage/uri.py` opens only folders, and does not know catalogs.
"""

from collections.abc import Mapping
from functools import partial
from os import PathLike, fspath

from paimon_stream.catalogs.metastore import metastore_of
from paimon_stream.extras import require
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import branch_storage, split_location
from paimon_stream.storage.location import scheme_of
from paimon_stream.storage.store_sources import SparkOptions
from paimon_stream.storage.uri import Location, checked_options, open_folder, path_of_file_uri


def open_storage(
    location: Location,
    storage_options: Mapping[str, str] | None = None,
    *,
    spark: SparkOptions | None = None,
) -> Storage:
    """The storage of the table at a location, as `open_table_folder` opens it. If the location ends
    in `$branch_<name>`, it is the storage of that branch of the table. Raises the same errors.
    """
    branch = None
    if isinstance(location, PathLike):
        location = fspath(location)
    if isinstance(location, str):
        if scheme_of(location) == "file":
            location = path_of_file_uri(location)
        location, branch = split_location(location)
    folder = open_table_folder(location, storage_options, spark=spark)
    return folder if branch is None else branch_storage(folder, branch)


def open_table_folder(
    location: Location,
    storage_options: Mapping[str, str] | None = None,
    *,
    spark: SparkOptions | None = None,
) -> Storage:
    """The storage of the table in a folder, as `open_folder` opens it. If the storage options have
    the `metastore` of a catalog, that catalog opens it. Raises the errors of `open_folder`, and
    `InvalidOption` for a table that such a catalog cannot have.
    """
    place, options = checked_options(location, storage_options)
    kind = metastore_of(options)
    if kind in ("hive", "jdbc", "rest"):
        catalog = require(
            f"paimon_stream.catalogs.{kind}", kind, f"A catalog with metastore = {kind!r}"
        )
        storage: Storage = catalog.open_table(place, options, partial(open_folder, spark=spark))
        return storage
    return open_folder(place, options, spark=spark)
