"""What must hold at the end of each order, besides what `tests/simulation/truth.py` looks at with
every change.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from paimon_stream.format.snapshot_json import CommitKind
from paimon_stream.read.scan import plan_scan
from paimon_stream.table.layout import id_in_name
from paimon_stream.table.table import load_table
from tests.orders.accesses import REMOVE
from tests.orders.explorer import Event
from tests.orders.setting import settle
from tests.orders.stage import APART, Stage
from tests.orders.threads import TRIES, Thread
from tests.simulation import rules
from tests.simulation.actors.streams import Stream
from tests.simulation.actors.writers import BatchWriter
from tests.simulation.state import State, Violation

DONE, IDLE = "is done", "has nothing to do"


def check_end(stage: Stage, threads: Sequence[Thread], may: Collection[str] | None) -> None:
    """Looks at a table when all threads have ended. They may have got these errors; any, if it is
    None."""
    said = [(one.name, said) for one in threads for said in one.log]
    streams_end(stage, threads)
    for truth in (stage.truth, *stage.branches.values()):
        truth.check_whole()
        truth.check_acknowledged()
    check_finished(stage, threads)
    check_ids(stage)
    check_readers(stage)
    if may is not None and not any(one.fired for one in threads):
        check_reasons(said, may)


def streams_end(stage: Stage, threads: Sequence[Thread]) -> None:
    """A stream that died or was refused goes on alone, and comes to its end: the operator does what
    the errors advise.
    """
    for one in threads:
        if isinstance(one.actor, Stream) and one.works > 0 and not one.actor.retired:
            one.plan, one.tries, one.at = {}, TRIES + 2, "begin"
            settle(one)
            if one.works > 0 and not one.actor.retired:
                raise Violation(rules.STREAMS_END, f"{one.name}: {'; '.join(one.log)}")


def check_finished(stage: Stage, threads: Sequence[Thread]) -> None:
    """The rows of a batch commit that is done are in the table exactly once. Nobody acknowledges
    them by a number, so they are known by the numbers of their files, which are its writer's.
    """
    truth = stage.truth
    if truth.upsets or truth.head is None:
        return  # a rollback may have taken them
    states = list(truth.history.values())
    if not any(one.snapshot.commit_kind is CommitKind.OVERWRITE for one in states):
        states = [truth.head]
    for one in threads:
        if type(one.actor) is not BatchWriter:
            continue
        first = APART * stage.place_of(one.name)
        written = {name for state in states for name in state.written}
        own = [name for name in written if name.startswith("batch-") and _is_of(name, first)]
        if len(own) < one.log.count(DONE):
            raise Violation(rules.ACKNOWLEDGED, f"{one.name} is done, and the table has {own}")


def _is_of(name: str, first: int) -> bool:
    number = int(name.rpartition("-")[2].partition(".")[0])
    return first < number <= first + APART


def check_reasons(said: Sequence[tuple[str, str]], may: Collection[str]) -> None:
    """Where nothing fails, nobody gets an error that the world does not declare."""
    for name, outcome in said:
        if outcome not in (DONE, IDLE) and f"{name} {outcome}" not in may:
            raise Violation(rules.NO_REASON, f"{name} {outcome}")


def check_ids(stage: Stage) -> None:
    """The ids of the table's snapshots have no gap. A dead writer's last put may arrive when its id
    has expired: that snapshot lies beside the table, and nobody takes it for a part of it.
    """
    ids = sorted(stage.truth.there.keys() - stage.truth.beside.keys())
    if ids and len(ids) <= ids[-1] - ids[0]:
        raise Violation(rules.CONTINUOUS, f"the table has the snapshots {ids}")


def check_readers(stage: Stage) -> None:
    """A reader who comes now sees the newest snapshot, with its files and its number of rows."""
    scan = plan_scan(load_table(stage.disk))
    head = stage.truth.head
    newest = None if head is None else head.id
    seen = None if scan.snapshot is None else scan.snapshot.id
    if seen != newest:
        raise Violation(rules.READERS, f"a reader sees snapshot {seen}, and not {newest}")
    names = {entry.file.file_name for entry in scan.files}
    if head is None:
        return
    if names != head.live.keys():
        raise Violation(rules.READERS, f"a reader of snapshot {newest} sees {sorted(names)}")
    rows = sum(one.file.row_count for one in head.live.values())
    if head.snapshot.total_record_count != rows:
        count = head.snapshot.total_record_count
        raise Violation(rules.READERS, f"snapshot {newest} counts {count} rows, and has {rows}")


# -- what no order of its class may break
# -----------------------------------------------------------------------


def check_deletions(stage: Stage, events: list[Event]) -> None:
    """No file is deleted before the last snapshot that refers to it, in any order of the class: the
    removal of the snapshot must have happened before. In the order that was run it may have come
    first by chance.
    """
    if stage.truth.upsets or stage.truth.beside:
        return  # somebody took a snapshot back, and its files with it
    users = _users(stage)
    removed: dict[int, int] = {}
    for number, event in enumerate(events):
        access = event.access
        if access.kind != REMOVE:
            continue
        folder, _, name = access.path.partition("/")
        snapshot_id = id_in_name(name, "snapshot-") if folder == "snapshot" else None
        if snapshot_id is not None:
            removed[snapshot_id] = number
    for event in events:
        if event.access.kind != REMOVE:
            continue
        for state in users.get(event.access.path, ()):
            gone = removed.get(state.id)
            if gone is None or event.clock.get(events[gone].task, -1) < gone:
                what = f"{event.task} may delete {event.access.path} of snapshot {state.id}"
                raise Violation(rules.WHOLE, f"{what} before that is gone")


def _users(stage: Stage) -> dict[str, list[State]]:
    """The snapshots that were part of the table, by the files to which they refer."""
    found: dict[str, list[State]] = {}
    for state in stage.truth.history.values():
        for path in state.files:
            found.setdefault(path, []).append(state)
    return found
