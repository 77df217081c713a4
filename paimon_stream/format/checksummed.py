"""Small private files that are either fully valid or refused: a header with a checksum, then JSON.

They hold what the sink keeps beside a table (`_paimon_stream/`). They are versioned text that a person can
read, and a single wrong byte makes the whole file invalid. They are never pickles.
"""

import hashlib
import json
import re
from typing import Any, Final

from paimon_stream.errors import CorruptMetadata, UnknownVersion
from paimon_stream.format.json_text import in_words, parse_json

_VERSION: Final = 1
_NUMBER: Final = re.compile("[0-9]{1,9}")


def encode_checksummed(kind: str, body: dict[str, Any]) -> bytes:
    """The file's content: `paimon-stream <kind> 1 sha256:<digest>`, a line break, then the JSON."""
    text = json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"paimon-stream {kind} {_VERSION} sha256:{digest}\n{text}\n".encode()


def decode_checksummed(kind: str, data: bytes, path: str) -> dict[str, Any]:
    """The JSON of a checksummed file; `path` is for the message. Raises `CorruptMetadata` if the file is incomplete,
    damaged or of another kind, `UnknownVersion` if a newer release wrote it."""
    header, _, rest = data.partition(b"\n")
    words = header.decode("utf-8", "replace").split(" ")
    if len(words) != 4 or words[:2] != ["paimon-stream", kind] or not _NUMBER.fullmatch(words[2]):
        raise _corrupt(kind, path, "its first line is not the expected one")
    if int(words[2]) != _VERSION:
        raise UnknownVersion(
            f"{path} is a {kind} of version {words[2]}; this release reads version {_VERSION}. A newer "
            "release wrote it: upgrade this one.",
            path=path,
        )
    text = rest.removesuffix(b"\n")
    if words[3] != f"sha256:{hashlib.sha256(text).hexdigest()}":
        raise _corrupt(kind, path, "its checksum does not match")
    try:
        body = parse_json(text)
    except ValueError as wrong:
        raise _corrupt(kind, path, in_words(wrong)) from None
    if not isinstance(body, dict):
        raise _corrupt(kind, path, "it is not a JSON object")
    return body


def _corrupt(kind: str, path: str, why: str) -> CorruptMetadata:
    beside = ", and the file 'writer' beside it, which vouches for the journal" if kind == "journal" else ""
    return CorruptMetadata(
        f"The {kind} {path} cannot be trusted: {why}. Nothing was written. Move it away{beside}; the batch "
        "is then judged by the table's snapshots alone.",
        path=path,
    )
