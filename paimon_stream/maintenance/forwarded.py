"""What main keeps of a stream after a fast forward to a branch (exactly-once.md §8): the journal,
the claims and the register of the branch, and what main's register says of the same query.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from paimon_stream.errors import FormatError
from paimon_stream.format.json_text import (
    MOST_JSON,
    decode_checksummed,
    encode_checksummed,
    integer,
    understanding,
)
from paimon_stream.storage.base import Storage, read_if_there
from paimon_stream.table.layout import id_in_name

_REGISTER: Final = "writer"
_CLAIM: Final = "claim-"
_CURE: Final = "Move the file away. The stream is then judged only by the table's snapshots."


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
    path = f"{folder}/{_REGISTER}"
    registers = [read_if_there(one.read, path, MOST_JSON) for one in (branch, main)]
    theirs, mine = [None if one is None else _body(one, path) for one in registers]
    if theirs is None or mine is None or theirs.get("queryId") != mine.get("queryId"):
        return
    if not mine.get("asksNotes") and not _notes_of(theirs, taken) <= set(mine["askedNotes"]):
        main.write(path, encode_checksummed(_REGISTER, {**mine, "asksNotes": True}))


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
    path = f"{folder}/{_REGISTER}"
    register = read_if_there(branch.read, path, MOST_JSON)
    if register is None:
        return
    present = read_if_there(main.read, path, MOST_JSON)
    theirs, mine = _body(register, path), None
    if present is not None:
        mine = _body(present, path)
        if theirs is None or mine is None or theirs.get("queryId") != mine.get("queryId"):
            return
    if theirs is not None:
        written_here = set() if mine is None else _runs(mine) - set(mine["forwardedRuns"])
        theirs["forwardedRuns"] = sorted(_runs(theirs) - written_here)
    if theirs is not None and mine is not None:
        theirs["journalSince"] = _later_since(
            _vouched_since(theirs, branch, folder), _vouched_since(mine, main, folder)
        )
        given_up = {*map(tuple, theirs["givenUp"]), *map(tuple, mine["givenUp"])}
        theirs["givenUp"] = sorted(map(list, given_up))
        notes = _notes_of(theirs, taken)
        asked = set(mine["askedNotes"])
        if mine.get("asksNotes") or not notes <= asked:
            theirs["asksNotes"] = True
        theirs["askedNotes"] = sorted(asked | notes)
        # Two users that shared a run are two sinks, wherever they have run together.
        runs = dict.fromkeys((*theirs["earlierRuns"], mine.get("run"), *mine["earlierRuns"]))
        theirs["earlierRuns"] = [run for run in runs if run not in (None, theirs.get("run"))]
    if theirs is not None:
        register = encode_checksummed(_REGISTER, theirs)
    for stat in branch.list_files(folder):
        data = read_if_there(branch.read, stat.path)
        if data is None or stat.name == _REGISTER:
            continue
        if id_in_name(stat.name, "") is None:
            main.put_if_absent(stat.path, data)
        else:
            main.write(stat.path, data)
    main.write(path, register)


def _body(register: bytes, path: str) -> dict[str, Any] | None:
    """None for a register that cannot be read, which is of no query."""
    with suppress(FormatError):
        body = decode_checksummed(_REGISTER, register, path)
        with understanding(path, len(register), "a register of a stream", _CURE):
            since, given_up = body["journalSince"], body.get("givenUp", ())
            body["journalSince"] = None if since is None else integer(since)
            body["givenUp"] = [[integer(first), integer(last)] for first, last in given_up]
            for key in ("earlierRuns", "forwardedRuns", "askedNotes"):
                body[key] = list(map(str, body.get(key, ())))
        return body
    return None


def _notes_of(register: Mapping[str, Any], taken: Collection[tuple[str | None, str]]) -> set[str]:
    """The names of the notes that concern the query of a register."""
    return {note for query, note in taken if query in (None, register.get("queryId"))}


def _runs(register: Mapping[str, Any]) -> set[str]:
    """The runs that a register names."""
    return {str(run) for run in (register.get("run"), *register["earlierRuns"]) if run is not None}


def _vouched_since(register: Mapping[str, Any], storage: Storage, folder: str) -> int | None:
    """The batch from which on the journal is whole; None if a later run has begun since, which may
    have had none.
    """
    run = register.get("run")
    if run is not None:
        claims = {one.name for one in storage.list_files(folder, _CLAIM)}
        if f"{_CLAIM}{run}" not in claims:
            return None
    since: int | None = register["journalSince"]
    return since


def _later_since(*since: int | None) -> int | None:
    """The batch from which on all of them vouch."""
    known = [one for one in since if one is not None]
    return max(known) if len(known) == len(since) else None
