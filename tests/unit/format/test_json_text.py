"""Indented JSON is, character for character, what Python's own encoder writes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paimon_stream.format.json_text import indented

VALUES: tuple[Any, ...] = (
    {},
    [],
    "",
    None,
    True,
    False,
    0,
    -(2**63),
    1.5,
    1e300,
    'text with "quotes", \\, \n, \x00, ü and 😀',
    {"b": 1, "a": {"empty": {}, "none": None, "list": []}},
    {"list": [1, [2, {"deep": [None, True, "x"]}], ()], "ü": {"z": "1", "y": [{}, [[]]]}},
)


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("sorts_keys", [False, True])
def test_it_is_what_the_standard_library_writes(value: Any, sorts_keys: bool) -> None:
    expected = json.dumps(
        value,
        indent=2,
        separators=(",", " : "),
        ensure_ascii=False,
        sort_keys=sorts_keys,
    )
    assert indented(value, 2, " : ", sorts_keys=sorts_keys) == expected


def test_a_value_without_a_form_in_json_is_refused() -> None:
    with pytest.raises(TypeError):
        indented({"a": [object()]}, 1, ": ")
