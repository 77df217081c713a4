"""Who plays in a schedule, on which table. Few actors at a time meet more often, so each seed draws
a few.
"""

from __future__ import annotations

import random
from collections.abc import Collection

from tests.simulation.actors.base import Actor
from tests.simulation.actors.changers import CHANGERS
from tests.simulation.actors.checkpoints import Checkpoint, Keeper
from tests.simulation.actors.compactors import Compactor, JavaCompactor, SecondCompactor
from tests.simulation.actors.histories import (
    NAME,
    BranchMaker,
    CopyKeeper,
    Damager,
    Forwarder,
    LongOutage,
    MarkCopier,
    Mover,
    OptionSetter,
    Renamer,
)
from tests.simulation.actors.java import (
    Brancher,
    JavaKeeper,
    JavaOverwriter,
    JavaUnderLock,
    JavaWithoutLock,
    JavaWriter,
)
from tests.simulation.actors.maintenance import (
    AutomaticTagger,
    Expirer,
    ManifestCompactor,
    OrphanCleaner,
    Restorer,
    Tagger,
)
from tests.simulation.actors.merging import MergingStream
from tests.simulation.actors.readers import Dropper, Reader, StreamingReader
from tests.simulation.actors.streams import Stream
from tests.simulation.actors.writers import (
    BatchWriter,
    Committer,
    Deleter,
    HastyKeeper,
    Overwriter,
    PartitionExpirer,
    SchemaChanger,
    SecondDeleter,
)
from tests.simulation.catalogs import JDBC, KINDS, OLD_REST, REST, Locks
from tests.simulation.changing import OPTIONS as CHANGING_OPTIONS
from tests.simulation.changing import has_keys, kind_of
from tests.simulation.choices import Script
from tests.simulation.deletes import KIND as DELETES
from tests.simulation.deletes import OPTIONS as DELETES_OPTIONS
from tests.simulation.dynamic import KIND as DYNAMIC
from tests.simulation.dynamic import OPTIONS as DYNAMIC_OPTIONS
from tests.simulation.hdfs import FROM as HDFS_FROM
from tests.simulation.hdfs import KIND as HDFS
from tests.simulation.metastore import FROM as HIVE_FROM
from tests.simulation.metastore import HIVE, Metastore
from tests.simulation.real_files import KEYED, SUMS
from tests.simulation.real_files import KIND as REAL
from tests.simulation.row_ids import KIND as TRACKED
from tests.simulation.row_ids import OPTIONS as TRACKED_OPTIONS
from tests.simulation.vectors import KIND as VECTORS
from tests.simulation.vectors import OPTIONS as VECTORS_OPTIONS
from tests.simulation.world import World
from tests.simulation.written import Written

OTHERS: dict[type[Actor], int] = {
    Expirer: 2,
    BatchWriter: 2,
    Restorer: 2,
    Tagger: 2,
    OrphanCleaner: 3,
    ManifestCompactor: 3,
    Committer: 3,
    Overwriter: 4,
    SchemaChanger: 8,
    JavaWriter: 4,
    JavaWithoutLock: 12,
    JavaKeeper: 8,
    Brancher: 6,
    Reader: 4,
    Dropper: 10,
}
"""An actor takes part once in this number of schedules."""

HISTORY = "history"
"""Its name among those who take part: those who change the table's history."""

NEWCOMERS = frozenset(
    {
        Keeper.kind,
        HastyKeeper.kind,
        "moved stream",
        "named stream",
        "doctor",
        "object store",
        "clock",
    }
    | {JavaOverwriter.kind}
)
"""They are drawn last, and only if they may come. So the seeds of earlier finds keep their
meaning.
"""

COMPACTORS: dict[type[Actor], int] = {Compactor: 4, JavaCompactor: 8, SecondCompactor: 16}
"""They came even later. A draw of their own decides whether they take part, so no other draw
changes.
"""

MERGING_FROM = 130_000
"""Earlier seeds were found without merging streams, and keep their meaning."""

