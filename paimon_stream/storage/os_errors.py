"""Errors of the operating system as this package's errors, with the file and what to do."""

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Final

from paimon_stream.errors import AlreadyExists, NoSpace, NotFound, PermissionDenied, StorageError, Unavailable

_KINDS: Final[dict[int, tuple[type[StorageError], str]]] = {
    errno.ENOENT: (NotFound, "it does not exist. Check the table's location"),
    errno.EEXIST: (AlreadyExists, "it already exists. Remove it, or write under another name"),
    errno.ENOTDIR: (
        AlreadyExists,
        "{file} is a file, where a folder is needed. Remove that file, or use another location",
    ),
    errno.EACCES: (PermissionDenied, "permission denied. Allow this process to read and write the folder"),
    errno.EPERM: (PermissionDenied, "not permitted. Allow this process to read and write the folder"),
    errno.EROFS: (PermissionDenied, "the file system is read-only. Mount it writable"),
    errno.ENAMETOOLONG: (StorageError, "the path, or a name in it, is too long. Use shorter names"),
    errno.ELOOP: (StorageError, "its symbolic links lead to each other. Remove the links"),
    errno.EMFILE: (
        Unavailable,
        "this process has too many files open. Raise its limit (ulimit -n), or close files, and try again",
    ),
    errno.ENOSPC: (NoSpace, "the disk is full. Free space and try again"),
    errno.EDQUOT: (NoSpace, "the disk quota is used up. Free space or raise the quota, and try again"),
    errno.EFBIG: (NoSpace, "the file is larger than the process or file system allows. Raise that limit"),
}


@contextlib.contextmanager
def reading(full: str) -> Iterator[None]:
    """Raises the `OSError` of a read as this package's error. A folder in place of the file is `NotFound`. So is a path
    at which there can be no file: one with too long a name, or through links that lead to each other."""
    try:
        yield
    except (IsADirectoryError, NotADirectoryError):
        raise NotFound(f"There is no file {full}. Check the table's location.", path=full) from None
    except OSError as failed:
        error = translated(failed, full, "read")
        if failed.errno in (errno.ELOOP, errno.ENAMETOOLONG):
            raise NotFound(error.message, path=full) from None
        raise error from None


@contextlib.contextmanager
def writing(full: str) -> Iterator[None]:
    """Raises the `OSError` of a write as this package's error."""
    try:
        yield
    except OSError as failed:
        raise translated(failed, full, "write") from None


def translated(failed: OSError, full: str, verb: str) -> StorageError:
    """This package's error for an `OSError`. `verb` says what was done to the file, such as "read"."""
    kind, why = _KINDS.get(
        failed.errno or 0, (Unavailable, f"{failed.strerror or failed}. Check the disk or mount and try again")
    )
    return kind(f"Cannot {verb} {full}: {why.replace('{file}', _file_above(full))}.", path=full)


def _file_above(full: str) -> str:
    """The nearest file among the parent folders of a path."""
    above = os.path.dirname(full)
    while not os.path.exists(above) and above not in ("", "/"):
        above = os.path.dirname(above)
    return above
