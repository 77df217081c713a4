"""The model beside the real code: after each history both must have the same table, checkpoint and
facts.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from paimon_stream.stream.claims import Claims
from paimon_stream.stream.facts import FIRST_BATCH
from paimon_stream.stream.gather import gather
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.known_facts import Facts
from paimon_stream.table.snapshots import SnapshotStore
from tests.histories import model_facts
from tests.histories.events import EVENTS, in_words
from tests.histories.model import after, begun
from tests.histories.model_state import State
from tests.histories.walk import History, beginning
from tests.histories.world import Broken, DoesNothing, Setting, World


@dataclass
class Compared:
    """How many histories of each length were compared, and how they differ."""

    lengths: dict[int, int] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)


def compare(alphabet: Sequence[str], most: int, setting: Setting) -> Compared:
    """Runs every history of up to `most` events on both. What follows a difference is not looked
    at.
    """
    compared = Compared()
    growing: deque[tuple[History, World, State]] = deque([((), beginning(setting), begun(setting))])
    while growing:
        history, world, state = growing.popleft()
        compared.lengths[len(history)] = compared.lengths.get(len(history), 0) + 1
        difference = _difference(world, state)
        if difference:
            compared.differences.append(f"{in_words(history)} ({setting}): {difference}")
        elif len(history) < most:
            for event in alphabet:
                following, both, ends = _both_after(world, state, event)
                if ends:
                    compared.differences.append(
                        f"{in_words((*history, event))} ({setting}): {ends}"
                    )
                elif both is not None:
                    growing.append(((*history, event), following, both))
    return compared


def _both_after(world: World, state: State, event: str) -> tuple[World, State | None, str]:
    """The world and the state after the event; the state is None if it changes nothing. Then how the
    two differ in that.
    """
    world = world.again_from_here()
    world.advance()
    theirs = ours = ""
    following: State | None = None
    try:
        EVENTS[event](world)
    except (DoesNothing, Broken) as end:
        theirs = f"{type(end).__name__} {end}"
    try:
        following = after(state, event)
    except (DoesNothing, Broken) as end:
        ours = f"{type(end).__name__} {end}"
    world.stop()  # each batch of the model is run by a new run
    return (
        world,
        following,
        "" if ours == theirs else f"the model ends {ours!r}, the code {theirs!r}",
    )


def _difference(world: World, state: State) -> str:
    copies = Counter(batch for batch, _ in state.main[-1].files)
    theirs = (world.copies(), world.missing(), world.stream.next_batch)
    ours = (copies, set(state.missing()), state.next_batch)
    if theirs != ours:
        return f"the model has {ours}, the table {theirs}"
    later = world.again_from_here()
    later.advance()
    state = replace(state, now=state.now + state.setting.pace)
    pairs = zip(facts_of(later), model_facts.Facts(state).all(), strict=True)
    return ", ".join(
        f"the model has {mine}, the code {real}" for real, mine in pairs if real != mine
    )


def facts_of(world: World) -> tuple[Enum, ...]:
    """The facts of the next batch that a new run gathers. It ends the claims of earlier runs."""
    stream, storage = world.stream, world.bench.storage
    identity = WriterIdentity(
        user=stream.user,
        query_id=stream.query_id,
        run_id=f"{stream.query_id}-run-{stream.runs + 1}",
        checkpoint=stream.checkpoint,
        token=f"{stream.query_id}-sink",
    )
    runs = Claims(storage, identity).acquire()
    snapshots = SnapshotStore(storage, world.bench.runtime)
    evidence = gather(world.bench.table, identity, world.next_batch(), snapshots, runs)
    facts = Facts(evidence, journals=world.setting.journal)
    return tuple([facts.ask(fact) for fact in FIRST_BATCH])