NOT_BESIDE_CHANGERS = (
    Overwriter,
    PartitionExpirer,
    JavaCompactor,
    JavaOverwriter,
    JavaWithoutLock,
)
"""The model of changed rows does not know what these do."""

_SERVERS = (Restorer, Tagger, AutomaticTagger, Brancher, JavaWithoutLock)
LEFT_OUT: dict[str, tuple[type[Actor], ...]] = {
    REST: _SERVERS,
    OLD_REST: _SERVERS,
    JDBC: (JavaWithoutLock,),
    HIVE: (JavaWithoutLock,),
}
"""What the server does by itself, and who commits without it."""

TABLES: tuple[dict[str, str], ...] = (
    {},
    {"manifest.merge-min-count": "3"},
    {"manifest.full-compaction-threshold-size": "4 kb", "snapshot.time-retained": "1 min"},
    {"bucket": "1", "bucket-key": "id", "manifest.merge-min-count": "4"},
)


OF_HISTORIES: tuple[type[Actor], ...] = (
    LongOutage,
    Tagger,
    BranchMaker,
    Forwarder,
    Restorer,
    Renamer,
    Mover,
    CopyKeeper,
    OptionSetter,
    MarkCopier,
    JavaKeeper,
    BatchWriter,
)
"""Who takes part in a history, besides two streams of the table and one of its branch."""

HISTORIES: frozenset[str] = frozenset(kind.kind for kind in OF_HISTORIES)
"""Their names."""

NAMESAKE = "namesake"
"""Among those who take part in a history: the commit user of stream b has the name that a note of
the branch once had.
"""

OF_LATER_HISTORIES = ("doctor", Damager.kind, NAMESAKE)
"""They came to the histories later. A draw of its own decides about each, so no other draw
changes.
"""

ALWAYS = frozenset({LongOutage.kind, BatchWriter.kind, Tagger.kind})


