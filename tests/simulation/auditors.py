"""What is looked at when everybody has come to rest: liveness, orphans, and the sums of tables with
keys.

`truth.py` has the auditors that look at every single change of the storage.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING

from paimon_stream.errors import CommitContended, CorruptMetadata
from paimon_stream.maintenance.pins import is_pin
from paimon_stream.storage.branch import is_served
from paimon_stream.table.layout import LATEST_HINT
from paimon_stream.table.references import journalled_names
from tests.simulation import rules
from tests.simulation.actors.advice import RollbackOperator
from tests.simulation.actors.maintenance import TAG, Expirer, LastCleaner
from tests.simulation.actors.readers import StreamingReader
from tests.simulation.actors.streams import Stream
from tests.simulation.real_files import check_rows
from tests.simulation.rewriting import pieces_of
from tests.simulation.scheduler import DAY
from tests.simulation.state import State, Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

ATTEMPTS = 8
"""How many attempts a stream has to come to its end once nothing fails any more."""
MORE = 3
"""The number of batches that it has to write then in one of `RARELY` schedules. At least two of
them have rows. In the others one batch with rows shows that it lives.
"""
RARELY = 8


def come_to_rest(world: World) -> None:
    """Nothing fails any more: each actor ends its work or is killed, and late puts arrive or are
    lost.
    """
    world.choices.begin_end()
    world.peaceful = world.at_rest = True
    world.log.append("from here on nothing fails")
    world.settle_late()
    for actor in world.actors:
        process = actor.process
        while process is not None and process.alive_at_work:
            if world.choices.once_in(3):
                process.kill()
                world.log.append(f"{actor.name}: is killed; {actor.ended()}")
            else:
                world.turn(actor)
    finish_rollbacks(world)
    world.check()


def finish_rollbacks(world: World) -> None:
    """An operator completes the rollback that was interrupted, as every command that deletes
    advises.
    """
    refused, operator = (
        LastCleaner(world, "a command that deletes"),
        RollbackOperator(world, "the operator"),
    )
    for _ in range(ATTEMPTS):
        pins = [path for path in world.truth.tags if is_pin(path.removeprefix(TAG))]
        if not pins:
            return
        if not operator.text:
            world.turn(refused)
            operator.text = "" if refused.error is None else refused.error.message
        if operator.waits:
            return
        world.turn(operator)
    raise Violation(rules.ADVICE, f"the rollback of {pins} cannot be completed")


def streams_end(world: World) -> None:
    """Every stream comes to its end within a few attempts: its operator does what the errors
    advise.
    """
    streams = {
        one.user: one
        for one in world.actors
        if isinstance(one, Stream)
        and not one.retired
        and (not one.branch or world.exists(one.branch))
    }
    for stream in streams.values():
        wanted = end_of(world, stream)
        behind = max(0, stream.checkpoint.next_batch - stream.next_batch)
        for _ in range(ATTEMPTS + MORE + behind):
            if stream.checkpoint.next_batch >= wanted or stream.retired:
                break
            before = stream.truth.head
            world.turn(stream)
            world.check()
            if stream.truth.head is not before:
                check_hint(world, stream)
        else:
            raise Violation(rules.STREAMS_END, f"{stream.name} is still at {stream.next_batch}")


def end_of(world: World, stream: Stream) -> int:
    """The batch up to which a stream has to come."""
    first = stream.checkpoint.next_batch
    if random.Random(f"end {world.seed}").randrange(RARELY) == 0:
        return first + MORE
    return next(one for one in count(first) if stream.rows_in(one)) + 1


def check_hint(world: World, stream: Stream) -> None:
    """Nothing fails any more and nobody else is at work, so LATEST names the snapshot that this
    stream has just published. The server of a REST catalog has its own.
    """
    truth, process = stream.truth, stream.process
    head = truth.head
    if head is None or process is None or head.made_by is not process or process.error is not None:
        return
    if is_served(process.storage):
        return
    path = truth.prefix + LATEST_HINT
    said = world.disk.read(path).decode() if world.disk.exists(path) else None
    if said != str(head.id):
        raise Violation(rules.HINTS, f"{path} names {said}, and {stream.name} has made {head.id}")


def orphans_go(world: World) -> None:
    """Two days later orphan removal finds every file that nobody can refer to, and takes no
    other.
    """
    world.millis += 2 * DAY
    cleaner = LastCleaner(world, "the last orphan cleaner")
    world.turn(cleaner)
    if isinstance(cleaner.error, CommitContended) and not world.truth.there:
        return  # an interrupted rollback has nothing to go to, and nobody writes any more
    if isinstance(
        cleaner.error, CorruptMetadata
    ):  # its advice: let expiry finish with what uses the file
        cleaner.error = None
        world.turn(Expirer(world, "the operator's expiry"))
        world.turn(cleaner)
    if cleaner.error is not None:
        raise Violation(rules.ADVICE, f"the removal of orphans fails: {cleaner.error!r}")
    world.check()
    truth = world.truth
    states = [*truth.there.values(), *(state for _, state in truth.roots())]
    used: set[str] = set().union(*(state.files for state in states))
    noted = set(journalled_names(world.disk)).union(*(state.mentioned for state in states))
    staged = [user for user in world.truth.paths if "_paimon_stream/" in user]
    protected = {uuid for path in staged for uuid in _uuids(world, path)}
    for path in world.truth.paths - used:
        folder, name = path.partition("/")[0], path.rpartition("/")[2]
        if folder not in ("manifest", "index") and "bucket-" not in path:
            continue
        if name not in noted and not any(uuid in name for uuid in protected):
            raise Violation(rules.ORPHANS_FOUND, f"{path} stays, and nothing refers to it")


def _uuids(world: World, path: str) -> tuple[str, ...]:
    entry = world.journal_entry(path)
    return () if entry is None else entry.stage_uuids


def check_sums(world: World, state: State) -> None:
    """The rows of a table with keys, merged by their sequence numbers, are those of a model that
    takes the commits one after another.
    """
    pieces = {
        one.file: (one, entry.partition)
        for entry in state.live.values()
        for one in pieces_of(world, entry)
    }
    model: dict[tuple[bytes, int], int] = {}
    merged: dict[tuple[bytes, int], int] = {}
    for name in state.order:
        _merge_into(model, pieces[name][1], world.values[name], sums=world.sums)
    place_of = {name: place for place, name in enumerate(state.order)}
    # Of files with the same number either may win, so here the earlier one does.
    for one, place in sorted(
        pieces.values(), key=lambda pair: (pair[0].number, -place_of[pair[0].file])
    ):
        _merge_into(merged, place, one.values, sums=world.sums)
    if merged != model:
        raise Violation(rules.SUMS, f"snapshot {state.id} has {merged}, not {model}")


def _merge_into(
    merged: dict[tuple[bytes, int], int],
    partition: bytes,
    values: Mapping[int, int],
    *,
    sums: bool,
) -> None:
    """The values take the places of those that their keys have, or are added to them."""
    for key, value in values.items():
        before = merged.get((partition, key), 0) if sums else 0
        merged[partition, key] = before + value


def last_look(world: World) -> None:
    """Everything that is looked at in the end."""
    if not (world.to_the_end or world.real):
        return
    come_to_rest(world)
    if world.to_the_end:
        streams_end(world)
        finish_rollbacks(world)  # one that waited for a snapshot
        orphans_go(world)
    if world.real and not world.changing:
        check_rows(world)
        for one in (one for one in world.actors if isinstance(one, StreamingReader)):
            world.turn(one)
            one.check_has_seen()
