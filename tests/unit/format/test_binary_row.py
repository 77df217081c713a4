"""Binary rows: what is refused, and what the layout does at its edges."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_stream.errors import FormatError, InvalidData, UnsupportedFeature
from paimon_stream.format.binary_columns import column_values, encode_columns
from paimon_stream.format.binary_row import decode_row, deserialize, encode_row, serialize
from paimon_stream.format.murmur import hash_bytes, hash_rows
from paimon_stream.format.types import parse_type


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("TINYINT", 128),
        ("INT", 2**31),
        ("BIGINT", -(2**63) - 1),
        ("INT", "1"),
        ("FLOAT", 1e300),
        ("STRING", 5),
        ("STRING", "\ud800"),
        ("BYTES", "text"),
        ("DECIMAL(4, 2)", Decimal("100")),
        ("DECIMAL(4, 2)", Decimal("1.234")),
        ("DECIMAL(38, 2)", Decimal("NaN")),
        ("DECIMAL(4, 2)", 1.5),
        ("TIMESTAMP(6)", "2024-01-01"),
        ("TIMESTAMP(6)", 2**90),
        ("ARRAY<INT>", 5),
        ("ROW<a INT>", (1, 2)),
    ],
)
def test_a_value_that_its_type_cannot_hold_is_refused(text: str, value: Any) -> None:
    with pytest.raises(InvalidData):
        encode_row([parse_type(text)], [value])


def test_a_row_needs_a_value_for_every_column() -> None:
    with pytest.raises(InvalidData, match="2 columns got 1"):
        encode_row([parse_type("INT")] * 2, [1])


@pytest.mark.parametrize(
    ("text", "slot", "rest"),
    [
        ("STRING", struct.pack("<ii", 9, 16), b"shorter."),
        ("STRING", struct.pack("<ii", 8, -8), b"negative"),
        ("STRING", struct.pack("<ii", -1, 16), b"negative"),
        ("STRING", b"1234567" + b"\x88", b""),
        ("STRING", b"\xff\xff\0\0\0\0\0\x82", b""),
        ("TIMESTAMP(6)", struct.pack("<ii", 1_000_000, 16), bytes(8)),
        ("TIMESTAMP(6)", struct.pack("<ii", 0, 12_000), bytes(8)),
        ("TIMESTAMP(6)", struct.pack("<ii", 0, -8), bytes(8)),
        ("DECIMAL(20, 0)", struct.pack("<ii", 17, 16), bytes(24)),
        ("DECIMAL(20, 0)", struct.pack("<ii", 0, 16), bytes(16)),
        ("DECIMAL(2, 0)", struct.pack("<q", 100), b""),
        ("ARRAY<INT>", struct.pack("<ii", 8, 16), struct.pack("<ii", 2**30, 0)),
        ("ARRAY<INT>", struct.pack("<ii", 8, 16), struct.pack("<ii", -1, 0)),
        ("MAP<INT, INT>", struct.pack("<ii", 8, 16), struct.pack("<ii", 90, 0)),
        ("ROW<a INT>", struct.pack("<ii", 8, 16), bytes(8)),
    ],
)
def test_bytes_that_are_no_value_are_refused(text: str, slot: bytes, rest: bytes) -> None:
    with pytest.raises(FormatError):
        decode_row([parse_type(text)], bytes(8) + slot + rest)


def test_a_map_with_more_keys_than_values_is_refused() -> None:
    keys, values = struct.pack("<iii", 1, 0, 5) + bytes(4), bytes(8)
    body = struct.pack("<i", len(keys)) + keys + values
    with pytest.raises(FormatError, match="1 keys and 0 values"):
        decode_row(
            [parse_type("MAP<INT, INT>")], bytes(8) + struct.pack("<ii", len(body), 16) + body
        )


def test_another_arity_is_refused() -> None:
    data = serialize([parse_type("INT")], [1])
    with pytest.raises(FormatError, match="has 1 columns, expected are 2"):
        deserialize([parse_type("INT")] * 2, data)
    with pytest.raises(FormatError, match="too short"):
        deserialize([], data[:3])


def test_null_keeps_room_in_rows_but_not_in_arrays() -> None:
    stamp, wide = parse_type("TIMESTAMP(6)"), parse_type("DECIMAL(20, 0)")
    assert len(encode_row([stamp, wide], [None, None])) == 8 + 16 + 8 + 16
    assert len(encode_row([parse_type("ARRAY<TIMESTAMP(6)>")], [[None]])) == 8 + 8 + 16


def test_every_nan_is_the_same_nan() -> None:
    odd = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    double = parse_type("DOUBLE")
    encoded = encode_columns([pa.array(odd)], [double])
    plain = encode_row([double], [float("nan")])
    assert [encoded.row(0), encoded.row(1)] == [plain, plain]
    assert encode_row([double], [float(odd[1])]) == plain


def test_a_nested_column_is_no_key() -> None:
    with pytest.raises(UnsupportedFeature, match="ARRAY<INT>"):
        encode_columns([pa.array([[1]], pa.list_(pa.int32()))], [parse_type("ARRAY<INT>")])


def test_a_column_that_does_not_fit_its_type_is_refused() -> None:
    with pytest.raises(InvalidData, match="does not fit into INT"):
        encode_columns([pa.array([2**40])], [parse_type("INT")])


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None, "longer than a slot"], pa.large_string()),
        pa.array(["a", None, "longer than a slot"]).dictionary_encode(),
        pa.chunked_array([["a", None], ["longer than a slot"]]).combine_chunks(),
    ],
    ids=["large", "dictionary", "chunked"],
)
def test_strings_come_in_all_forms_of_arrow(column: pa.Array) -> None:
    types = [parse_type("STRING")]
    encoded = encode_columns([column], types)
    values = [None if one is None else str(one) for one in ("a", None, "longer than a slot")]
    assert [encoded.row(i) for i in range(3)] == [encode_row(types, [value]) for value in values]
    assert column_values(column, types[0]) == values


def test_text_under_a_null_does_not_show() -> None:
    hidden = pa.StringArray.from_buffers(
        2,
        pa.py_buffer(struct.pack("<iii", 0, 12, 12)),
        pa.py_buffer(b"hidden words"),
        pa.py_buffer(b"\2"),
    )
    types = [parse_type("STRING")]
    encoded = encode_columns([hidden], types)
    assert encoded.row(0) == encode_row(types, [None])
    assert encoded.row(1) == encode_row(types, [""])


def test_empty_columns_make_no_rows() -> None:
    for text in ("INT", "STRING", "DECIMAL(20, 2)", "TIMESTAMP(6)", "BOOLEAN"):
        type_ = parse_type(text)
        column = (
            pa.nulls(5).cast(pa.string()).slice(5) if type_.is_string else pa.array([], pa.null())
        )
        encoded = encode_columns([column], [type_])
        assert len(encoded) == 0
        assert hash_rows(encoded).tolist() == []


def test_rows_without_columns_have_one_hash() -> None:
    assert hash_bytes(encode_row([], [])) == -1670924195


def test_bytes_that_are_no_whole_words_are_hashed_as_others_do() -> None:
    assert [hash_bytes(one, seed=0) & 0xFFFFFFFF for one in (b"", b"hello", b"test")] == [
        0,
        0x248BFA47,
        0xBA6BD213,
    ]