def world_of(
    seed: int,
    script: Script | None = None,
    *,
    only: Collection[str] = (),
    newcomers: bool = True,
    compactors: bool = True,
    dynamic: bool = True,
    upkeep: bool = True,
) -> World:
    """The world of a seed, with its table and its actors. With `only`, these kinds of actors take
    part, and no others. Without `newcomers`, `compactors`, `dynamic` buckets or `upkeep`, with
    which row tracking came, the schedules are those that were found before these existed.
    """

    def takes_part(kind: str, rarely: int) -> bool:
        drawn = choices.once_in(rarely)
        return kind in only if only else drawn

    world = World(seed, script)
    choices = world.choices
    everybody = newcomers and compactors and dynamic and upkeep
    if everybody and not only:
        compared = random.Random(f"compared {seed}").randrange(4) == 0
        world.written = Written.COMPARED if compared else Written.TAKEN
    if HISTORY in only or (
        not only and everybody and random.Random(f"history {seed}").randrange(8) == 0
    ):
        return history_of(world, only or HISTORIES | later_of(seed))
    options, partitioned = dict(choices.pick(TABLES)), choices.once_in(3)
    keyed = (choices.once_in(4) or KEYED in only) and REAL not in only
    if keyed:
        options |= {"bucket": "1", "write-only": "true"}
        options.pop("bucket-key", None)
    if only:
        world.dynamic, keyed = DYNAMIC in only, keyed or bool({DYNAMIC, VECTORS} & set(only))
        world.vectors, world.deletes = VECTORS in only, DELETES in only
        keyed = keyed and not world.deletes
    elif newcomers and compactors and dynamic and keyed:
        world.dynamic = random.Random(f"dynamic {seed}").randrange(2) == 0
    if world.dynamic:
        options |= DYNAMIC_OPTIONS
        options.pop("bucket-key", None)
    if world.vectors:
        options |= VECTORS_OPTIONS | {"bucket": "1", "write-only": "true"}
        options.pop("bucket-key", None)
    if world.deletes:
        options = DELETES_OPTIONS | ({"bucket": "1", "bucket-key": "id"} if seed % 2 else {})
    if not keyed and "bucket" not in options:
        drawn = upkeep and newcomers and random.Random(f"tracked {seed}").randrange(3) == 0
        world.tracked = TRACKED in only if only else drawn
    if world.tracked:
        options |= TRACKED_OPTIONS
    world.changing = kind_of(seed, only, drawn=everybody)
    if world.changing:
        options, keyed = options_of_changes(world), has_keys(world.changing)
        world.real, world.dynamic, world.tracked = True, False, False
    if everybody:
        options |= plain_manifests(seed)
    if not world.changing and has_real_keys(world, only, drawn=everybody and keyed):
        world.real, world.sums = True, seed % 2 == 0
        options |= SUMS if world.sums else {}
    world.create(options, partitioned=partitioned, keyed=keyed)
    first = Checkpoint("a")
    options = {"paimon-stream.journal": "false"} if choices.once_in(4) else {}
    stream = Stream(world, "stream a", first, options, overwrites=choices.once_in(10))
    actors: list[Actor] = [stream]
    if takes_part("twin", 2):
        first.shared = True
        twin = Stream(world, "the twin of stream a", first, options, overwrites=stream.overwrites)
        actors.append(twin)
    if takes_part("stream b", 3):
        actors.append(Stream(world, "stream b", Checkpoint("b")))
    for kind, rarely in OTHERS.items():
        if keyed and kind is Committer:
            # who commits files to a table with keys answers for their sequence numbers himself
            continue
        if takes_part(kind.kind, rarely):
            actors.append(kind(world, f"the {kind.kind}"))
    if newcomers and takes_part(Keeper.kind, 6):
        actors.append(Keeper(world, "the keeper of checkpoints"))
    if newcomers and takes_part(HastyKeeper.kind, 12):
        actors.append(HastyKeeper(world, "the hasty keeper"))
    if newcomers and takes_part("moved stream", 12):
        done = world.millis if choices.once_in(2) else 1
        moved = Checkpoint("c", next_batch=4, done_millis=done, tampered=True, foreign=True)
        actors.append(Stream(world, "the stream from another table", moved))
    world.forgetful = "forgetful operator" in only
    world.asks_doctor = newcomers and takes_part("doctor", 4)
    if newcomers and takes_part("named stream", 6):
        actors.append(Stream(world, "the stream of two sinks", Checkpoint("d"), names=("x", "y")))
    if newcomers:
        world.careless = choices.below(5) == 0
        world.on_store = takes_part("object store", 3)
        world.in_flight = world.on_store and random.Random(f"in flight {seed}").randrange(2) == 1
        world.clocks_jump = takes_part("clock", 4)
        if world.on_store and choices.once_in(3) and not only:
            actors.append(JavaWithoutLock(world, "the Java writer at the store"))
        if takes_part(JavaOverwriter.kind, 10):
            actors.append(JavaOverwriter(world, "the Java overwriter"))
    if newcomers and compactors:
        dice = random.Random(f"compactors {seed}")
        for kind, rarely in COMPACTORS.items():
            drawn = dice.randrange(rarely) == 0
            if kind.kind in only if only else drawn:
                actors.append(kind(world, f"the {kind.kind}"))
                world.compacted = True
    if newcomers and compactors:
        for one in (one for one in actors if isinstance(one, Stream)):
            drawn = random.Random(f"compacting {seed} {one.checkpoint.name}").randrange(3) == 0
            if "compacting stream" in only if only else drawn:
                one.compacts = world.compacted = True
    for upkeeper, possible in ((AutomaticTagger, True), (PartitionExpirer, world.partitioned)):
        drawn = (
            upkeep
            and newcomers
            and possible
            and random.Random(f"{upkeeper.kind} {seed}").randrange(4) == 0
        )
        if upkeeper.kind in only if only else drawn:
            actors.append(upkeeper(world, f"the {upkeeper.kind}"))
    world.catalog = "" if world.changing else catalog_of(seed, only, drawn=everybody)
    if world.catalog:
        world.data_tokens = world.catalog in (REST, OLD_REST) and seed % 2 == 0
        actors = [one for one in actors if type(one) not in LEFT_OUT[world.catalog]]
    if world.catalog in (JDBC, HIVE):
        world.locks = Locks(world) if world.catalog == JDBC else Metastore(world)
        world.on_store = world.on_store or world.catalog == HIVE
        if JavaUnderLock.kind in only if only else seed % 3 == 0:
            actors.append(JavaUnderLock(world, f"the {JavaUnderLock.kind}"))
    actors += [
        kind(world, f"the {kind.kind}") for kind in (Deleter, SecondDeleter) if kind.kind in only
    ]
    world.on_hdfs = is_on_hdfs(world, only)
    world.partitions_expire = any(isinstance(one, PartitionExpirer) for one in actors)
    if world.dynamic and not only:
        actors += several_assigners(world, actors)
    if world.changing:
        actors = with_changers(world, actors, only)
    elif is_real(world, only, drawn=everybody):
        world.real = True
        actors.append(StreamingReader(world, f"the {StreamingReader.kind}"))
    elif world.real:
        actors = [one for one in actors if not isinstance(one, JavaCompactor)]
    world.cleaned = any(isinstance(one, OrphanCleaner) for one in actors)
    world.actors = [*actors[:1] * 2, *actors[1:]]
    return world


