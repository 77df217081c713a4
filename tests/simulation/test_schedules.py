"""Schedules of all actors, as their seeds make them. A failing seed is shrunk, and printed as
steps.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest

from tests.kits.seeds import examples, seeds
from tests.simulation.actors.readers import StreamingReader
from tests.simulation.cast import world_of
from tests.simulation.catalogs import HIVE, JDBC
from tests.simulation.catalogs import KINDS as CATALOGS
from tests.simulation.changing import OPTIONS as CHANGED
from tests.simulation.choices import Script
from tests.simulation.deletes import KIND as DELETES
from tests.simulation.hdfs import CLOSE
from tests.simulation.hdfs import KIND as HDFS
from tests.simulation.limits import DOCUMENTED
from tests.simulation.real_files import KEYED as REAL_KEYED
from tests.simulation.real_files import KIND as REAL
from tests.simulation.report import run, shortest
from tests.simulation.shrink import shrink
from tests.simulation.torture import PAGE
from tests.simulation.vectors import KIND as VECTORS
from tests.simulation.world import DEAD_WITH_LOCK, World

FOUND = {
    "a rollback beside an expiry loses the snapshot that it keeps": 40,
    "expiry counts a snapshot that is about to be removed": 122,
    "a snapshot created again stops the removal of orphans for ever": 195,
    "a checkpoint behind its journal writes a batch twice": 248,
    "a late hint in a table created again stops every stream": 253,
    "a run sees the snapshot of a writer that slept through a rollback": 292,
    "an expired id created again is taken for a commit": 477,
    "a run of which an earlier one wakes up writes a batch twice": 497,
    "a rollback believes a tag that an expiry has overlooked": 1174,
}
"""Seeds that found something, and what it was."""

AMONG: dict[str, tuple[int, tuple[str, ...]]] = {
    "an operator loses the newest plan of a run that went on when he put a checkpoint back": (
        370,
        ("keeper of checkpoints", "twin"),
    ),
    "a writer that slept cannot remove its snapshot, whose files are gone": (
        191,
        ("rollback", "batch writer", "twin"),
    ),
    # test_pins.py has its unit test.
    "a writer takes the id of a rollback's target, and no error says how to go on": (
        20261123003675,
        (),
    ),
    "a register that a dead run writes late vouches for a later run without a journal": (
        20261123013019,
        (),
    ),
    "a batch waits for days for its journal entry, beside an orphan cleaner": (20261123014129, ()),
    "somebody tags an expired snapshot that a paused writer has created again": (
        20261123021034,
        (),
    ),
    "a register of a run before the checkpoint was put back vouches for later ones": (
        20261123034420,
        (),
    ),
    "an expired id created again without changes hides a batch that has expired": (
        20261123032317,
        (),
    ),
    "a rollback to a tag dies half-way, and the tag is gone": (20261123020285, ()),
    "a copy of a checkpoint whose newest plan died with its run": (20261124002544, ()),
    "a lost attempt's files go, but it was tagged before Java's writer replaced it": (
        20261123007256,
        (),
    ),
    "an operator is asked to wait for an expiry that was killed": (20261124500695, ()),
    "a rollback puts the newest snapshot back before the expiry that took it": (20261124500385, ()),
    "a tag that its maker could not take back is left to him": (20261123032879, ()),
    "a checkpoint is put back behind batches that were not journalled and have expired": (
        20261123028268,
        (),
    ),
    "a writer builds on the newest snapshot after an expiry that slept through a rollback took it": (
        6000135,
        ("expirer", "rollback", "hasty keeper", "batch writer", "twin"),
    ),
}
"""Seeds that found something among these actors, or among all, and what it was."""

COMPACTED = {
    "an operator moves two sinks past a batch that only one of them has": 20261124800174,
    "a copy of a checkpoint has registered in the table that was created again": 20261124700580,
    "a first batch that has expired is taken for that of another table": 20261124901389,
    "a checkpoint that is put back was written with a wrong clock": 20261124910816,
}
"""Seeds that found something since compactors take part, and what it was."""

NEWER: dict[str, tuple[int, tuple[str, ...], Script | None]] = {
    "a rollback to a tag takes over, and a stream has used the tag's id again": (27642, (), None),
    "prepared files with keys of an index that a rollback has taken": (30793, (), None),
    "a run on another copy of the checkpoint has attempted a batch in the new table": (
        7741517,
        (),
        None,
    ),
    "a rollback to a tag whose maker slept, and has not taken it back": (
        7742482,
        (),
        [
            [0, 0, 0, 0, 0, 1, 2, 0, 1, 1, 1, 0, 2, 0, 0, 0, 3, *([0] * 10), 1, 2, 0, 2],
            *([], [6], [], [], [6, 0, 0, 12], [11], [0, 0, 0, 13]),
            *([5], [], [], [4], [6, 0, 4, 0, 14], [], [5, 0, 4]),
        ],
    ),
    "a third name of a sink is stopped by a batch that the second one wrote again": (
        14,
        ("history", "fast forward", "maker of branches", "long outage", "renamer"),
        [
            *([0, 0, 0], [], [7], [4], [2, 0], [9, 0, 1], [4, 0, 0, 0, 0, 0, 3], [9, 0, 1]),
            *([8], [1], [4], [9, 0, 1]),
        ],
    ),
    "an operator's answer about one batch is still given when a twin has moved past it": (
        30672,
        (),
        [
            [*([0] * 3), 3, 0, 1, 2, 1, 1, 0, 1, *([0] * 12), 11],
            *([0], [0, 0, 0, 0, 0, 0, 9], [7], [2], [0], [2, 0, 0, 0, 0, 0, 14], [2, 0, 0, 19]),
            *([0], [0], [2], [2, 0, 0, 0, 0, 0, 13], [0, 0, 0, 7], [7]),
        ],
    ),
    "the tag of an id that is created again hides from an expiry what the tag below needs": (
        30499,
        (),
        [
            [1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 0, 0, 2, 0, 0, 3],
            *([0], [0], [7], [0], [6], [3, 15], [6, 0, 11], [0, 0, 0, 0, 1], [7, 15], [3]),
        ],
    ),
    "a twin plans a batch in a checkpoint that was put back, and the table is created again": (
        7125,
        (),
        [
            [*([0] * 5), 1, *([0] * 5), 2, *([0] * 9), 9, 5, *([0] * 4), 1, *([0] * 3)],
            *([], [0, 0, 0, 0, 0, 0, 0], [5, 0, 0, 0], [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0]),
            *([2, 0, 0, 0, 0, 0, 0, 0, 0], [5, 0, 1], [2, 0, 0, 17], [4, 0, 3, 0]),
            *([0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0]),
        ],
    ),
    "a sleeper of Java's publishes twice below what an expiry left, and a slow commit looks there": (
        15386,
        (),
        [
            [*([0] * 12), 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 11, *([0] * 7)],
            *([0], [2, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0], [3, 0, 0, 0], [3, 0, 13], [2, 0, 14]),
            *([3, 0, 0, 12], [2, 15, 0, 22], [4, 0, 0, 0, 0], [3, 0, 0, 0], [3, 0, 0]),
        ],
    ),
    "a rollback replaces a snapshot that was created again, beside the lock of a catalog": (
        21031,
        (),
        [
            [*([0] * 5), 1, 2, 1, 0, 1, 1, 0, 0, 2, 3, *([0] * 16)],
            *([], [0, 0, 0, 0, 0, 0, 0], [8, 0, 0, 0, 0, 0], [6, 0, 0, 3, 20], [5, 0, 0, 0, 0]),
            *([0, 0, 0, 0], [6, 0, 0, 18], [5, 0, 1, 0]),
        ],
    ),
    "a snapshot is tagged, replaced and tagged again, and an expiry asks one of the tags": (
        23780,
        (),
        [
            [3, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0],
            *([], [0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [7, 0, 0, 0], [10, 0, 0]),
            *([7, 0, 0, 0], [6, 0, 0, 0, 0, 0]),
        ],
    ),
    "the third name of a sink is asked about what one rollback took of the first two": (
        20359,
        (),
        [
            [0, 0, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0],
            *([], [0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [10, 0, 0, 0]),
            *([0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0], [9, 0, 0, 0], [0, 0, 0, 0]),
            *([0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0], [10, 0, 0], [0, 0, 0, 0, 0, 0, 0]),
        ],
    ),
    "the doctor is asked while a snapshot of the dropped table stands in the new one without its lists": (
        71048,
        (),
        [
            [*([0] * 5), 1, 0, 1, 0, 1, 1, 0, 2, 2, *([0] * 6), 3, 9, 0, 0, 0, 3, *([0] * 5)],
            *([], [0], [6], [0], [6, 0, 9], [9, 0, 3, 0], [0], [0], [6, 0, 0, 14], [0], [0]),
        ],
    ),
    "the doctor is asked beside a compaction that has slept while the table was created again": (
        71672,
        (),
        [
            [
                *(*([0] * 5), 1, 2, 1, 0, 1, 1, 0, 0, 2),
                *(*([0] * 5), 5, 0, 9, 0, 11, 0, 3, *([0] * 4), 9),
            ],
            *([], [3], [11], [*([0] * 6), 23], [12, 0, 0, 0, 10, 0, 0], [9, 0, 3, 0]),
            *([12, 0, 0, 15], [2]),
        ],
    ),
    "a rollback takes the snapshot on which a compaction was planned": (
        71363,
        (),
        [
            [*([0] * 5), 1, 0, 1, 1, 1, *([0] * 19), 3],
            *([], [0], [0], [7, *([0] * 4), 21], [5]),
        ],
    ),
    "a rollback takes the first batch of two sinks while a compaction looks at it": (
        71688,
        (),
        [
            [*([0] * 6), 2, 0, 0, 1, *([0] * 4), 3, 0, 0, 0, 7, 0, 3, 0, 5, 0, 0, 0, 5, *([0] * 4)],
            *([0], [9], [8], [9, 0, 0, 21, 0], [3]),
        ],
    ),
    "a reader of a stream comes while a rollback has taken only what lies below": (
        71560,
        (),
        [
            [
                *(*([0] * 5), 1, 0, *([1] * 4), 2, *([0] * 4), 3, 0, 0),
                *(0, 3, *([0] * 5), 5, 0, 2, 0, 2, 0),
            ],
            *([], [0], [12], [0], [5, 0, 0, 0, 8, *([0] * 8)], [0], [5, 0, 0, 8], [12]),
        ],
    ),
    "a rollback sleeps between two looks while the table is dropped and created again": (
        73734,
        (),
        [
            [*([0] * 5), 1, 2, 0, 0, 1, 1, 2, 0, 2, 0, 0, 3, *([0] * 4), 9, *([0] * 7), 3, 0],
            *([], [0], [0], [4, 0, 0, 0, 0, 20], [4, 0, 4, 0, 7, 0, 13], [4, 0, 0, 0, 17]),
            *([9, 0, 3, 0, 0], [0], [0], [0], [4]),
        ],
    ),
    "a put arrives late in its process's next work, after a new column": (
        20261201000511,
        (),
        [
            [*([0] * 6), 2, 0, 1, 0, 1, 0, 2, 0, 0, 7, 3, *([0] * 6), 11, *([0] * 7)],
            *([], [0], [5], [0], [5, 0, 11], [0, 12, 0, 0], [8], [6]),
            *([5, 0, 4, 5, 0], [5], [8]),
        ],
    ),
    "a batch writer has built on what a rollback takes that has not ended": (
        20261201002610,
        (),
        None,
    ),
    "a compaction has built on what a rollback takes that has not ended": (
        20261201002780,
        (),
        None,
    ),
    "a second fast forward takes a batch that had expired in main, and puts back the one before": (
        80456,
        (),
        [
            [0, 0, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1],
            *([], [0], [7], [8, 0, 0, 1], [6], [9], [0, 15], [6], [14], [9], [0]),
        ],
    ),
}
"""Seeds, and shrunk schedules of theirs, that found something since all take part who do now, and
what it was.
"""

SCRIPTS: dict[str, Script] = {
    "an expiry of the dropped table puts a snapshot into the new one": [
        [0, 0, 0, 0, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 9, 0, 0, 0, 3],
        *([], [0], [0], [0], [0], [3], [0], [0], [0], [2], [0], [3, 0, 0, 0, 8], [0], [6, 0, 3, 0]),
        *([3, 0, 0, 11], [0], [0], [2], [3, 0, 0, 12], [2]),
    ],
    "a run from before the checkpoint was put back has it replaced once more": [
        [0, 0, 3, 0, 0, 1, 0, 0, 0, 0, 1, 0, 2, 0, 7, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0],
        *(
            [0],
            [0],
            [6],
            [6, 0, 2],
            [2],
            [7],
            [7],
            [7],
            [0, 0, 0],
            [2],
            [0],
            [0, 0, 0, 0, 0, 0, 16],
            [2],
        ),
        *(
            [0],
            [0, 0, 0, 8],
            [2],
            [7],
            [0, 0, 4, 6, 0],
            [7],
            [6, 0, 3, 0, 1],
            [0, 0, 0, 0, 0, 0, 15],
            [2],
        ),
    ],
    "a run finds its batch in the snapshot of a sleeper that a rollback removes": [
        [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 2, 3, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0],
        *([], [6], [0], [0], [0], [0], [0], [6, 0, 2], [0, 0, 0, 18], [7], [0, 0, 0, 8], [2]),
        *([0, 0, 4, 7, 10], [7, 0, 0, 0, 0, 0, 0, 23], [0, 0, 3, 0, 4, 1, 0], [7, 0, 0, 10], [3]),
        *([7, 0, 0, 13], [0, 0, 0, 0, 0, 0, 13], [0, 0, 0, 13], [0, 0, 4, 0, 14], [3]),
    ],
    "a clock that is ahead hides that the table was created again": [
        [
            0,
            0,
            0,
            0,
            0,
            0,
            2,
            0,
            1,
            0,
            0,
            0,
            0,
            2,
            3,
            0,
            3,
            0,
            0,
            0,
            0,
            9,
            0,
            0,
            11,
            1,
            0,
            0,
            1,
            0,
            3,
        ],
        *([], [8, 0, 0, 0, 0, 0, 7, 5, 0], [7, 0, 3, 0, 0], [8, 0, 7, 0, 0, 0, 0, 0, 0]),
    ],
    "an expiry takes a snapshot made after two rollbacks for the one that it had looked at": [
        [0, 0, 0, 0, 0, 0, 2, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3],
        *([0], [0], [6], [0], [0, 13, 0, 0, 0], [3, 0, 0, 2, 0, 0, 23], [3, 0, 0, 0, 14]),
        *([0, 13, 0, 0, 0, 0, 0], [5], [5], [2]),
    ],
}
"""Shrunk schedules that found something, and what it was."""

ARRANGED: dict[str, tuple[tuple[str, ...], Script]] = {
    "an expiry puts the newest snapshot back after a writer has built on it": (
        ("expirer", "rollback"),
        [
            *([], [], [2], [0], [0], [2, 0, 1, 2, 8], [3, 13], [0], [0]),
            *([0, 0, 0, 0, 0, 0, 8], [2, 0, 0, 12]),
        ],
    )
}
"""The same among these actors. `planted_maintenance.py` has others, with the defects that they
found.
"""


def to_the_end(seed: int, script: Script | None = None, **who: Any) -> World:
    """A world as `world_of` makes it, whose schedule goes on to the end, as when it found
    something.
    """
    world = world_of(seed, script, **who)
    world.to_the_end = True
    return world


@pytest.mark.parametrize("what", [*FOUND, *AMONG, *COMPACTED, *NEWER, *SCRIPTS, *ARRANGED])
def test_what_was_found_once_is_not_found_again(what: str) -> None:
    if what in SCRIPTS:
        outcome = run(0, SCRIPTS[what], make=partial(to_the_end, compactors=False))
    elif what in ARRANGED:
        only, script = ARRANGED[what]
        outcome = run(0, script, make=partial(to_the_end, only=only, compactors=False))
    elif what in COMPACTED:
        outcome = run(COMPACTED[what], make=partial(to_the_end, dynamic=False))
    elif what in NEWER:
        seed, only, script = NEWER[what]
        outcome = run(seed, script, make=partial(to_the_end, only=only))
    elif what in AMONG:
        seed, only = AMONG[what]
        outcome = run(seed, make=partial(to_the_end, only=only, compactors=False))
    else:
        outcome = run(FOUND[what], make=partial(to_the_end, newcomers=False))
    assert outcome.rule is None, str(outcome)


@pytest.mark.parametrize("start", seeds(2, 40))
def test_schedules_lose_and_double_nothing(start: int) -> None:
    for seed in range(50 * start, 50 * start + 50):
        outcome = run(seed)
        if outcome.rule is not None:
            pytest.fail(str(shortest(outcome)))


@pytest.mark.parametrize("start", seeds(1, 10))
def test_schedules_with_deletion_vectors_show_each_key_once(start: int) -> None:
    only = (
        VECTORS,
        "compactor",
        "second compactor",
        "compacting stream",
        "batch writer",
        "expirer",
        "orphan cleaner",
    )
    for seed in range(50 * start, 50 * start + examples(2, 50)):
        outcome = run(seed, make=partial(world_of, only=only))
        assert outcome.rule is None, str(outcome)


@pytest.mark.parametrize("start", seeds(1, 10))
def test_schedules_with_deleters_bring_no_row_back(start: int) -> None:
    others = (
        "batch writer",
        "overwriter",
        "expirer",
        "restorer",
        "tagger",
        "orphan cleaner",
        "object store",
    )
    for seed in range(50 * start, 50 * start + examples(4, 50)):
        outcome = run(
            seed, make=partial(world_of, only=(DELETES, "deleter", "second deleter", *others))
        )
        assert outcome.rule is None, str(outcome)


@pytest.mark.parametrize("start", seeds(1, 10))
@pytest.mark.parametrize("kind", CHANGED)
def test_schedules_with_changers_make_each_change_once(kind: str, start: int) -> None:
    changers = ("updater", "second updater", "deleter of rows", "merger")
    others = ("batch writer", "compactor", "twin", "expirer", "orphan cleaner", "rollback")
    published = 0
    for seed in range(50 * start, 50 * start + examples(2, 50)):
        outcome = run(seed, make=partial(world_of, only=(kind, *changers, *others)))
        assert outcome.rule is None, str(outcome)
        history, changes = outcome.world.truth.history, outcome.world.changes
        published += sum(state.commit in changes for state in history.values())
    assert published > 0


@pytest.mark.parametrize("start", seeds(1, 10))
def test_schedules_with_real_files_read_each_row_once(start: int) -> None:
    only = (REAL, "batch writer", "overwriter", "expirer", "object store")
    seen = 0
    for seed in range(50 * start, 50 * start + examples(3, 50)):
        outcome = run(seed, make=partial(world_of, only=only))
        assert outcome.rule is None, str(outcome)
        readers = [one for one in outcome.world.actors if isinstance(one, StreamingReader)]
        seen += sum(len(one.seen) for one in readers)
    assert seen > 0


@pytest.mark.parametrize("start", seeds(1, 10))
def test_schedules_with_real_files_and_keys_merge_to_the_rows_of_their_commits(start: int) -> None:
    others = ("batch writer", "expirer", "orphan cleaner", "object store", "schema changer")
    only = (REAL_KEYED, "twin", "compactor", "second compactor", "compacting stream", *others)
    compacted = 0
    for seed in range(50 * start, 50 * start + examples(2, 50)):
        outcome = run(seed, make=partial(world_of, only=only))
        assert outcome.rule is None, str(outcome)
        assert outcome.world.sums == (seed % 2 == 0)
        compacted += len(outcome.world.truth.archive.pieces)
    assert compacted > 0


@pytest.mark.parametrize("kind", CATALOGS)
def test_schedules_of_tables_in_catalogs_commit_each_row_once(kind: str) -> None:
    others = (
        "twin",
        "batch writer",
        "committer",
        "hasty keeper",
        "Java keeper",
        "Java writer under the lock",
    )
    began_beside_the_dead = 0
    for seed in range(examples(4, 200)):
        outcome = run(seed, make=partial(world_of, only=(kind, *others)))
        assert outcome.rule is None, str(outcome)
        met = outcome.world.met.items()
        began_beside_the_dead += sum(times for (phase, _), times in met if phase == DEAD_WITH_LOCK)
    assert (began_beside_the_dead > 0) == (kind in (JDBC, HIVE))


@pytest.mark.parametrize("start", seeds(1, 10))
def test_schedules_of_tables_in_hdfs_commit_each_row_once(start: int) -> None:
    others = ("twin", "batch writer", "expirer", "orphan cleaner", "rollback", "Java writer")
    met: Counter[tuple[str, str]] = Counter()
    for seed in range(50 * start, 50 * start + examples(12, 50)):
        outcome = run(seed, make=partial(world_of, only=(HDFS, *others)))
        assert outcome.rule is None, str(outcome)
        met += outcome.world.faults_met
    assert {verb for verb, _ in met} >= {CLOSE, "put"}
    assert met["put", "TWICE"] + met["write", "TWICE"] > 0


def ran(seed: int) -> World:
    return run(seed).world


@pytest.mark.parametrize("seed", [3, 12, 17, 25])
def test_a_seed_gives_the_same_run_to_the_byte(seed: int) -> None:
    one, two = ran(seed), ran(seed)
    assert one.log == two.log
    assert one.choices.made == two.choices.made
    assert [(path, one.disk.read(path)) for path in sorted(one.all_paths())] == [
        (path, two.disk.read(path)) for path in sorted(two.all_paths())
    ]
    assert one.operations > 100


def test_a_schedule_is_replayed_from_its_choices() -> None:
    first = ran(7)
    again = run(7, first.choices.made).world
    assert again.log == first.log


def test_a_failing_schedule_is_shrunk_to_the_choices_that_matter() -> None:
    script = [[9], [1], *([n % 3, n] for n in range(60))]
    found = shrink(script, lambda one: [2, 41] in one and sum(step[0] for step in one) > 3)
    assert found == [[2], [0], [2, 41]]


@pytest.mark.parametrize("limit", DOCUMENTED)
def test_each_limit_is_in_the_page_about_reliability(limit: str) -> None:
    assert DOCUMENTED[limit] in " ".join(PAGE.read_text().split())
