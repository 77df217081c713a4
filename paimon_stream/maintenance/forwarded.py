"""Merges a stream's files in a branch with those in main, during a fast forward (exactly-once.md
§8). Main gets the journal, the claims and the register of the branch. The register also gets what
main's register said of the same query.
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
    runs_with_claims,
    vouched_since,
)


def ask_notes(
    branch: Storage,
    main: Storage,
    folder: str,
    losses: Collection[tuple[str | None, str]],
) -> None:
    """Makes main's register of a commit user ask the notes of removals, if the branch has a
    register of the same query. Otherwise the branch's batches would pass for the batches that main
    has lost. Only `copy_stream` records which notes are asked. If a run is killed before that, a
    stream may go on, and its operator is asked after the run is completed.

    Args:
        branch: the storage of the branch.
        main: the storage of main.
        folder: the folder of the commit user.
        losses: the queries whose batches of this user main has lost, each with the name of the
            note.

    Raises:
        StorageError: the storage fails.
    """
    path = register_path(folder)
    in_branch = read_if_there(branch.read, path, MOST_JSON)
    in_main = read_if_there(main.read, path, MOST_JSON)
    if in_branch is None or in_main is None:
        return
    of_branch = _readable(in_branch, path)
    of_main = _readable(in_main, path)
    if of_branch is None or of_main is None or of_branch.query_id != of_main.query_id:
        return
    if not of_main.asks_notes and not _notes_of(of_branch, losses) <= set(of_main.asked_notes):
        main.write(path, encode_register(replace(of_main, asks_notes=True)))


def copy_stream(
    branch: Storage,
    main: Storage,
    folder: str,
    losses: Collection[tuple[str | None, str]],
) -> None:
    """Copies to main the files that the branch has in the folder of a commit user, unless a stream
    of another query has the folder in main. If both have journalled a batch, main gets the branch's
    entry, because that entry shows what is part of the table now. The register is copied last,
    because it says that the copied journal is complete.

    Args:
        branch: the storage of the branch.
        main: the storage of main.
        folder: the folder of the commit user.
        losses: the queries whose batches of this user main has lost, each with the name of the note
            of the loss. A note in the `asked_notes` of main's register is no reason to ask again.

    Raises:
        StorageError: the storage fails.
    """
    path = register_path(folder)
    register = _forwarded_register(branch, main, folder, losses)
    if register is None:
        return
    for stat in branch.list_files(folder):
        data = read_if_there(branch.read, stat.path)
        if data is None or stat.path == path:
            continue
        if id_in_name(stat.name, "") is None:
            main.put_if_absent(stat.path, data)
        else:
            main.write(stat.path, data)
    main.write(path, register)


def _forwarded_register(
    branch: Storage,
    main: Storage,
    folder: str,
    losses: Collection[tuple[str | None, str]],
) -> bytes | None:
    """The register of a commit user that main gets; None if the branch has none, or a stream of
    another query has the folder in main.
    """
    path = register_path(folder)
    in_branch = read_if_there(branch.read, path, MOST_JSON)
    if in_branch is None:
        return None
    in_main = read_if_there(main.read, path, MOST_JSON)
    of_branch = _readable(in_branch, path)
    if in_main is None:
        if of_branch is None:
            return in_branch
        return encode_register(replace(of_branch, forwarded_runs=tuple(sorted(of_branch.runs))))
    of_main = _readable(in_main, path)
    if of_branch is None or of_main is None or of_branch.query_id != of_main.query_id:
        return None
    written_here = of_main.runs - set(of_main.forwarded_runs)
    forwarded = replace(of_branch, forwarded_runs=tuple(sorted(of_branch.runs - written_here)))
    since = _later_since(
        vouched_since(forwarded, runs_with_claims(branch, folder)),
        vouched_since(of_main, runs_with_claims(main, folder)),
    )
    return encode_register(_of_both(forwarded, of_main, since, _notes_of(forwarded, losses)))


def _readable(register: bytes, path: str) -> RegisteredWriter | None:
    """The decoded register; None if it cannot be read. A register that cannot be read belongs to no
    query.
    """
    with suppress(FormatError):
        return decode_register(register, path)
    return None


def _of_both(
    of_branch: RegisteredWriter,
    of_main: RegisteredWriter,
    since: int | None,
    notes: Collection[str],
) -> RegisteredWriter:
    """The branch's register, with what main's register says of the same query. `since` is the batch
    from which on the journal is complete. `notes` are the names of the notes of what main has lost.
    """
    # Two users that were in one run are two sinks, also if that run was in main and not in the
    # branch.
    runs = dict.fromkeys((*of_branch.earlier_runs, of_main.run, *of_main.earlier_runs))
    return replace(
        of_branch,
        journal_since=since,
        given_up=tuple(sorted({*of_branch.given_up, *of_main.given_up})),
        asks_notes=of_branch.asks_notes
        or of_main.asks_notes
        or not set(notes) <= set(of_main.asked_notes),
        asked_notes=tuple(sorted({*of_main.asked_notes, *notes})),
        earlier_runs=tuple(run for run in runs if run is not None and run != of_branch.run),
    )


def _notes_of(
    register: RegisteredWriter, losses: Collection[tuple[str | None, str]]
) -> frozenset[str]:
    """The names of the notes that concern the query of a register. `losses` are pairs of a query
    and the name of a note. A note without a query concerns every query.
    """
    return frozenset(note for query, note in losses if query in (None, register.query_id))


def _later_since(*since: int | None) -> int | None:
    """The batch from which on all of these journals are complete; None if that is not known of one
    of them.
    """
    known = [batch for batch in since if batch is not None]
    if len(known) < len(since):
        return None
    return max(known)
