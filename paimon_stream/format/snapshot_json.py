"""The value of a snapshot file, and the conversion to and from JSON (format.md §3)."""

import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, NewType

from paimon_stream.errors import UnknownVersion
from paimon_stream.format.json_text import indented, integer, parse_json, understanding
from paimon_stream.format.names import checked_name
from paimon_stream.format.unknown_fields import UnknownMembers, members, unknown_members

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
    """One snapshot. The fields are in Java's order.

    Attributes:
        version: the version of the format.
        uuid: a random id of the snapshot, which newer engines write.
        id: the number in the name of its file.
        schema_id: the newest schema at the time of the commit.
        base_manifest_list: the list of the manifests of the previous snapshot, a name in
            `manifest/`.
        base_manifest_list_size: bytes of that file; None if the writer left them out.
        delta_manifest_list: the list of the manifests with the snapshot's own changes, a name in
            `manifest/`.
        delta_manifest_list_size: bytes of that file; None if the writer left them out.
        changelog_manifest_list: the list of the manifests of changelog files, a name in
            `manifest/`; None if the snapshot has none.
        changelog_manifest_list_size: bytes of that file; None if the writer left them out.
        index_manifest: the file in `manifest/` with all live index files; None if there are none.
        commit_user: the commit user. All snapshots of a stream have the same one.
        commit_identifier: the id of the batch, or `BATCH_IDENTIFIER`.
        commit_kind: what the snapshot did.
        time_millis: when it was committed, in epoch milliseconds.
        total_record_count: the rows of all live files. Rows of one key are not merged.
        delta_record_count: the added rows without the removed ones. It may be negative.
        changelog_record_count: the rows of the changelog files; None if there are none.
        watermark: the watermark in epoch milliseconds; None if there is none.
        statistics: the name of the file of table statistics in `statistics/`; None if there is
            none.
        properties: the properties that the writer has set.
        next_row_id: the first free row id, in tables with row tracking.
        operation: the statement that made the snapshot, which newer engines write.
        unknown: the fields of the file that this release does not know.
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
    unknown: UnknownMembers = ()

    @property
    def nonce(self) -> str:
        """Distinguishes this snapshot from any other that had or will have the same id. It is the
        name of the delta manifest list, which is unique in the snapshots of every engine
        (exactly-once.md).
        """
        return self.delta_manifest_list

    @property
    def manifest_lists(self) -> "tuple[ManifestListRef, ...]":
        """The manifest lists of the snapshot: base, delta and, if there is one, changelog."""
        base = ManifestListRef(self.base_manifest_list, self.base_manifest_list_size)
        delta = ManifestListRef(self.delta_manifest_list, self.delta_manifest_list_size)
        if self.changelog_manifest_list is None:
            return base, delta
        changelog = ManifestListRef(self.changelog_manifest_list, self.changelog_manifest_list_size)
        return base, delta, changelog


class ManifestListRef(NamedTuple):
    """A manifest list, as a snapshot refers to it.

    Attributes:
        name: the name of the file in `manifest/`.
        size: the size of the file in bytes; None if the writer left it out.
    """

    name: str
    size: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRef:
    """A reference to a snapshot, by its id and nonce. Ids are used again after a rollback. Nonces
    are never used again.

    Attributes:
        id: the number in the name of its file.
        nonce: the name of the snapshot's delta manifest list (`Snapshot.nonce`).
    """

    id: int
    nonce: str

    @classmethod
    def of(cls, snapshot: Snapshot) -> "SnapshotRef":
        """The reference to this snapshot."""
        return cls(id=snapshot.id, nonce=snapshot.nonce)

    @classmethod
    def of_optional(cls, snapshot: Snapshot | None) -> "SnapshotRef | None":
        """The reference to a snapshot; None if there is no snapshot."""
        return None if snapshot is None else cls.of(snapshot)

    def node(self) -> dict[str, Any]:
        """The reference as a JSON object, in the form of our private files."""
        return {"id": self.id, "nonce": self.nonce}

    @classmethod
    def of_node(cls, node: Mapping[str, Any]) -> "SnapshotRef":
        """The reference in the JSON that `node` returned. Raises `KeyError`, `ValueError`,
        `TypeError` or `OverflowError`.
        """
        return cls(id=integer(node["id"]), nonce=str(node["nonce"]))

    @classmethod
    def of_optional_node(cls, node: Mapping[str, Any] | None) -> "SnapshotRef | None":
        """The reference in this JSON. None if there is none. Raises as `of_node`."""
        return None if node is None else cls.of_node(node)


def json_key(name: str) -> str:
    """The key in JSON of an attribute, such as `schemaId` of `schema_id`."""
    return re.sub("_(.)", lambda match: match[1].upper(), name)


class _JsonField(NamedTuple):
    """How a field of a snapshot is written in JSON.

    Attributes:
        attribute: the name of the field.
        key: the key in JSON.
        json_type: the type of the JSON value.
        is_required: whether the key is always present.
    """

    attribute: str
    key: str
    json_type: type
    is_required: bool


def _json_field(declared: Field[Any]) -> _JsonField:
    has_no_default = declared.default is MISSING and declared.default_factory is MISSING
    return _JsonField(
        attribute=declared.name,
        key=json_key(declared.name),
        json_type=_TYPES[declared.type],
        is_required=declared.name == "version" or has_no_default,
    )


_TYPES: Final[dict[Any, type]] = {
    **dict.fromkeys((int, int | None, SnapshotId), int),
    **dict.fromkeys((str, str | None, CommitKind), str),
    Mapping[str, str]: dict,
}
_FIELDS: Final = tuple(_json_field(attribute) for attribute in fields(Snapshot)[:-1])
"""All fields but `unknown`."""

_OF_TAGS: Final = ("tagCreateTime", "tagTimeRetained")
_KNOWN: Final = frozenset((*(json_field.key for json_field in _FIELDS), *_OF_TAGS))
"""The keys of snapshots, and those that only tags have, which are not part of the snapshot."""

_FILE_NAMES: Final = (
    "base_manifest_list",
    "delta_manifest_list",
    "changelog_manifest_list",
    "index_manifest",
    "statistics",
)
_KINDS: Final = {kind.value for kind in CommitKind}
_OPTIONAL_ON_READ: Final = {"totalRecordCount": 0, "deltaRecordCount": 0, "version": 1}
"""The required keys that old snapshots may lack, and what stands for them."""


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The content of a snapshot's file: UTF-8 JSON in Java's layout, without unset fields. Unknown
    fields come last.
    """
    node: dict[str, Any] = {}
    for attribute, key, json_type, is_required in _FIELDS:
        value = getattr(snapshot, attribute)
        if isinstance(value, CommitKind):
            value = value.value
        elif json_type is dict:
            value = dict(value) or None
        if is_required or value is not None:
            node[key] = value
    node |= members(snapshot.unknown)
    return indented(node, 2, " : ").encode()


