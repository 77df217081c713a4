"""Types as users and schema files write them: what is read, and that nothing else is."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_stream.errors import CorruptMetadata, UnsupportedFeature
from paimon_stream.format.types import DEEPEST, parse_type

WORDS = [
    "ARRAY",
    "MAP",
    "ROW",
    "MULTISET",
    "<",
    ">",
    "(",
    ")",
    ",",
    " ",
    "INT",
    "TIMESTAMP",
    "WITH LOCAL TIME ZONE",
    "WITHOUT TIME ZONE",
    " NOT NULL",
    " NULL",
    "3",
    "10",
    "name ",
    "`a b` ",
    "STRING",
    "DECIMAL",
    "!",
    "`",
    "\n",
]
TYPES = st.recursive(
    st.sampled_from(
        ["INT", "STRING NOT NULL", "DECIMAL(10, 2)", "TIMESTAMP(3) WITH LOCAL TIME ZONE", "CHAR(5)"]
    ),
    lambda inner: st.one_of(
        inner.map("ARRAY<{}>".format),
        st.tuples(inner, inner).map(lambda both: "MAP<{}, {}>".format(*both)),
        st.tuples(inner, inner).map(lambda both: "ROW<a {}, b {}> NOT NULL".format(*both)),
    ),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("integer", "INT"),
        (" decimal( 5 ,1 )NOT NULL ", "DECIMAL(5, 1) NOT NULL"),
        (
            "timestamp(3)with local  time zone not null",
            "TIMESTAMP(3) WITH LOCAL TIME ZONE NOT NULL",
        ),
        ("TIMESTAMP WITHOUT TIME ZONE", "TIMESTAMP(6)"),
        ("Double\nPrecision NULL", "DOUBLE"),
        ("map < string , array<int> > not null", "MAP<STRING, ARRAY<INT>> NOT NULL"),
        ("ROW<`a b` INT, c ROW<d BYTES>>", "ROW<a b INT, c ROW<d BYTES>>"),
        ("CHAR", "CHAR(1)"),
    ],
)
def test_a_type_is_read_in_any_letter_case_and_spacing(text: str, canonical: str) -> None:
    assert str(parse_type(text)) == canonical


@given(TYPES)
def test_the_text_of_a_type_is_read_back(text: str) -> None:
    assert str(parse_type(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "INT INT",
        "ARRAY<INT",
        "ARRAY<INT>>",
        "ARRAY<>",
        "MAP<INT>",
        "MAP<INT, INT, INT>",
        "ROW<>",
        "ROW<a>",
        "ROW<a INT,>",
        "ROW<a INT b INT>",
        "CHAR(",
        "CHAR()",
        "CHAR(1",
        "CHAR(-1)",
        "CHAR(x)",
        "CHAR(2147483648)",
        "DECIMAL(39)",
        "DECIMAL(5, 6)",
        "DECIMAL(5, 6, 7)",
        "TIME(10)",
        "NOT NULL",
        "ARRAY",
        "MAP NOT NULL",
        "multiset",
        "ROW(1)",
        "ARRAY<ROW>",
        "INT NOT",
        "TIMESTAMP WITH TIME ZONE",
        "٣",
        "CHAR(٣)",
        "`INT`",
    ],
)
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(CorruptMetadata):
        parse_type(text)


@given(st.lists(st.sampled_from(WORDS), max_size=12).map("".join) | st.text(max_size=20))
def test_any_text_is_a_type_or_raises_our_errors(text: str) -> None:
    with contextlib.suppress(CorruptMetadata, UnsupportedFeature):
        parse_type(text)


@pytest.mark.parametrize("nested", ["ARRAY<{}>", "MAP<INT, {}>", "ROW<a {}>"])
def test_types_are_nested_to_a_limit(nested: str) -> None:
    text = "INT"
    for _ in range(DEEPEST):
        text = nested.format(text)
    parse_type(text)
    with pytest.raises(CorruptMetadata, match=f"more than {DEEPEST} deep"):
        parse_type(nested.format(text))
    node = {"type": "ARRAY", "element": "INT"}
    for _ in range(DEEPEST):
        node = {"type": "ARRAY", "element": node}  # type: ignore[dict-item]
    with pytest.raises(CorruptMetadata, match=f"more than {DEEPEST} deep"):
        parse_type(node)


def test_the_time_to_read_a_type_grows_with_its_length_only() -> None:
    begun = time.process_time()
    for text in (
        "TIMESTAMP" + " " * 1500 + "!",
        "ROW<" + "a INT," * 50_000 + "b INT>",
        "`" * 50_001,
    ):
        try:
            parse_type(text)
        except CorruptMetadata:
            continue
    assert time.process_time() - begun < 60, "a regular expression tries every way to read the text"