def options_of_changes(world: World) -> dict[str, str]:
    """The options of a table whose rows are changed. Half of those without a key have a bucket."""
    options = dict(CHANGING_OPTIONS[world.changing])
    if not has_keys(world.changing) and world.seed % 2:
        options |= {"bucket": "1", "bucket-key": "id"}
    return options


def with_changers(world: World, there: Collection[Actor], only: Collection[str]) -> list[Actor]:
    """Those who change rows, beside those whose rows the model knows. One at least comes, a
    compactor in half of the schedules, and a merging stream in half of the later ones.
    """
    dice = random.Random(f"changers {world.seed}")
    actors = [one for one in there if not isinstance(one, NOT_BESIDE_CHANGERS)]
    for one in (one for one in actors if isinstance(one, Stream)):
        one.overwrites = False
    drawn = [kind for kind in CHANGERS if dice.randrange(2)] or [dice.choice(CHANGERS)]
    if only:
        drawn = [kind for kind in CHANGERS if kind.kind in only]
    elif dice.randrange(2) and not any(type(one) is Compactor for one in actors):
        world.compacted = True
        actors.append(Compactor(world, f"the {Compactor.kind}"))
    changers: list[Actor] = [kind(world, f"the {kind.kind}") for kind in drawn]
    merges = world.seed >= MERGING_FROM and random.Random(f"merging {world.seed}").randrange(2) == 0
    if MergingStream.kind in only if only else merges:
        changers.append(MergingStream(world, f"the {MergingStream.kind}", Checkpoint("m")))
    return [*actors, *changers]


def is_on_hdfs(world: World, only: Collection[str]) -> bool:
    """Whether the table lies in HDFS, which no other draw has put elsewhere."""
    if only:
        return HDFS in only
    drawn = world.seed >= HDFS_FROM and random.Random(f"HDFS {world.seed}").randrange(4) == 0
    return drawn and not (world.on_store or world.catalog)


def plain_manifests(seed: int) -> dict[str, str]:
    """In three of four schedules manifests are not compressed: that takes time, and no order of
    operations depends on it.
    """
    compressed = random.Random(f"compressed {seed}").randrange(4) == 0
    return {} if compressed else {"manifest.compression": "null"}


