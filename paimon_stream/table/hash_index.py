"""The files of the hash index of a table with dynamic buckets (table-kinds.md §2.1)."""

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from paimon_stream.errors import CorruptMetadata
from paimon_stream.format.entries import HASH, IndexFileMeta
from paimon_stream.storage.base import Storage, read_if_there
from paimon_stream.table.layout import Layout

Hashes = npt.NDArray[np.int32]

NO_HASHES: Final = np.zeros(0, np.int32)


def index_file(name: str, content: bytes) -> IndexFileMeta:
    """The entry for an index file with this content. The content is hashes of four bytes each."""
    return IndexFileMeta(
        index_type=HASH, file_name=name, file_size=len(content), row_count=len(content) // 4
    )


def read_index_file(
    storage: Storage, layout: Layout, partition: bytes, bucket: int, file: IndexFileMeta
) -> bytes:
    """The hashes of a bucket's keys, four bytes each, big endian. Raises `CorruptMetadata` if the
    file is missing or has another size than its entry says, and `StorageError`.
    """
    path = layout.index_file(partition, bucket, file)
    data = read_if_there(storage.read, path)
    has_size = data is not None and len(data) == file.file_size == 4 * file.row_count
    if data is None or not has_size:
        state = "is missing" if data is None else f"has {len(data):,} bytes"
        raise CorruptMetadata(
            f"{storage.location}/{path} {state}; its entry says {file.file_size:,} bytes and {file.row_count:,} "
            f"hashes. It is the hash index of bucket {bucket}: without it, keys would be written a second time. "
            "Nothing was written. Run `paimon-stream rebuild-index`, which rebuilds the index from the table's files.",
            path=path,
        )
    return data


def hashes_of(data: bytes) -> Hashes:
    """The hashes in an index file."""
    return np.frombuffer(data, ">i4").astype(np.int32)


def in_several(buckets: Iterable[Hashes]) -> Hashes:
    """The hashes that more than one of these buckets has."""
    hashes = np.sort(np.concatenate([NO_HASHES, *map(np.unique, buckets)]))
    is_repeated = hashes[1:] == hashes[:-1]
    return np.unique(hashes[1:][is_repeated])
