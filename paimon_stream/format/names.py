"""The one rule for the names of files and folders in a table (format.md §1). Others may have
written metadata, messages and journals, so whatever turns a name into a path to read or delete asks
here. Names of buckets and partitions are fixed (format.md §1.1, §1.4). Those of data files are
open: options give prefixes, and tables from Hive keep theirs.
"""

import re
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
    """Why no file or folder of a table can have this name, as the end of a sentence; None if one
    can.
    """
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
    """Returns the name if a file or folder of a table can have it. `path` is the file or folder
    that names it; `source` says the same in words for the message. Raises `CorruptMetadata`.
    """
    wrong = wrong_with(name)
    if wrong is not None:
        cure = f"{wrong}. No such file was read or deleted. Run verify, which lists such entries."
        text = f"{source or path} names {shown_name(name)}, which cannot be the name of a file in a table: {cure}"
        raise CorruptMetadata(text, path=path, file=name[:_SHOWN])
    return name


def shown_name(name: str) -> str:
    """The name in quotes, with special characters escaped; the end of a long one is left out."""
    return repr(name) if len(name) <= _SHOWN else f"{name[:_SHOWN]!r}…"


def is_bucket(bucket: int, total_buckets: int | None = None) -> bool:
    """Whether a table can have this bucket: below the number of buckets if that is fixed, or
    `POSTPONE_BUCKET`.
    """
    if bucket == POSTPONE_BUCKET:
        return True
    most = total_buckets if total_buckets is not None and total_buckets > 0 else _LARGEST_BUCKET
    return 0 <= bucket < most


def is_bucket_folder(name: str) -> bool:
    """Whether Paimon gives this name to the folder of a bucket: `bucket-<number>` or
    `bucket-postpone`.
    """
    return _BUCKET_FOLDER.fullmatch(name) is not None


def is_partition_folder(name: str, key: str) -> bool:
    """Whether Paimon gives this name to a folder of the partition key: `<key>=<value>`."""
    return name.startswith(f"{escape(key)}=")
