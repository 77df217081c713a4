"""Branches: histories of their own over the files of one table (table-kinds.md §6). While one is made or deleted, a
note `_paimon_stream/branch-<name>` says so, and this release does not open it. The same call completes a killed run."""

from dataclasses import dataclass
from typing import Final, cast

from paimon_stream.errors import AlreadyExists, CommitContended, CorruptMetadata, NotFound
from paimon_stream.format.snapshot_json import Snapshot, encode_snapshot
from paimon_stream.maintenance.needed import refuse_missing, without_changelog
from paimon_stream.maintenance.tags import read_tags
from paimon_stream.reports import Report
from paimon_stream.runtime import Runtime
from paimon_stream.storage.base import PutResult, Storage, delete_below
from paimon_stream.storage.branch import (
    BranchStorage,
    branch_folder,
    branch_names,
    branch_note,
    branch_storage,
    check_branch,
    check_is_main,
    whole_of,
)
from paimon_stream.table.layout import LATEST_HINT, SCHEMA_FOLDER, SNAPSHOT_FOLDER, schema_path, snapshot_path, tag_path
from paimon_stream.table.references import read_tag
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

WHERE: Final = "branches are made and deleted from the table itself. Load it without a branch"
_DELETED: Final = b"delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchReport(Report):
    """What was done to a branch. `snapshot` is its newest one, and `found` is false if there was none to delete."""

    location: str
    branch: str
    snapshot: int | None = None
    found: bool = True
    dry_run: bool = False


def read_branches(storage: Storage) -> dict[str, Snapshot | None]:
    """The finished branches but main by name, with their newest snapshots. Raises `CorruptMetadata`, `StorageError`."""
    found = [BranchStorage(whole_of(storage), name) for name in branch_names(storage)]
    return {one.branch: SnapshotStore(cast(Storage, one)).latest() for one in found if not one.is_noted()}


def create_branch(table: Table, name: str, tag: str | None = None, *, runtime: Runtime | None = None) -> BranchReport:
    """Creates a branch, as `PaimonTable.create_branch` says, and raises the same errors."""
    used = table.storage
    check_is_main(used, WHERE)
    check_branch(name, used.location)
    kept = None if tag is None else _tagged(table, tag, runtime)
    _note_creation(used, name, tag)
    branch = branch_storage(used, name)
    for one in SchemaStore(used).ids():
        if kept is None or one <= kept.schema_id:
            branch.put_if_absent(schema_path(one), used.read(schema_path(one)))
    if kept is not None and tag is not None:
        branch.put_if_absent(snapshot_path(kept.id), encode_snapshot(without_changelog(kept)))
        if read_tag(used, tag_path(tag)) != kept:  # who deletes it later sees the branch
            delete_branch(table, name)
            raise _no_tag(used, tag)
        branch.write(tag_path(tag), used.read(tag_path(tag)))
    used.delete(branch_note(name))
    return BranchReport(location=used.location, branch=name, snapshot=None if kept is None else kept.id)


def delete_branch(table: Table, name: str, *, dry_run: bool = False) -> BranchReport:
    """Deletes a branch, as `PaimonTable.delete_branch` says, and raises the same errors."""
    used = table.storage
    check_is_main(used, WHERE)
    check_branch(name, used.location)
    found = name in branch_names(used)
    if dry_run:
        return BranchReport(location=used.location, branch=name, found=found, dry_run=True)
    if found:
        used.write(branch_note(name), _DELETED)
        used.delete(branch_folder(name) + LATEST_HINT)  # it never names a snapshot that is gone
        delete_below(used, branch_folder(name).rstrip("/"), last=(SNAPSHOT_FOLDER, SCHEMA_FOLDER))
    used.delete(branch_note(name))
    return BranchReport(location=used.location, branch=name, found=found)


def _tagged(table: Table, tag: str, runtime: Runtime | None) -> Snapshot:
    """The snapshot of the tag, whose files exist."""
    used = table.storage
    kept = read_tags(used).get(tag)
    if kept is None:
        raise _no_tag(used, tag)
    try:
        refuse_missing(table, kept, data=not SnapshotStore(used, runtime).stands(kept))
    except (CorruptMetadata, NotFound) as lost:
        raise _no_tag(used, tag) from lost
    return kept


def _no_tag(storage: Storage, tag: str) -> NotFound:
    text = f"{storage.location} has no tag {tag!r} with all its files. No branch was created. Give another tag."
    return NotFound(text, table=storage.location, tag=tag)


def _note_creation(storage: Storage, name: str, tag: str | None) -> None:
    """Notes that the branch is being made. A creation that was interrupted may go on."""
    path, content = branch_note(name), b"create" if tag is None else f"create from {tag}".encode()
    if name not in branch_names(storage) or storage.exists(path):
        if storage.put_if_absent(path, content) is PutResult.EXISTS:
            if storage.read(path) == content:
                return
            done = "the creation from another tag, or the deletion, of branch"
            text = f"{storage.location}: {done} {name!r} was interrupted. Run delete_branch({name!r}) first."
            raise CommitContended(text, table=storage.location, branch=name)
        if name not in branch_names(storage):
            return
        storage.delete(path)  # another call has just made it
    text = f"{storage.location} has a branch {name!r}. Nothing was changed. Take another name, or delete that branch."
    raise AlreadyExists(text, table=storage.location, branch=name)
