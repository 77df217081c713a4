"""Replaces Python methods in the package's messages with the matching commands, for people at a terminal."""

import re
from typing import Final

COMMAND_OF: Final = {
    "compact_manifests": "compact-manifests",
    "create_tag": "tag create",
    "delete": "delete",
    "delete_tag": "tag delete",
    "drop_partitions": "drop-partition",
    "expire_snapshots": "expire",
    "files": "files",
    "rebuild_index": "rebuild-index",
    "recommit": "recommit",
    "remove_orphan_files": "orphans",
    "repair_hints": "repair-hints",
    "rollback_to": "rollback",
    "snapshots": "snapshots",
    "tags": "tag list",
    "truncate": "truncate",
    "verify": "verify",
}
"""The methods of `PaimonTable`, each with the command that does the same."""

_OPTION_OF: Final = {
    name: f"--{name.replace('_', '-')}"
    for name in ("max_deletes", "max_paths", "older_than", "retain_max", "retain_min", "time_retained")
} | {"snapshot_id": "--snapshot", "dry_run=False": "--yes", "dry_run = False": "--yes"}

_METHODS: Final = "|".join(COMMAND_OF)
_LONG_METHODS: Final = "|".join(name for name in COMMAND_OF if "_" in name)
_CALL: Final = re.compile(
    rf"\bPaimonTable\.({_METHODS})\b(?:\([^()]*\))?|(?<![\w.])({_METHODS})\(\)|(?<![\w./])({_LONG_METHODS})\b(?:\([^()]*\))?"
)
_ARGUMENT: Final = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, _OPTION_OF))})(?!\w)")
_CREATE: Final = re.compile(r"Create the table with PaimonTable\.create\(.*?\), or correct the location")


def in_commands(text: str) -> str:
    """The text with commands and their options in place of methods and their arguments.

    >>> in_commands("PaimonTable.snapshots() and tags() list what there is.")
    '`paimon-stream snapshots` and `paimon-stream tag list` list what there is.'
    """
    text = _CREATE.sub("Correct the location", text)
    text = _CALL.sub(lambda found: f"`paimon-stream {COMMAND_OF[found[1] or found[2] or found[3]]}`", text)
    return _ARGUMENT.sub(lambda found: _OPTION_OF[found[1]], text)
