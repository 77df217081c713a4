"""The snapshot file: its value, and the conversion to and from JSON (format.md §3)."""

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NewType

from paimon_stream.errors import UnknownVersion
from paimon_stream.format.json_text import parse_json, understanding
from paimon_stream.format.names import checked_name

SnapshotId = NewType("SnapshotId", int)

BATCH_IDENTIFIER: Final = 2**63 - 1
"""The commit identifier of every batch commit; no stream uses it (semantics.md R1.2)."""

VERSION: Final = 3
_NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})


class CommitKind(Enum):
    """What a snapshot did."""

    APPEND = "APPEND"
    COMPACT = "COMPACT"
    OVERWRITE = "OVERWRITE"
    ANALYZE = "ANALYZE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One snapshot; the fields are in Java's order. Names of lists and manifests are file names in
    `manifest/`. Sizes are bytes, None if the writer left them out. `time_millis` and `watermark`
    are epoch milliseconds.
    """

    version: int = VERSION
    uuid: str | None = None
    id: SnapshotId
    schema_id: int
    base_manifest_list: str
    base_manifest_list_size: int | None = None
    delta_manifest_list: str
    delta_manifest_list_size: int | None = None
    changelog_manifest_list: str | None = None
    changelog_manifest_list_size: int | None = None
    index_manifest: str | None = None
    commit_user: str
    commit_identifier: int
    commit_kind: CommitKind
    time_millis: int
    total_record_count: int
    delta_record_count: int
    changelog_record_count: int | None = None
    watermark: int | None = None
    statistics: str | None = None
    properties: Mapping[str, str] = field(default_factory=lambda: _NO_PROPERTIES)
    next_row_id: int | None = None
    operation: str | None = None

    @property
    def nonce(self) -> str:
        """What distinguishes this snapshot from any other that had or will have the same id: the
        name of its delta manifest list, which is unique in the snapshots of every engine
        (exactly-once.md).
        """
        return self.delta_manifest_list

    @property
    def manifest_lists(self) -> tuple[tuple[str, int | None], ...]:
        """The names of its manifest lists and their sizes: base, delta and, if there is one,
        changelog.
        """
        lists = (
            (self.base_manifest_list, self.base_manifest_list_size),
            (self.delta_manifest_list, self.delta_manifest_list_size),
        )
        changelog = self.changelog_manifest_list
        return (
            lists if changelog is None else (*lists, (changelog, self.changelog_manifest_list_size))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRef:
    """A snapshot by id and nonce: ids are reused after a rollback, nonces never."""

    id: int
    nonce: str

    @classmethod
    def of(cls, snapshot: Snapshot) -> "SnapshotRef":
        """The reference to this snapshot."""
        return cls(id=snapshot.id, nonce=snapshot.nonce)


def json_key(name: str) -> str:
    """The key in JSON of an attribute, such as `schemaId` of `schema_id`."""
    return re.sub("_(.)", lambda found: found[1].upper(), name)


def _form(one: Field[Any]) -> tuple[str, str, type, bool]:
    """The attribute, the JSON key and the JSON type of a field; True if the key is always
    present.
    """
    required = one.name == "version" or (one.default is MISSING and one.default_factory is MISSING)
    return one.name, json_key(one.name), _TYPES[one.type], required


_TYPES: Final[dict[Any, type]] = {
    **dict.fromkeys((int, int | None, SnapshotId), int),
    **dict.fromkeys((str, str | None, CommitKind), str),
    Mapping[str, str]: dict,
}
_FIELDS: Final = tuple(_form(one) for one in fields(Snapshot))
_NAMES: Final = (
    "base_manifest_list",
    "delta_manifest_list",
    "changelog_manifest_list",
    "index_manifest",
    "statistics",
)
_KINDS: Final = {kind.value for kind in CommitKind}
_OPTIONAL_ON_READ: Final = {"totalRecordCount": 0, "deltaRecordCount": 0, "version": 1}


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The file's content: UTF-8 JSON in Java's layout, without unset fields."""
    node: dict[str, Any] = {}
    for attribute, key, kind, always in _FIELDS:
        value = getattr(snapshot, attribute)
        if isinstance(value, CommitKind):
            value = value.value
        elif kind is dict:
            value = dict(value) or None
        if always or value is not None:
            node[key] = value
    return json.dumps(node, indent=2, separators=(",", " : "), ensure_ascii=False).encode()


_CURE: Final = "Restore the file, or roll the table back to an older snapshot."


def decode_snapshot(data: bytes, path: str, cure: str = _CURE) -> Snapshot:
    """Reads a snapshot file and ignores unknown keys. The message has `path` and the sentence
    `cure`. Raises `CorruptMetadata` if the bytes are no whole snapshot or name an impossible file,
    `UnknownVersion` above 3.
    """
    values: dict[str, Any] = {}
    with understanding(path, len(data), "a snapshot", cure):
        node = parse_json(data)
        for attribute, key, kind, always in _FIELDS:
            value = node.get(key)
            if value is None:
                if always:
                    values[attribute] = _OPTIONAL_ON_READ[key]
                continue
            fits = isinstance(value, kind) and not isinstance(value, bool)
            if not fits or (kind is int and not -(2**63) <= value < 2**63):
                raise ValueError(f"{key!r} is {value!r:.80}, not of type {kind.__name__}")
            values[attribute] = value
        if values["version"] > VERSION:
            text = f"{path} is of version {values['version']}; this release reads up to {VERSION}. Upgrade it."
            raise UnknownVersion(text, path=path)
        if values["commit_kind"] not in _KINDS:
            raise ValueError(f"the commit kind {values['commit_kind']!r:.80} is unknown")
    values["commit_kind"] = CommitKind(values["commit_kind"])
    for attribute, key, *_ in _FIELDS:
        if attribute in _NAMES and attribute in values:
            checked_name(values[attribute], path, f"{path}, in {key!r},")
    values["properties"] = MappingProxyType(
        {str(k): str(v) for k, v in values.get("properties", {}).items()}
    )
    return Snapshot(**values)
