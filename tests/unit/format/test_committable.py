"""Committables and the primitive encodings below them: what is written, read, and refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_stream.errors import FormatError, InvalidData, UnknownVersion
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.committable import ManifestCommittable
from paimon_stream.format.data_input import DataInput, encode_text

EMPTY = bytes.fromhex("0000000000000007" + "01" + "00000000" + "0000000b" + "00000000")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
COMMITTABLES = st.builds(
    ManifestCommittable,
    identifier=st.integers(-(2**63), 2**63 - 1),
    watermark=st.none() | st.integers(-(2**63), 2**63 - 1),
    properties=st.dictionaries(TEXT, TEXT, max_size=5),
    messages=st.lists(
        st.builds(
            CommitMessage,
            partition=st.just(bytes(12)),
            bucket=st.integers(0, 9),
            total_buckets=st.none() | st.just(10),
        ),
        max_size=3,
    ).map(tuple),
)


def test_the_vectors_of_java_are_read_and_written_byte_for_byte(vectors: Any) -> None:
    for one in vectors("manifest_committable")["vectors"]:
        data, expected = bytes.fromhex(one["hex"]), one["expected"]
        read = ManifestCommittable.deserialize(data, one["committable_version"])
        assert (read.identifier, read.watermark) == (expected["identifier"], expected["watermark"])
        assert read.properties == expected["properties"]
        assert [m.partition.hex() for m in read.messages] == [m["partition"] for m in expected["messages"]]
        assert [m.total_buckets for m in read.messages] == [m["total_buckets"] for m in expected["messages"]]
        assert read.serialize() == data


def test_a_commit_of_nothing_is_21_bytes() -> None:
    assert ManifestCommittable(identifier=7).serialize() == EMPTY
    assert ManifestCommittable.deserialize(EMPTY) == ManifestCommittable(identifier=7)


@given(COMMITTABLES)
def test_what_is_written_is_read_back(committable: ManifestCommittable) -> None:
    assert ManifestCommittable.deserialize(committable.serialize(), 5) == committable


@pytest.mark.parametrize("version", [-1, 0, 4, 6, 11])
def test_other_versions_are_refused_by_name(version: int) -> None:
    with pytest.raises(UnknownVersion, match=f"version {version} cannot be read; version 5 can") as caught:
        ManifestCommittable.deserialize(EMPTY, version)
    assert caught.value.context["version"] == version


def test_messages_of_version_12_are_read_and_of_version_13_are_not() -> None:
    of_version = bytearray(EMPTY)
    of_version[16] = 12
    assert ManifestCommittable.deserialize(bytes(of_version)).messages == ()
    of_version[16] = 13
    with pytest.raises(UnknownVersion, match="messages of version 13"):
        ManifestCommittable.deserialize(bytes(of_version))


def test_a_committable_cut_off_anywhere_is_refused(vectors: Any) -> None:
    data = bytes.fromhex(vectors("manifest_committable")["vectors"][0]["hex"])
    for end in range(len(data)):
        with pytest.raises(FormatError):
            ManifestCommittable.deserialize(data[:end])
    with pytest.raises(FormatError, match="1 bytes follow the end of a committable"):
        ManifestCommittable.deserialize(data + b"\0")


@pytest.mark.parametrize(
    "committable",
    [
        ManifestCommittable(identifier=2**63),
        ManifestCommittable(identifier=1, watermark=-(2**63) - 1),
        ManifestCommittable(identifier=1, properties={"k": "x" * 65_536}),
        ManifestCommittable(identifier=1, properties={"é" * 32_768: "v"}),
        ManifestCommittable(identifier=1, properties={"k": "\ud800"}),
    ],
    ids=["identifier", "watermark", "value", "key", "surrogate"],
)
def test_what_the_format_cannot_hold_is_refused(committable: ManifestCommittable) -> None:
    with pytest.raises(InvalidData):
        committable.serialize()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "0000"),
        ("a", "000161"),
        ("é", "0002c3a9"),
        ("中", "0003e4b8ad"),
        ("\0", "0002c080"),
        ("😀", "0006eda0bdedb880"),
    ],
)
def test_text_is_modified_utf8(text: str, expected: str) -> None:
    assert encode_text(text).hex() == expected
    assert DataInput(bytes.fromhex(expected), "text").text() == text


@pytest.mark.parametrize("raw", ["f09f9880", "ff", "c3", "eda0bd", "c1a1"])
def test_text_that_java_would_not_have_written_is_refused(raw: str) -> None:
    data = (len(raw) // 2).to_bytes(2, "big") + bytes.fromhex(raw)
    with pytest.raises(FormatError, match="text at byte 0"):
        DataInput(data, "text").text()