def is_real(world: World, only: Collection[str], *, drawn: bool) -> bool:
    """Whether the files of the table are real. Only append tables that nobody compacts have such,
    and those whose server does not write files.
    """
    if only:
        return REAL in only
    simple = not (world.keyed or world.compacted or world.deletes or world.tracked or world.catalog)
    return drawn and simple and random.Random(f"real {world.seed}").randrange(4) != 0


def has_real_keys(world: World, only: Collection[str], *, drawn: bool) -> bool:
    """Whether the files of a table with a primary key are real. That needs fixed buckets without
    deletion vectors, and no server that writes files. Java does not compact such a table here.
    """
    if only:
        return KEYED in only
    simple = not (world.dynamic or catalog_of(world.seed, only, drawn=True))
    return drawn and simple and random.Random(f"real keys {world.seed}").randrange(2) == 0


def history_of(world: World, only: Collection[str]) -> World:
    """A world in which nothing fails, with those who change the history of the table."""
    choices = world.choices
    world.history = world.peaceful = True
    world.careless = False
    options, keyed = dict(choices.pick(TABLES)), choices.once_in(4)
    if keyed:
        options |= {"bucket": "1", "write-only": "true"}
        options.pop("bucket-key", None)
    options |= plain_manifests(world.seed)
    world.create(options, partitioned=False, keyed=keyed)
    world.branches[NAME] = world.truth.of_branch(NAME)
    second = Checkpoint(f"branch-{NAME}" if NAMESAKE in only else "b")
    streams = [
        Stream(world, "stream a", Checkpoint("a"), loses_answers=True),
        Stream(world, "stream b", second, loses_answers=True, quiet=choices.once_in(2)),
    ]
    on_branch = Stream(world, "stream e", Checkpoint("e"), loses_answers=True)
    on_branch.branch = NAME
    actors: list[Actor] = [*streams, on_branch]
    for kind in OF_HISTORIES:
        if kind.kind in only and (kind.kind in ALWAYS or HISTORY in only or choices.once_in(2)):
            actors.append(kind(world, f"the {kind.kind}"))
    if any(isinstance(one, MarkCopier) for one in actors):
        # Java's expiry deletes manifests of a tag whose snapshot another one with its id replaced,
        # and what a rollback takes of a snapshot that was replaced before has no note.
        away = (JavaKeeper, Restorer, Forwarder)
        actors = [one for one in actors if not isinstance(one, away)]
    if LongOutage.kind in only:
        actors.append(LongOutage(world, "the long outage of the branch"))
        actors[-1].branch = NAME
    if Damager.kind in only:
        actors.append(Damager(world, f"the {Damager.kind}"))
    world.asks_doctor = "doctor" in only
    world.actors = [*actors[:3] * 2, *actors[3:]]
    return world


def later_of(seed: int) -> frozenset[str]:
    """Who takes part in the history of a seed besides those who were there first."""
    drawn = (
        kind for kind in OF_LATER_HISTORIES if not random.Random(f"{kind} {seed}").randrange(3)
    )
    return frozenset(drawn)


def catalog_of(seed: int, only: Collection[str], *, drawn: bool) -> str:
    """The kind of catalog that the table is in; none in five of eight schedules."""
    if only:
        return next((one for one in KINDS if one in only), "")
    if not drawn:
        return ""
    kind = random.Random(f"catalog {seed}").choice(("", "", "", "", "", REST, OLD_REST, JDBC))
    with_metastore = kind == JDBC and random.Random(f"Hive {seed}").randrange(2) == 0
    return HIVE if seed >= HIVE_FROM and with_metastore else kind


def several_assigners(world: World, there: Collection[Actor]) -> list[Actor]:
    """Those who are missing, so that two streams and a batch writer give keys their buckets at
    once.
    """
    more: list[Actor] = []
    if not any(isinstance(one, Stream) and one.checkpoint.name == "b" for one in there):
        more.append(Stream(world, "stream b", Checkpoint("b")))
    if not any(type(one) is BatchWriter for one in there):
        more.append(BatchWriter(world, "the batch writer"))
    return more
