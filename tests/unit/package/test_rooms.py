"""The border between the engine, which any writer uses, and the sink, which is of streams."""

from __future__ import annotations

import re
from pathlib import Path

from tests.kits.modules import (
    sink_options,
    sink_options_read,
)

ROOT = Path(__file__).parents[3]
ENGINE = (
    "format",
    "storage",
    "table",
    "catalogs",
    "merge",
    "write",
    "commit",
    "read",
    "compact",
    "change",
    "maintenance",
    "verify",
)
"""The folders that know nothing of a sink: they serve writers without a stream, too."""
FOR_EVERY_WRITER = re.compile(r"commit\.guard|on-unknown-history|unsafe-single-writer|store\..*")
"""The options of sinks that writers without a stream take, too."""


def test_options_are_found_as_they_are_declared() -> None:
    text = (ROOT / "paimon_stream" / "options" / "of_sinks.py").read_text()
    assert sorted(sink_options().values()) == sorted(
        set(re.findall(r'"(paimon-stream\.\S+)"', text))
    )


def test_these_folders_read_these_options_of_sinks() -> None:
    assert sink_options_read() == {
        "api": [
            "commit.guard",
            "merge-schema",
            "missing-columns",
            "on-checkpoint-reset",
            "on-table-change",
            "on-unknown-history",
            "protect-last-snapshot",
        ],
        "catalogs": ["store.max-outage", "unsafe-single-writer"],
        "cli": ["store.max-outage"],
        "commit": ["commit.guard", "on-unknown-history"],
        "spark": [
            "journal.reuse",
            "merge-schema",
            "missing-columns",
            "on-checkpoint-reset",
            "on-sequence-conflict",
            "on-table-change",
            "on-unknown-history",
            "operation-column",
            "operation-mapping",
            "shuffle",
            "small-batch",
            "unsafe-single-writer",
        ],
        "storage": [
            "store.allow-http",
            "store.connect-timeout",
            "store.from-spark",
            "store.max-outage",
            "store.max-retries",
            "store.timeout",
            "unsafe-single-writer",
        ],
        "stream": [
            "commit.guard",
            "compact",
            "compact.max-share",
            "journal",
            "journal.reuse",
            "on-checkpoint-reset",
            "on-sequence-conflict",
            "on-table-change",
            "on-unknown-history",
            "operation-column",
            "operation-mapping",
            "protect-last-snapshot",
        ],
    }


def test_the_engine_reads_only_what_every_writer_takes() -> None:
    for folder in ENGINE:
        for key in sink_options_read().get(folder, []):
            assert FOR_EVERY_WRITER.fullmatch(key), f"{folder} reads paimon-stream.{key}"
