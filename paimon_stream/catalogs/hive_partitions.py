"""The partitions of a table in the Hive Metastore, as Java Paimon's HiveCatalog adds and drops them
where `metastore.partitioned-table` is set (docs/spec/catalogs.md §6).
"""

from collections.abc import Sequence
from typing import Final

from paimon_stream import errors
from paimon_stream.catalogs import hive_table
from paimon_stream.catalogs.hive_client import (
    BOOL,
    I32,
    STRUCT,
    HiveClient,
    Struct,
    struct_of,
    text_list,
)
from paimon_stream.format.partition_path import unescape

_VALUES: Final = 1
_DATABASE: Final = 2
_TABLE: Final = 3
_CREATED: Final = 4
_ACCESSED: Final = 5
_STORAGE: Final = 6
"""The fields of a partition."""
_AT_ONCE: Final = 300
"""How many partitions one request adds."""


def add_partitions(client: HiveClient, table: Struct, folders: Sequence[str], seconds: int) -> None:
    """Adds partitions to a table of the metastore, which may have some of them.

    Args:
        client: the metastore.
        table: the table, as the metastore keeps it.
        folders: the folders of the partitions, relative to the table.
        seconds: the time, in seconds since 1970.

    Raises:
        UnsupportedFeature: the metastore's table has no partition columns.
        StorageError: the metastore refused.
    """
    keys = len(table.items(hive_table.PARTITION_KEYS))
    database, name = table.text(hive_table.DATABASE), table.text(hive_table.NAME)
    if not keys:
        raise errors.UnsupportedFeature(
            f"The Hive Metastore keeps {database}.{name} without partition columns, so it takes no "
            "partitions. Write the rows into a table that is created with metastore.partitioned-table.",
            table=f"{database}.{name}",
        )
    for first in range(0, len(folders), _AT_ONCE):
        partitions = [
            _partition(table, folder, values_of(folder, keys), seconds)
            for folder in folders[first : first + _AT_ONCE]
        ]
        request = struct_of({1: database, 2: name})
        request.set_structs(3, partitions)
        request.fields[4] = BOOL, True  # those that exist are left as they are
        request.fields[5] = BOOL, False  # the answer need not have the partitions
        client.ask("add_partitions_req", Struct({1: (STRUCT, request)}))


def drop_partitions(client: HiveClient, table: Struct, folders: Sequence[str]) -> None:
    """Drops partitions of a table of the metastore, some of which it may lack. Files stay. Raises
    `StorageError`.
    """
    keys = len(table.items(hive_table.PARTITION_KEYS))
    for folder in folders:
        arguments = struct_of({1: table.text(hive_table.DATABASE), 2: table.text(hive_table.NAME)})
        arguments.fields[3] = text_list(values_of(folder, keys))
        arguments.fields[4] = BOOL, False  # whether the metastore deletes the files, too
        try:
            client.ask("drop_partition", arguments)
        except errors.NotFound:
            continue  # nobody has added it


def values_of(folder: str, keys: int) -> list[str]:
    """The values of a partition's columns, as texts, by its folder. `keys` is their number."""
    parts = folder.split("/")[-keys:] if keys else []
    return [unescape(part.partition("=")[2]) for part in parts]


def _partition(table: Struct, folder: str, values: Sequence[str], seconds: int) -> Struct:
    """A partition with these values. Its storage is that of the table, in the partition's folder."""
    of_table = table.struct(hive_table.STORAGE)
    storage = Struct(dict(of_table.fields))
    storage.set_text(hive_table.LOCATION, f"{of_table.text(hive_table.LOCATION)}/{folder}")
    partition = struct_of(
        {_DATABASE: table.text(hive_table.DATABASE), _TABLE: table.text(hive_table.NAME)}
    )
    partition.fields |= {
        _VALUES: text_list(values),
        _CREATED: (I32, seconds),
        _ACCESSED: (I32, seconds),
        _STORAGE: (STRUCT, storage),
    }
    return partition
