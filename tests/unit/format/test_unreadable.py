"""Content that cannot be read is described in words, never by the name of a Python error."""

from __future__ import annotations

import doctest
import json
from collections.abc import Callable

import pytest

import paimon_stream.format.json_text
from paimon_stream.errors import CorruptMetadata
from paimon_stream.format.json_text import in_words
from paimon_stream.format.schema_json import decode_schema
from paimon_stream.format.snapshot_json import decode_snapshot


def test_the_examples_run() -> None:
    assert doctest.testmod(paimon_stream.format.json_text) == (0, 1)


@pytest.mark.parametrize("decode", [decode_schema, decode_snapshot])
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is not JSON (Expecting value, line 1, column 1)."),
        (b'{"id":', "it is not JSON (Expecting value, line 1, column 7)."),
        (b"\xff", "it is not UTF-8."),
    ],
)
def test_what_is_not_json_is_said_in_words(
    decode: Callable[[bytes, str], object], data: bytes, words: str
) -> None:
    with pytest.raises(CorruptMetadata) as raised:
        decode(data, "/w/t/some-file")
    assert words in str(raised.value)
    assert "Error" not in str(raised.value)


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"{}", "it has no 'id'."), (b"[]", "its parts are of other types than expected.")],
)
def test_a_schema_of_another_structure_is_described_in_words(data: bytes, words: str) -> None:
    with pytest.raises(CorruptMetadata) as raised:
        decode_schema(data, "/w/t/schema/schema-0")
    assert words in str(raised.value)
    assert "Error" not in str(raised.value)


def test_other_errors_keep_their_own_words() -> None:
    assert in_words(ValueError("kind 7.")) == "kind 7"
    assert in_words(EOFError()) == "it is cut off"
    assert in_words(OverflowError()) == "OverflowError"
    assert "line 1" in in_words(json.JSONDecodeError("Expecting value", "x", 0))
