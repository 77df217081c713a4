"""What a task sends to the driver, as bytes: its commit messages, or the error with which it failed. The bytes are
versioned and typed, never pickled, so the driver and the executors may run different releases. docs/architecture.md
("Results of tasks") has their layout."""

import json
import struct
from dataclasses import dataclass
from typing import Final

from paimon_stream.errors import FormatError, PaimonStreamError, UnknownVersion, by_name
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.json_text import BROKEN

_MAGIC: Final = b"PSTR"
_VERSION: Final = 2
_RESULT: Final = 0
_FAILURE: Final = 1
_HEAD: Final = struct.Struct(">4sBBiq")
_COUNTS: Final = struct.Struct(">qqii")
_ROW_BYTES: Final = struct.Struct(">q")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What a task wrote. `row_bytes` is the mean Arrow size of a row in the batch where it is largest; 0 if unknown."""

    messages: tuple[CommitMessage, ...]
    row_bytes: int = 0
    partition_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailure:
    """The error with which a task failed, for the driver to raise. The task has removed its files itself."""

    error: PaimonStreamError
    partition_id: int = 0


def encode_result(result: TaskResult | TaskFailure) -> bytes:
    """The bytes of a result or a failure. Context values that JSON cannot represent are sent as text."""
    match result:
        case TaskResult():
            counts = _COUNTS.pack(0, 0, 0, CommitMessage.VERSION)
            body = counts + _ROW_BYTES.pack(result.row_bytes) + CommitMessage.serialize_all(result.messages)
            kind = _RESULT
        case TaskFailure(error=error):
            fields = {"error": type(error).__name__, "message": error.pattern, "context": error.context}
            body = json.dumps(fields, default=str).encode()
            kind = _FAILURE
    return _HEAD.pack(_MAGIC, _VERSION, kind, result.partition_id, 0) + body


def decode_result(data: bytes) -> TaskResult | TaskFailure:
    """The result or failure that `encode_result` encoded; an unknown class of error becomes `PaimonStreamError`. Raises
    `UnknownVersion` for bytes of a newer release, and `FormatError` for bytes that are not a result."""
    if len(data) < _HEAD.size or data[: len(_MAGIC)] != _MAGIC:
        raise FormatError(
            f"These {len(data)} bytes are not the result of a write task. Install the same release of "
            "paimon-stream on the driver and the executors."
        )
    _, version, kind, partition_id, _ = _HEAD.unpack_from(data)
    if version > _VERSION or kind not in (_RESULT, _FAILURE):
        raise UnknownVersion(
            f"A task result has version {version} and kind {kind}; this release reads version {_VERSION}. "
            "Upgrade paimon-stream on the driver.",
            version=version,
        )
    try:
        if kind == _FAILURE:
            fields = json.loads(data[_HEAD.size :])
            error = by_name(str(fields["error"]))(str(fields["message"]), **fields["context"])
            return TaskFailure(error=error, partition_id=partition_id)
        *_, message_version = _COUNTS.unpack_from(data, _HEAD.size)
        end, row_bytes = _HEAD.size + _COUNTS.size, 0
        if version > 1:
            (row_bytes,) = _ROW_BYTES.unpack_from(data, end)
            end += _ROW_BYTES.size
    except BROKEN:
        raise FormatError(f"The result of task {partition_id} is broken ({len(data)} bytes).") from None
    messages = CommitMessage.deserialize_all(data[end:], message_version)
    return TaskResult(messages=tuple(messages), row_bytes=row_bytes, partition_id=partition_id)
