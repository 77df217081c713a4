"""Paimon's option `scan.mode`: where a read begins. Batch reads and stream reads read it here."""

from collections.abc import Mapping
from typing import Final

from paimon_stream.options.option import Option, one_of

NEEDED: Final = {
    "from-snapshot": "snapshot_id",
    "from-snapshot-full": "snapshot_id",
    "from-timestamp": "timestamp",
}
"""The modes that do not begin with the newest snapshot, each with the attribute of `PointInTime`
that it needs.
"""

INCREMENTAL: Final = "incremental"
"""The mode of a batch read of changes."""

FOLLOWED_MODES: Final = ("latest-full", "full", "latest", INCREMENTAL, *NEEDED)
"""The modes that a batch read follows: they mean what the other options of the read mean, or the
newest snapshot.
"""

_DEFAULT: Final = "default"

MODE: Final = Option("scan.mode", one_of(_DEFAULT, *FOLLOWED_MODES), _DEFAULT, "Start.")


def names_start(options: Mapping[str, str]) -> bool:
    """Whether the `scan.mode` of a read says where it starts, so that options in the table's schema
    do not.
    """
    return mode_in(options.get(MODE.key, _DEFAULT)) != _DEFAULT


def mode_in(text: str) -> str:
    """The mode that a text names. It may be one that no read here follows."""
    return text.strip().lower()
