"""Parses and writes JSON of any origin. The size of a text limits the memory and the time that
parsing takes. `parse_json` reads snapshots, schemas, tags, consumers, journals, Avro schemas and
Spark's checkpoints. It raises `ValueError` for a text that is wrong. `understanding` turns such
errors, and errors in other content, into messages for users.
"""

import hashlib
import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from itertools import chain
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple

from paimon_stream.errors import CorruptMetadata, FormatError, UnknownVersion

MOST_JSON: Final = 16 << 20
"""The most bytes of a metadata file that is JSON. A schema of 50,000 columns has 5 MB."""

_MOST_VALUES: Final = 1_000_000
"""The most values in one file. An empty list takes three bytes of text and 64 bytes of memory."""

_DEEPEST: Final = 250
"""How deep values may be nested. A type that is nested 100 deep (`format/types.py`) needs a little
more than 200 levels.
"""

_MOST_DIGITS: Final = 100
_LARGEST: Final = 2**63 - 1


def parse_json(data: bytes | str, *, parse_float: Callable[[str], float | Decimal] = float) -> Any:
    """The value of a JSON text.

    Args:
        data: the text, or its bytes in UTF-8.
        parse_float: converts the text of a number with a fraction or an exponent.

    Raises:
        ValueError: the text is not JSON, or exceeds a limit of this module. `Infinity` and `NaN`
            are not JSON. A text with half of a surrogate pair is not JSON either, because no file
            could hold it.
    """
    text = data if isinstance(data, str) else data.decode()
    brackets = text.count("[") + text.count("{")
    if brackets + text.count(",") > _MOST_VALUES:
        raise ValueError(f"it holds more than {_MOST_VALUES:,} values")
    decoder = _DECODER if parse_float is float else _decoder(parse_float)
    try:
        node = decoder.decode(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if brackets > _DEEPEST:
        _check_depth(node)
    if "\\u" in text:  # only such an escape can stand for half of a pair
        try:
            json.dumps(node, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("it holds half of a surrogate pair") from None
    return node


def integer(value: Any) -> int:
    """A value as an integer of 64 bits. Raises `ValueError`, `TypeError` or `OverflowError`."""
    number = int(value)
    if not -_LARGEST - 1 <= number <= _LARGEST:
        raise ValueError(f"{number} is not a number of 64 bits")
    return number


def optional_integer(value: Any) -> int | None:
    """A value that is an integer or NULL. Raises what `integer` raises."""
    if value is None:
        return None
    return integer(value)


def optional_text(value: Any) -> str | None:
    """A value that is text or NULL. Raises `TypeError`."""
    if value is not None and not isinstance(value, str):
        raise TypeError(value)
    return value


_TOO_DEEP: Final = f"its values are nested more than {_DEEPEST} deep"


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number in it has {len(digits):,} digits")
    return int(digits)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _decoder(parse_float: Callable[[str], Any]) -> json.JSONDecoder:
    return json.JSONDecoder(
        parse_float=parse_float, parse_int=_integer, parse_constant=_no_constant
    )


_DECODER: Final = _decoder(float)


def _check_depth(node: Any) -> None:
    """Raises `ValueError` if objects and arrays are nested too deep."""
    level = [node]
    for _ in range(_DEEPEST + 1):
        values = chain.from_iterable(map(_values_inside, level))
        level = [value for value in values if isinstance(value, dict | list)]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def _values_inside(node: Any) -> Iterable[Any]:
    values: Iterable[Any] = node.values() if isinstance(node, dict) else node
    return values


def indented(node: Any, spaces: int, colon: str, *, sorts_keys: bool = False) -> str:
    """The text that `json.dumps` returns for a value if it indents and does not escape characters.
    Python's own encoder is several times slower when it indents, and each commit writes a few such
    files.

    Args:
        node: the value; the keys of its objects are text.
        spaces: the number of spaces by which each level is indented.
        colon: the text between a key and its value.
        sorts_keys: whether the keys of objects are sorted.

    Raises:
        TypeError: a part of the value has no form in JSON.
    """
    return _indented(node, "\n", " " * spaces, colon, sorts_keys)


def _indented(node: Any, line: str, step: str, colon: str, sorts_keys: bool) -> str:
    """The text of a value. `line` is the line break, followed by the spaces of the surrounding
    level.
    """
    if isinstance(node, str):
        return encode_basestring(node)
    if isinstance(node, int) and not isinstance(node, bool):
        return int.__repr__(node)
    if not node or not isinstance(node, dict | list | tuple):
        return json.dumps(node)
    inner = line + step
    between = f",{inner}"
    if isinstance(node, dict):
        members = sorted(node.items()) if sorts_keys else node.items()
        text = between.join(
            [
                f"{encode_basestring(key)}{colon}{_indented(value, inner, step, colon, sorts_keys)}"
                for key, value in members
            ]
        )
        return f"{{{inner}{text}{line}}}"
    text = between.join([_indented(item, inner, step, colon, sorts_keys) for item in node])
    return f"[{inner}{text}{line}]"


# -- what is wrong with content -------------------------------------------------------------------
BROKEN: Final = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    EOFError,
    struct.error,
)
"""What Python and its libraries raise when they decode bytes that are not what they should be."""


@contextmanager
def understanding(path: str, size: int, what: str, advice: str) -> Iterator[None]:
    """A context for decoding a file. It turns each error inside the context into a
    `CorruptMetadata` that names the file. An `UnknownVersion` stays as it is.

    Args:
        path: the file, for messages.
        size: the size of the file in bytes.
        what: what the file should be, such as "a snapshot".
        advice: a sentence that says what to do about a file that cannot be read.
    """
    try:
        yield
    except FormatError as error:
        if "path" in error.context:
            raise
        kind = UnknownVersion if isinstance(error, UnknownVersion) else CorruptMetadata
        context = {**error.context, "path": path}
        raise kind(f"{path}: {error.message} {advice}", **context) from None
    except BROKEN as error:
        raise CorruptMetadata(
            f"{path} is not {what} ({size:,} bytes): {in_words(error)}. {advice}", path=path
        ) from None


def in_words(error: Exception) -> str:
    """The reason that one of Python's own errors gives, as the end of a sentence.

    >>> in_words(KeyError("nextSnapshot"))
    "it has no 'nextSnapshot'"
    """
    match error:
        case json.JSONDecodeError():
            return f"it is not JSON ({error.msg}, line {error.lineno}, column {error.colno})"
        case UnicodeDecodeError():
            return "it is not UTF-8"
        case KeyError():
            return f"it has no {error.args[0]!r}"
        case EOFError():
            return "it is cut off"
        case RecursionError():
            return "its parts are nested too deeply"
        case TypeError() | AttributeError():
            return "its parts are of other types than expected"
    return str(error).rstrip(".") or type(error).__name__


# -- small private files --------------------------------------------------------------------------
#
# Checksummed files hold what the sink keeps beside a table (`_paimon_stream/`). A single wrong byte
# makes the whole file invalid, and an invalid file is refused. The files are versioned text that a
# person can read, and never pickles.


_VERSIONS: Final[Mapping[str, int]] = {
    "journal": 1,
    "writer": 1,
    "claim": 1,
    "expiry": 1,
    "rollbacks": 1,
    "removal": 1,
    "branch": 1,
    "receipt": 1,
    "partitions": 1,
}
"""The newest version of each kind of file. A form that older releases cannot understand gets the
next number, and only its own kind is then unknown to them. Older numbers stay readable.
"""

_NUMBER: Final = re.compile("[0-9]{1,9}")

_ADVICE: Final[Mapping[str, str]] = {
    "journal": (
        "Nothing was written. "
        "Move it away, and the file 'writer' beside it, which vouches for the journal; "
        "the batch is then judged by the table's snapshots alone."
    ),
    "rollbacks": (
        "It says which snapshots rollbacks have removed. Restore it from a backup; "
        "or look for the rows of all streams in the table, and move it away."
    ),
    "removal": (
        "It says which snapshots a rollback or fast forward has removed. Restore it from a backup; "
        "or look for the rows of all streams in the table, and move it away."
    ),
    "receipt": (
        "Nothing was written. It says that a batch write with an identity is done. Look for its rows in the "
        "table. If they are there, leave the identity alone; if they are missing, move the file away."
    ),
    "partitions": (
        "It says which partitions a metastore lacks. Move it away, and let a Java engine repair the "
        "table's partitions in the metastore."
    ),
    "branch": (
        "It says when the branch was made. Restore it from a backup; "
        "or look for the rows of the branch's streams, and move it away."
    ),
}
"""What to do about a file of each kind that cannot be trusted."""

_ADVICE_FOR_OTHERS: Final = (
    "Nothing was written. Move it away; the batch is then judged by the table's snapshots alone."
)


def encode_checksummed(kind: str, body: dict[str, Any]) -> bytes:
    """The content of a checksummed file: `paimon-stream <kind> <version> sha256:<digest>`, a line
    break, and the JSON. The version is the newest version of the kind.
    """
    content = indented(body, 1, ": ", sorts_keys=True)
    digest = hashlib.sha256(content.encode()).hexdigest()
    return f"paimon-stream {kind} {_VERSIONS[kind]} sha256:{digest}\n{content}\n".encode()


def decode_checksummed(kind: str, data: bytes, path: str) -> dict[str, Any]:
    """The JSON in a checksummed file. The file may have any version up to the newest of its kind.

    Args:
        kind: what the file should be, a key of `_VERSIONS`.
        data: the file's content.
        path: the file, for messages.

    Raises:
        CorruptMetadata: the file is incomplete, damaged or of another kind.
        UnknownVersion: a newer release wrote the file.
    """
    first_line, _, after_first_line = data.partition(b"\n")
    words = first_line.decode("utf-8", "replace").split(" ")
    is_of_kind = len(words) == 4 and words[:2] == ["paimon-stream", kind]
    if not is_of_kind or not _NUMBER.fullmatch(words[2]):
        raise _corrupt(kind, path, "its first line is not the expected one")
    _, _, version_text, checksum = words
    version = int(version_text)
    newest = _VERSIONS[kind]
    if version > newest:
        raise UnknownVersion(
            f"{path} is a {kind} of version {version}; this release reads versions up to {newest}. "
            "A newer release wrote it: upgrade this one.",
            path=path,
        )
    if version < 1:
        raise _corrupt(kind, path, "no release has written its version")
    content = after_first_line.removesuffix(b"\n")
    if checksum != f"sha256:{hashlib.sha256(content).hexdigest()}":
        raise _corrupt(kind, path, "its checksum does not match")
    try:
        body = parse_json(content)
    except ValueError as error:
        raise _corrupt(kind, path, in_words(error)) from None
    if not isinstance(body, dict):
        raise _corrupt(kind, path, "it is not a JSON object")
    return body


@contextmanager
def reading_checksummed(
    kind: str, data: bytes, path: str, what: str, advice: str
) -> Iterator[dict[str, Any]]:
    """A context for decoding a checksummed file: gives its JSON, and turns errors inside into those
    of `understanding`.

    Args:
        kind: as in `decode_checksummed`.
        data: the file's content.
        path: the file, for messages.
        what: as in `understanding`.
        advice: as in `understanding`.

    Raises:
        CorruptMetadata, UnknownVersion: the file cannot be read.
    """
    body = decode_checksummed(kind, data, path)
    with understanding(path, len(data), what, advice):
        yield body


class RecordField(NamedTuple):
    """How one attribute of a record is kept in JSON, where the value itself can be written.

    Attributes:
        attribute: the name of the attribute.
        key: the key in JSON.
        read: makes the attribute's value from the value in JSON.
    """

    attribute: str
    key: str
    read: Callable[[Any], Any]


def values_to_json(record: object, fields: Iterable[RecordField]) -> dict[str, Any]:
    """The values of these attributes, by their keys in JSON."""
    return {field.key: getattr(record, field.attribute) for field in fields}


def values_of_json(body: Mapping[str, Any], fields: Iterable[RecordField]) -> dict[str, Any]:
    """The values in the JSON, by the names of their attributes. Raises `KeyError`, and what the
    readers raise.
    """
    return {field.attribute: field.read(body[field.key]) for field in fields}


def _corrupt(kind: str, path: str, reason: str) -> CorruptMetadata:
    advice = _ADVICE.get(kind, _ADVICE_FOR_OTHERS)
    return CorruptMetadata(f"The {kind} {path} cannot be trusted: {reason}. {advice}", path=path)
