"""Worlds in which rows are changed: their files are real, and the model of the simulation knows what
they hold.
"""

from __future__ import annotations

from tests.orders.cast import beside, commits, merged, merging_stream, others
from tests.orders.setting import Setting
from tests.simulation.actors.changers import SecondUpdater, Updater
from tests.simulation.actors.writers import BatchWriter
from tests.simulation.changing import BY_REWRITING, OPTIONS, WITH_KEYS, WITH_SEQUENCE

KEYED = {"keyed": True}


def table_of(kind: str) -> dict[str, object]:
    """What the table of such a world is."""
    return {"changing": kind, "real": True}


CHANGES = [
    Setting(
        "updater × batch writer",
        "Somebody adds rows that fulfil the condition of an update.",
        others(Updater, BatchWriter),
        commits(1),
        options=OPTIONS[BY_REWRITING],
        flags=table_of(BY_REWRITING),
        most=2,
        most_with_fault=1,
    ),
    Setting(
        "updater × updater, with a sequence field",
        "Two update the same keys. The field says which row is newer, and is the same for both.",
        others(Updater, SecondUpdater),
        commits(1),
        options=OPTIONS[WITH_SEQUENCE],
        table=KEYED,
        flags=table_of(WITH_SEQUENCE),
        most=2,
        most_with_fault=1,
    ),
    Setting(
        "merging stream × updater",
        "A stream merges its batch into rows that somebody updates.",
        beside(Updater, run=merging_stream),
        merged(1),
        options=OPTIONS[WITH_KEYS],
        table=KEYED,
        flags=table_of(WITH_KEYS),
        most=2,
        most_with_fault=1,
    ),
]
