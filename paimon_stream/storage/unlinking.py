"""Deleting below a folder of the local file system without following symbolic links.

A path is followed from one open folder to the next, and a link in it is refused. So nothing outside the root
is deleted, even if a folder is replaced by a link meanwhile. The root itself may be a link or lie behind one.
"""

import contextlib
import errno
import os
import stat
from typing import Final

from paimon_stream.errors import StorageError

NO_SUCH_FILE: Final = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG))
"""What the system says of a path at which no file can be found, whatever is tried."""

_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


def delete_below(root: str, path: str) -> None:
    """Deletes the file at the path below the root, or an empty folder. Of a symbolic link to a file it deletes the
    link, never what the link points to. Does nothing for a folder that is not empty, and for a link to a folder. Raises
    `StorageError` for a path through a symbolic link, and `OSError`."""
    *folders, name = path.split("/")
    at = os.open(root, _FOLDER)
    try:
        for folder in folders:
            inner = _inner(at, folder, f"{root}/{path}")
            os.close(at)
            at = inner
        _delete(at, name)
    finally:
        os.close(at)


def is_link_below(root: str, path: str) -> bool:
    """Whether the path, or a folder above it that is below the root, is a symbolic link."""
    full = root
    for part in path.split("/"):
        full = f"{full}/{part}"
        if os.path.islink(full):
            return True
    return False


def _inner(at: int, folder: str, full: str) -> int:
    try:
        return os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
    except OSError as failed:
        if failed.errno in NO_SUCH_FILE and stat.S_ISLNK(_mode(at, folder)):
            raise StorageError(
                f"Cannot delete {full}: its folder {folder} is a symbolic link, and nothing is deleted "
                "through links. Delete the file by hand, or move the folder to where the link is.",
                path=full,
            ) from None
        raise


def _delete(at: int, name: str) -> None:
    mode = _mode(at, name)
    if stat.S_ISDIR(mode):
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=at)
    elif not (stat.S_ISLNK(mode) and stat.S_ISDIR(_mode(at, name, follow=True))):
        os.unlink(name, dir_fd=at)


def _mode(at: int, name: str, *, follow: bool = False) -> int:
    """The type and rights of a file; 0 if they are not known."""
    try:
        return os.stat(name, dir_fd=at, follow_symlinks=follow).st_mode
    except OSError:
        return 0
