"""The one rule for the names of files and folders in a table (format.md §1).

Metadata, commit messages and journals name files, and others may have written them. Everything that turns a
name into a path that is read or deleted asks here.

Paimon leaves the names of data files open: options give them prefixes, and tables that were migrated from
Hive keep the names of their files. The names of buckets and partitions are fixed (format.md §1.1, §1.4).
"""

import re
from collections.abc import Iterable
from typing import Final

from paimon_stream.errors import CorruptMetadata
from paimon_stream.format.partition_path import escape

LONGEST_NAME: Final = 255
"""The longest name of a file or folder, in bytes of UTF-8, that common file systems allow."""
POSTPONE_BUCKET: Final = -2
"""The bucket of files that wait for a compaction to give them their buckets."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,254}")
_BUCKET_FOLDER: Final = re.compile(r"bucket-(?:0|[1-9][0-9]{0,9}|postpone)")
_LARGEST_BUCKET: Final = 2**31 - 1
_SHOWN: Final = 80


def wrong_with(name: str) -> str | None:
    """Why no file or folder of a table can have this name, as the end of a sentence; None if one can."""
    if _PLAIN.fullmatch(name):
        return None
    if name in ("", ".", ".."):
        return "it is no name"
    if "/" in name:
        return "it holds a '/', so it would lead to another folder"
    if "\0" in name:
        return "it holds a NUL character"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "it cannot be written in UTF-8"
    return f"it has {size} bytes, and {LONGEST_NAME} are allowed" if size > LONGEST_NAME else None


def checked_name(name: str, path: str, source: str | None = None) -> str:
    """Returns the name if a file or folder of a table can have it. `path` is the file or folder that names
    it; `source` says the same in words for the message. Raises `CorruptMetadata`."""
    wrong = wrong_with(name)
    if wrong is not None:
        raise CorruptMetadata(
            f"{source or path} names {shown_name(name)}, which cannot be the name of a file in a table: "
            f"{wrong}. No such file was read or deleted. Run verify, which lists such entries.",
            path=path,
            file=name[:_SHOWN],
        )
    return name


def shown_name(name: str) -> str:
    """The name in quotes, with special characters escaped; the end of a long one is left out."""
    return repr(name) if len(name) <= _SHOWN else f"{name[:_SHOWN]!r}…"


def is_bucket(bucket: int, total_buckets: int | None = None) -> bool:
    """Whether a table can have this bucket: one below the number of buckets, if there is a fixed number, or
    the one of files that wait for their buckets."""
    if bucket == POSTPONE_BUCKET:
        return True
    most = total_buckets if total_buckets is not None and total_buckets > 0 else _LARGEST_BUCKET
    return 0 <= bucket < most


def is_bucket_folder(name: str) -> bool:
    """Whether Paimon gives this name to the folder of a bucket: `bucket-<number>` or `bucket-postpone`."""
    return _BUCKET_FOLDER.fullmatch(name) is not None


def is_partition_folder(name: str, key: str) -> bool:
    """Whether Paimon gives this name to a folder of the partition key: `<key>=<value>`."""
    return name.startswith(f"{escape(key)}=")


# -- names in the bytes of manifests ------------------------------------------------------------------

PREFIX_BYTES: Final = 5
"""How many bytes at the beginning of a name are compared."""

MAX_PREFIXES: Final = 16
"""With more different prefixes than this, only the first byte of each name is compared."""


class Mentions:
    """Finds names that begin like one of `names` in the bytes of a manifest, without decoding its records.

    Avro stores a string as its length followed by its plain bytes, so every name that a manifest refers to is in
    its blocks in full. Looking only for strings that begin like the wanted names is many times faster than
    decoding 25 fields of every record.

    Invariant: every name that begins with one of the prefixes and that a record holds, in any field, is found. Bytes
    that merely look like a name may be found, too. Callers ask which files are still in use, so that does no harm.

    >>> Mentions([b"data-1.avro"]).hashes(bytes([0, 22]) + b"data-2.avro") == [hash(b"data-2.avro")]
    True
    """

    def __init__(self, names: Iterable[bytes]) -> None:
        prefixes = {name[:PREFIX_BYTES] for name in names}
        if len(prefixes) > MAX_PREFIXES:
            prefixes = {prefix[:1] for prefix in prefixes}
        self._prefixes = sorted(prefixes)

    def hashes(self, block: bytes) -> list[int]:
        """The hashes of the names in a decompressed block, and perhaps of bytes that are not names."""
        found: list[int] = []
        for prefix in self._prefixes:
            start = block.find(prefix, 1)
            while start > 0:  # step by one byte, because bytes that look like a name may overlap a name
                _note(block, start, found)
                start = block.find(prefix, start + 1)
        return found


def _note(block: bytes, start: int, found: list[int]) -> None:
    """Records the string that starts at `start`, if the bytes before it can be its length (zig-zag, seven
    bits per byte). Two bytes of length are enough for every file name."""
    last = block[start - 1]
    if last > 0x7F:
        return
    found.append(hash(block[start : start + (last >> 1)]))
    if start > 1 and (first := block[start - 2]) > 0x7F:
        size = (last << 7 | first & 0x7F) >> 1
        if size <= LONGEST_NAME:  # in crafted bytes, longer strings could overlap at every byte: hashing takes minutes
            found.append(hash(block[start : start + size]))
