"""The paths of files outside a table's folder, in its external roots (table-kinds.md §3). The
storage of such a table shows each root as one of the table's folders (`ExternalStorage` in
storage/uri.py): files below `file:/data` are also below `_external_path/file%3A%2Fdata`.

Each task that writes imports this module. So it imports no storage.
"""

from typing import Final
from urllib.parse import quote, unquote

_SHOWN: Final = "_external_path/"
"""The folder that has a folder for each external root."""


def shown_root(root: str) -> str:
    """The folder that stands for an external root in paths, with a slash at its end."""
    return f"{_SHOWN}{quote(root, safe='')}/"


def real_root(shown: str) -> str:
    """The external root for which the folder `shown` stands (`shown_root`)."""
    return unquote(shown[len(_SHOWN) : -1])


def external_path(path: str) -> str | None:
    """The full path of a file outside the table, in the form of `_EXTERNAL_PATH`; None for a file
    inside the table.
    """
    root, inner = split_root(path)
    return f"{real_root(root)}/{inner}" if root else None


def shown(path: str) -> str:
    """The path of a file for messages. For a file outside the table, it is the full path."""
    return external_path(path) or path


def split_root(path: str) -> tuple[str, str]:
    """Splits a path into its external root, as `shown_root` names it, and the path below that root.
    For a file inside the table, the root is "".
    """
    if not path.startswith(_SHOWN):
        return "", path
    root, _, inner = path[len(_SHOWN) :].partition("/")
    return f"{_SHOWN}{root}/", inner
