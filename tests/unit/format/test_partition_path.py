"""Folders of partitions: several keys, escapes, what is refused."""

from __future__ import annotations

import pytest

from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.partition_path import escape, partition_path, unescape
from paimon_stream.format.types import parse_type

STRING, DATE = parse_type("STRING"), parse_type("DATE")


def test_keys_stand_in_their_order() -> None:
    assert partition_path(["dt", "region"], [DATE, STRING], [19782, "x"]) == "dt=19782/region=x"
    assert partition_path(["dt", "region"], [DATE, STRING], [19782, "x"], legacy=False) == (
        "dt=2024-02-29/region=x"
    )


def test_a_table_without_keys_has_no_folder() -> None:
    assert partition_path([], [], []) == ""


@pytest.mark.parametrize("value", [None, "", "  ", "\t\n", "\u3000"])
def test_null_and_blank_have_the_default_name(value: str | None) -> None:
    assert partition_path(["p"], [STRING], [value]) == "p=__DEFAULT_PARTITION__"
    assert partition_path(["p"], [STRING], [value], "a/b") == "p=a%2Fb"


def test_a_no_break_space_is_not_blank() -> None:
    assert partition_path(["p"], [STRING], ["\u00a0"]) == "p=\u00a0"


@pytest.mark.parametrize("value", [".", "..", "../../etc", "a/../b", "\0"])
def test_no_value_leaves_its_folder(value: str) -> None:
    path = partition_path(["p"], [STRING], [value])
    assert path.count("/") == 0
    assert path not in (".", "..")
    assert "\0" not in path


def test_key_names_are_escaped_as_well() -> None:
    assert partition_path(["a/b="], [STRING], ["x"]) == "a%2Fb%3D=x"


def test_every_character_comes_back() -> None:
    text = "".join(map(chr, range(0x250))) + "😀%41%"
    assert unescape(escape(text)) == text


@pytest.mark.parametrize(
    ("text", "meant"), [("%4", "%4"), ("%zz", "%zz"), ("%41", "A"), ("a%2fb", "a/b")]
)
def test_what_is_no_escape_is_literal(text: str, meant: str) -> None:
    assert unescape(text) == meant


@pytest.mark.parametrize(
    ("text", "legacy"),
    [("BYTES", True), ("BINARY(3)", False), ("ARRAY<INT>", True), ("TIMESTAMP_LTZ(6)", False)],
)
def test_types_without_a_dependable_folder_are_refused(text: str, legacy: bool) -> None:
    with pytest.raises(UnsupportedFeature, match="Partition key 'p'"):
        partition_path(["p"], [parse_type(text)], [None], legacy=legacy)


def test_years_beyond_four_digits_carry_a_sign() -> None:
    assert partition_path(["d"], [DATE], [2_932_897], legacy=False) == "d=+10000-01-01"
    assert partition_path(["d"], [DATE], [-719_529], legacy=False) == "d=-0001-12-31"
