"""Files that somebody crafted or damaged end in one error of ours, in little time and memory."""

from __future__ import annotations

import pytest

from tests.kits.limited import Outcome, outcomes

OURS = {"", "CorruptMetadata", "FormatError", "NotFound", "UnsupportedFeature"}
MEGABYTES = 256
SECONDS = 40
"""Of the processor, on a slow machine. Without their bounds, the files take minutes or for ever."""


def wrong(found: dict[str, Outcome], errors: set[str]) -> dict[str, Outcome]:
    return {
        name: one
        for name, one in found.items()
        if one.error not in errors or one.megabytes > MEGABYTES or one.seconds > SECONDS
    }


def test_no_file_takes_more_than_a_little_time_and_memory_or_raises_another_error() -> None:
    found = outcomes("tests.property.crafted_files", cases="QUICK", seconds=SECONDS)
    assert len(found) > 20
    assert wrong(found, OURS) == {}


@pytest.mark.full
def test_no_file_of_many_small_values_takes_more_than_a_little_time_and_memory() -> None:
    found = outcomes("tests.property.crafted_files", cases="LASTING", seconds=SECONDS)
    assert found
    assert wrong(found, OURS) == {}
