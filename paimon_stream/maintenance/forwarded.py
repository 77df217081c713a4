"""What main keeps of a stream after a fast forward to a branch (exactly-once.md §8): the journal,
the claims and the register of the branch, and what main's register says of the same query.
"""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

from paimon_stream.errors import FormatError
from paimon_stream.format.json_text import MOST_JSON
from paimon_stream.storage.base import Storage, read_if_there
from paimon_stream.table.layout import id_in_name
from paimon_stream.table.register import (
    RegisteredWriter,
    decode_register,
    encode_register,
    register_path,
    standing_runs,
    vouched_since,
)


def ask_notes(
    branch: Storage,
    main: Storage,
    folder: str,
    taken: Collection[tuple[str | None, str]],
) -> None:
    """Makes main's register of a commit user ask the notes of removals, if the branch has one of the
    same query: once main has the branch's batches, they would pass for those that it has lost.
    `taken` is as in `copy_stream`, which alone records that these notes are asked: a stream may go
    on in what a killed run has left, and is asked when the run is completed. Raises `StorageError`.
    """
    path = register_path(folder)
    registers = [read_if_there(one.read, path, MOST_JSON) for one in (branch, main)]
    theirs, mine = [None if one is None else _readable(one, path) for one in registers]
    if theirs is None or mine is None or theirs.query_id != mine.query_id:
        return
    if not mine.asks_notes and not _notes_of(theirs, taken) <= set(mine.asked_notes):
        main.write(path, encode_register(replace(mine, asks_notes=True)))


def copy_stream(
    branch: Storage,
    main: Storage,
    folder: str,
    taken: Collection[tuple[str | None, str]],
) -> None:
    """Gives main what the branch keeps in the folder of a commit user, unless a stream of another
    query has the folder in main. Of a batch that both have journalled the branch's entry stays: it
    proves what is part of the table now. `taken` are the queries of which main has lost batches of
    this user, each with the name of a note that says so. A note that a judgement of main was to ask
    before is no reason to ask again. The register comes last, because it vouches for the rest.
    Raises `StorageError`.
    """
    path = register_path(folder)
    register = read_if_there(branch.read, path, MOST_JSON)
    if register is None:
        return
    present = read_if_there(main.read, path, MOST_JSON)
    theirs, mine = _readable(register, path), None
    if present is not None:
        mine = _readable(present, path)
        if theirs is None or mine is None or theirs.query_id != mine.query_id:
            return
    if theirs is not None:
        written_here = frozenset() if mine is None else mine.runs - set(mine.forwarded_runs)
        theirs = replace(theirs, forwarded_runs=tuple(sorted(theirs.runs - written_here)))
        if mine is not None:
            since = _later_since(
                vouched_since(theirs, standing_runs(branch, folder)),
                vouched_since(mine, standing_runs(main, folder)),
            )
            theirs = _of_both(theirs, mine, since, _notes_of(theirs, taken))
        register = encode_register(theirs)
    for stat in branch.list_files(folder):
        data = read_if_there(branch.read, stat.path)
        if data is None or stat.path == path:
            continue
        if id_in_name(stat.name, "") is None:
            main.put_if_absent(stat.path, data)
        else:
            main.write(stat.path, data)
    main.write(path, register)


def _readable(register: bytes, path: str) -> RegisteredWriter | None:
    """None for a register that cannot be read, which is of no query."""
    with suppress(FormatError):
        return decode_register(register, path)
    return None


def _of_both(
    theirs: RegisteredWriter, mine: RegisteredWriter, since: int | None, notes: Collection[str]
) -> RegisteredWriter:
    """The branch's register with what main's says of the same query. The journal vouches from batch
    `since` on, and `notes` name what main has lost.
    """
    # Two users that shared a run are two sinks, wherever they have run together.
    runs = dict.fromkeys((*theirs.earlier_runs, mine.run, *mine.earlier_runs))
    return replace(
        theirs,
        journal_since=since,
        given_up=tuple(sorted({*theirs.given_up, *mine.given_up})),
        asks_notes=theirs.asks_notes or mine.asks_notes or not set(notes) <= set(mine.asked_notes),
        asked_notes=tuple(sorted({*mine.asked_notes, *notes})),
        earlier_runs=tuple(run for run in runs if run is not None and run != theirs.run),
    )


def _notes_of(
    register: RegisteredWriter, taken: Collection[tuple[str | None, str]]
) -> frozenset[str]:
    """The names of the notes that concern the query of a register."""
    return frozenset(note for query, note in taken if query in (None, register.query_id))


def _later_since(*since: int | None) -> int | None:
    """The batch from which on all of them vouch."""
    known = [one for one in since if one is not None]
    return max(known) if len(known) == len(since) else None
