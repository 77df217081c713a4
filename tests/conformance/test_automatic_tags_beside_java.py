"""Automatic tags: after random commits, ours are those of Java's committer."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from paimon_stream import PaimonTable
from tests.kits.seeds import seeds

HOUR = 3_600_000
DAY = 24 * HOUR


def options_of(dice: random.Random) -> tuple[dict[str, str], int]:
    """Options, and the period in milliseconds."""
    key, value, period = dice.choice(
        [
            ("tag.creation-period", "daily", DAY),
            ("tag.creation-period", "hourly", HOUR),
            ("tag.creation-period", "two-hours", 2 * HOUR),
            ("tag.creation-period-duration", "20 min", HOUR // 3),
            ("tag.creation-period-duration", "7 h", 7 * HOUR),
        ]
    )
    made = {"tag.automatic-creation": "watermark", key: value}
    made["tag.period-formatter"] = dice.choice(
        ["with_dashes", "without_dashes", "without_dashes_and_spaces"]
    )
    made["sink.watermark-time-zone"] = dice.choice(["UTC", "Europe/Berlin", "+05:30", "GMT-3"])
    for option, some in (
        ("tag.creation-delay", [f"{period // 3} ms", f"{period - 1} ms"]),
        ("tag.num-retained-max", ["1", "2", "3"]),
        ("tag.automatic-completion", ["true"]),
    ):
        if dice.randrange(2):
            made[option] = dice.choice(some)
    return made, period


@pytest.mark.parametrize("seed", seeds(2, 40))
def test_the_tags_are_those_of_java(java: Any, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    options, period = options_of(dice)
    theirs, ours = tmp_path / "db.db" / "theirs", tmp_path / "db.db" / "ours"
    java.create_table(theirs, [("k", "INT")], options=options)
    java.create_table(ours, [("k", "INT")], options={**options, "write-only": "true"})
    # In autumn 2026, so that a zone changes its offset on the way.
    watermark, table = 1_792_800_000_000, PaimonTable.load(str(ours))
    for number in range(30):
        watermark += dice.choice(
            [0, 1, period // 7, period // 2, period - 1, period, 2 * period, 5 * period + 1]
        )
        for path in (theirs, ours):
            java.commit_messages(path, [], "java", number, watermark=watermark)
        if dice.randrange(3):
            table.create_automatic_tags()
            expected = {name: snapshot for name, (snapshot, _) in java.tags(theirs).items()}
            assert {name: one.id for name, one in table.tags().items()} == expected, (
                options,
                number,
            )
