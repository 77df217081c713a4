"""Files that somebody crafted or damaged end in one error of ours, in little time and memory."""

from __future__ import annotations

import pytest

from tests.kits.limited import Outcome, outcomes

OURS = {"", "CorruptMetadata", "FormatError", "NotFound", "UnsupportedFeature"}
MEGABYTES = 256
SECONDS = 30
OF_ONE_FILE = 10


def wrong(found: dict[str, Outcome], errors: set[str], seconds: int) -> dict[str, Outcome]:
    return {
        name: one
        for name, one in found.items()
        if one.error not in errors or one.megabytes > MEGABYTES or one.seconds > seconds
    }


@pytest.mark.parametrize(
    ("module", "errors", "seconds"), [("crafted_files", OURS, OF_ONE_FILE), ("hostile_bytes", {""}, SECONDS)]
)
def test_no_file_takes_more_than_a_little_time_and_memory_or_raises_another_error(
    module: str, errors: set[str], seconds: int
) -> None:
    found = outcomes(f"tests.property.{module}", seconds=SECONDS)
    assert len(found) > 20
    assert wrong(found, errors, seconds) == {}