def _is_of_type(value: Any, json_type: type) -> bool:
    """Whether a JSON value is of this type. An integer must have 64 bits or less."""
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return json_type is int and -(2**63) <= value < 2**63
    return isinstance(value, json_type)


_ADVICE: Final = "Restore the file, or roll the table back to an older snapshot."


def decode_snapshot(data: bytes, path: str, advice: str = _ADVICE) -> Snapshot:
    """Reads a snapshot file, or a tag as the snapshot that it keeps. Unknown keys are kept.

    Args:
        data: the file's content.
        path: the file, for messages.
        advice: a sentence that says what to do about a file that cannot be read.

    Raises:
        CorruptMetadata: the bytes are not a complete snapshot, or they name an impossible file.
        UnknownVersion: the version of the file is above `VERSION`.
    """
    values: dict[str, Any] = {}
    with understanding(path, len(data), "a snapshot", advice):
        node = parse_json(data)
        for attribute, key, json_type, is_required in _FIELDS:
            value = node.get(key)
            if value is None:
                if is_required:
                    values[attribute] = _OPTIONAL_ON_READ[key]
                continue
            if not _is_of_type(value, json_type):
                raise ValueError(f"{key!r} is {value!r:.80}, not of type {json_type.__name__}")
            values[attribute] = value
        values["unknown"] = unknown_members(node, _KNOWN)
        if values["version"] > VERSION:
            raise UnknownVersion(
                f"{path} is of version {values['version']}; "
                f"this release reads up to {VERSION}. Upgrade it.",
                path=path,
            )
        if values["commit_kind"] not in _KINDS:
            raise ValueError(f"the commit kind {values['commit_kind']!r:.80} is unknown")
    values["commit_kind"] = CommitKind(values["commit_kind"])
    for attribute, key, *_ in _FIELDS:
        if attribute in _FILE_NAMES and attribute in values:
            # The call raises an error for a name that no file can have.
            checked_name(values[attribute], path, f"{path}, in {key!r},")
    values["properties"] = MappingProxyType(
        {str(name): str(value) for name, value in values.get("properties", {}).items()}
    )
    return Snapshot(**values)
