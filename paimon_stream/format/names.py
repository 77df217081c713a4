"""Checks the names of files and folders in a table (format.md §1). Another program may have written
the metadata, messages and journals that have these names. So all code that turns a name into a path
to read or delete checks the name with this module. Names of buckets and partitions are fixed
(format.md §1.1, §1.4). Names of data files are not fixed: options set prefixes, and tables from
Hive keep their names.
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
_MOST_SHOWN: Final = 80
"""How many characters of a name a message shows."""


def wrong_with(name: str) -> str | None:
    """The reason why no file or folder of a table can have this name, as the end of a sentence.
    None if the name is allowed.
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
    if size > LONGEST_NAME:
        return f"it has {size} bytes, and {LONGEST_NAME} are allowed"
    return None


def checked_name(name: str, path: str, source: str | None = None) -> str:
    """Returns the name if a file or folder of a table can have it.

    Args:
        name: the name.
        path: the file or folder that names it.
        source: the beginning of the message, which says in words where the name was found. None:
            `path` is used.

    Raises:
        CorruptMetadata: no file or folder of a table can have this name.
    """
    if _PLAIN.fullmatch(name):  # as nearly every name
        return name
    problem = wrong_with(name)
    if problem is not None:
        raise CorruptMetadata(
            f"{source or path} names {shown_name(name)}, which cannot be the name of a file "
            f"in a table: {problem}. No such file was read or deleted. "
            "Run verify, which lists such entries.",
            path=path,
            file=name[:_MOST_SHOWN],
        )
    return name


def shown_name(name: str) -> str:
    """The name in quotes, with special characters escaped. The end of a long name is left out."""
    if len(name) <= _MOST_SHOWN:
        return repr(name)
    return f"{name[:_MOST_SHOWN]!r}…"


def is_bucket(bucket: int, total_buckets: int | None = None) -> bool:
    """Whether a table can have a bucket with this number.

    Args:
        bucket: the number of the bucket.
        total_buckets: the number of buckets. None, or a number below 1, if the number is not fixed.
    """
    if bucket == POSTPONE_BUCKET:
        return True
    if total_buckets is not None and total_buckets > 0:
        return 0 <= bucket < total_buckets
    return 0 <= bucket < _LARGEST_BUCKET


def is_bucket_folder(name: str) -> bool:
    """Whether Paimon gives this name to the folder of a bucket: `bucket-<number>` or
    `bucket-postpone`.
    """
    return _BUCKET_FOLDER.fullmatch(name) is not None


def is_partition_folder(name: str, key: str) -> bool:
    """Whether Paimon gives this name to a folder of the partition key: `<key>=<value>`."""
    return name.startswith(f"{escape(key)}=")
