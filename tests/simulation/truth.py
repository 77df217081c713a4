"""What is true of the simulated table: its line of snapshots, what is beside it, and which rows are
where.

Every change of the storage passes here, so nothing has to be guessed afterwards. The *line* is the
lineage of docs/architecture.md. A snapshot that was not built on the end of the line lies beside
it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from paimon_stream.format.snapshot_json import CommitKind, decode_snapshot
from paimon_stream.maintenance.pins import is_pin
from paimon_stream.storage.base import PutResult
from paimon_stream.storage.branch import branch_folder
from paimon_stream.table.layout import id_in_name, snapshot_path
from tests.simulation import rules
from tests.simulation.actors.writers import Overwriter, PartitionExpirer
from tests.simulation.archive import Archive
from tests.simulation.catalogs import NO_VOID, REST
from tests.simulation.changing import check_changed, check_once
from tests.simulation.compactions import check_compaction
from tests.simulation.deletes import check_deletes
from tests.simulation.dynamic import check_index
from tests.simulation.figures import check_figures
from tests.simulation.limits import (
    BUILT_ON_SLEEPERS,
    EXPIRY_OF_DROPPED,
    EXPIRY_SLEPT,
    FOUND_IN_SLEEPERS,
    NEVER_PUT_BACK,
    NO_PART,
    NOT_PUT_BACK_YET,
    REPLACED_BELOW,
    ROLLBACK_UNDER_WAY,
    SAW_SLEEPER,
    SLEEPER_COUNTED,
    SLEEPER_ENDED,
    SLEEPER_REMOVED_ANOTHER,
    SLEEPER_REMOVED_BASE,
    TAG_DELETER_SLEPT,
    Limit,
)
from tests.simulation.row_ids import check_row_ids
from tests.simulation.state import State, Token, Violation, token_of
from tests.simulation.vectors import check_vectors
from tests.simulation.wholeness import is_whole

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.world import World


BRANCH = "branch"
"""How a snapshot comes into a branch that is being made."""


@dataclass
class Truth:
    """The state of the table, kept up to date with each change.

    `there` are the snapshots that exist, `head` the end of the line, `beside` those outside it with
    the process that made them, `taken` the batches that something took away and what it was,
    `taken_at` the number of that upset, `upsets` the number of times that the line lost something, `drops` that of the tables that were
    dropped. `voided` are the batches in snapshots that lay beside the line and were removed, with
    the number of that upset. `unsure` are the tags whose makers ended before they could take them
    back. `parts` has the files of each attempt to write a batch of a table with dynamic buckets.
    `noted` are the batches that a rollback or fast forward of this package took. `schemas` are
    the ids of those that exist. `line` has what was the newest, one after another, where rows are
    changed. A branch has a truth of its own, and `prefix` is its folder.
    """

    world: World
    prefix: str = ""
    head: State | None = None
    there: dict[int, State] = field(default_factory=dict)
    beside: dict[int, Process] = field(default_factory=dict)
    history: dict[str, State] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    tags: dict[str, tuple[State, Process]] = field(default_factory=dict)
    branches: dict[str, State] = field(default_factory=dict)
    taken: dict[Token, str] = field(default_factory=dict)
    taken_at: dict[Token, int] = field(default_factory=dict)
    acked: set[Token] = field(default_factory=set)
    excused: set[Token] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)
    suspects: dict[tuple[str, object], State] = field(default_factory=dict)
    there_again: tuple[State, Process] | None = None
    late: set[str] = field(default_factory=set)
    upsets: int = 0
    last_void: int = 0
    voided: dict[Token, int] = field(default_factory=dict)
    drops: int = 0
    archive: Archive = field(default_factory=Archive)
    parts: dict[str, dict[int, str]] = field(default_factory=dict)
    noted: set[Token] = field(default_factory=set)
    schemas: set[int] = field(default_factory=lambda: {0})
    line: list[State | None] = field(default_factory=list)

    @property
    def newest_schema(self) -> int:
        """The id of the newest schema."""
        return max(self.schemas, default=0)

    def of_next_table(self) -> Truth:
        """The truth of the table that is created at this place after a drop."""
        kept: dict[str, Any] = {
            "states": self.states,
            "archive": self.archive,
            "parts": self.parts,
        }
        if self.prefix:
            kept["paths"] = self.paths  # the branches of a table share its files
        return Truth(self.world, self.prefix, drops=self.drops + 1, upsets=self.upsets + 1, **kept)

    def of_branch(self, name: str) -> Truth:
        """The truth of a branch that does not exist yet."""
        kept: dict[str, Any] = {
            "states": self.states,
            "archive": self.archive,
            "parts": self.parts,
        }
        return Truth(self.world, branch_folder(name), paths=self.paths, **kept)

    def copied(self, paths: set[str]) -> Truth:
        """The truth as it is now, for a copy of the table that has these paths."""
        kept = {
            one.name: copy.copy(getattr(self, one.name))
            for one in fields(self)
            if one.name not in ("world", "states", "archive", "parts", "head")
        }
        return replace(self, **(kept | {"paths": paths}))

    def put_back(self, kept: Truth, paths: set[str]) -> Truth:
        """The truth of the table that is put back from a copy, after what is true now. It is the
        table of then, also if that was dropped since.
        """
        restored = kept.copied(paths)
        restored.upsets = self.upsets + 1
        restored.acked &= self.acked  # what operators have given up since, they do not miss
        return restored

    def change(
        self,
        process: Process,
        verb: str,
        path: str,
        effect: Callable[[], Any],
        *,
        late: bool = False,
    ) -> Any:
        """Makes a change, and records what it did. With `late`, it was sent some time ago."""
        if verb == "write" and path in self.paths and _is_snapshot(path):
            self._check_may_replace(process, path)
        result = effect()
        if late:
            self.late.add(path)
        if verb == "put" and result is PutResult.EXISTS:
            return result
        if not late:
            self.late.discard(path)
        if verb == "delete":
            self.paths.discard(path)
        else:
            self.paths.add(path)
        folder, _, name = path.partition("/")
        if folder == "manifest":
            if verb != "delete":
                self.archive.files[name] = self.world.disk.read(path)
                if process.actor.owes:
                    self.archive.commits[name] = process.actor.commit
        elif folder == "index" and verb != "delete":
            self.archive.indexes[name] = self.world.disk.read(path)
        elif folder == "branch":
            self._branch(verb, path)
            branch, _, below = name.partition("/")
            truth = self.world.branches.get(branch.removeprefix("branch-"))
            if truth is not None:
                truth._record(process, verb, below)
        else:
            self._record(process, verb, path)
        if verb == "delete":
            self._suspect_users_of(process, path)
        return result

    def _record(self, process: Process, verb: str, path: str) -> None:
        """What a change of a snapshot or tag did. The path begins in the folder of the branch."""
        folder, _, name = path.partition("/")
        if folder == "snapshot":
            snapshot_id = id_in_name(name, "snapshot-")
            if snapshot_id is not None:
                if verb == "delete":
                    self._gone(process, snapshot_id)
                else:
                    state = self.state_at(path)
                    if state.nonce not in self.states:
                        check_figures(self, process, self.prefix + path, state)
                    self._made(process, state)
        elif folder == "tag":
            self._tag(process, verb, path)
        elif folder == "schema":
            keep = self.schemas.discard if verb == "delete" else self.schemas.add
            keep(id_in_name(name, "schema-") or 0)

    def _check_may_replace(self, process: Process, path: str) -> None:
        """Only an engine without an atomic rename writes over a snapshot that is part of the table,
        and a fast forward to one with its id in a branch with another history: a run that dies
        there leaves no table without a snapshot. A rollback may also write over one that a writer
        who slept has created again.
        """
        forwards = process.may_roll_back and process.actor.brings
        if forwards or getattr(process.actor, "replaces", False):
            return
        if process.may_roll_back and id_in_name(path, "snapshot/snapshot-") in self.beside:
            return
        raise Violation(rules.NOT_REPLACED, f"{process.name} writes over {path}")

    def state_at(self, path: str) -> State:
        """The snapshot in a file, with what it refers to."""
        snapshot = decode_snapshot(self.world.disk.read(self.prefix + path), path)
        changed = bool(self.world.changing)
        return self.archive.state(snapshot, self.world.table.layout, is_changed=changed)

    # -- acknowledgement --------------------------------------------------------------------------

    def acknowledge(self, token: Token, process: Process) -> None:
        """Somebody was promised that this batch is in the table."""
        if process.drops != self.drops:
            return  # the table was dropped meanwhile
        live = self.head.tokens() if self.head is not None else frozenset()
        if token not in live and token in self.voided and self.voided[token] > process.upsets:
            raise Limit(FOUND_IN_SLEEPERS)
        self.acked.add(token)
        self.check_acknowledged()

    def excuse_sleepers(self) -> None:
        """What a run says of a table is no matter while the snapshot of a sleeper stands beside the
        line.
        """
        if self.beside:
            raise Limit(SAW_SLEEPER)

    def check_acknowledged(self) -> None:
        """Acknowledged rows are there, unless something took them away."""
        live = self.head.tokens() if self.head is not None else frozenset()
        missing = {
            one for one in self.acked if one not in live and one not in self.taken
        } - self.excused
        asleep = [self.there[one] for one, maker in self.beside.items() if maker.alive_at_work]
        if missing and any(missing <= state.tokens() for state in asleep):
            raise Limit(FOUND_IN_SLEEPERS)
        if missing and self.world.disturbed and self.is_torn():
            raise Limit(ROLLBACK_UNDER_WAY)
        if missing:
            raise Violation(rules.ACKNOWLEDGED, f"batches {sorted(missing)} are not in the table")

    def is_torn(self) -> bool:
        """Whether a rollback has not removed all yet, and somebody has built on what it was about
        to remove.
        """
        line = {one for one in self.there if one not in self.beside}
        pinned = any(is_pin(path.removeprefix("tag/tag-")) for path in self.tags)
        return pinned and bool(line) and len(line) <= max(line) - min(line)

    # -- snapshots --------------------------------------------------------------------------------

    def _made(self, process: Process, state: State) -> None:
        before, head = self.there.get(state.id), self.head
        self.there[state.id] = state
        state.made_by, state.slept = process, process.upsets != self.upsets
        state.upsets = self.upsets
        if process.actor.brings:  # from another branch, where it is the same snapshot
            state = self.there[state.id] = self.states.get(state.nonce, state)
            self._moved_to(state, process.actor.brings, noted=process.actor.notes)
            return
        self.states[state.nonce] = state
        process.putting = state
        known = self.history.get(state.nonce)
        lost = None if self.there_again is None else self.there_again[0]
        follows = known is not None and known is lost and head is not None and head.id > known.id
        if known is not None and process.may_expire and (known is head or follows):
            self.there[state.id], self.there_again = known, None
            return
        is_own = known is not None and known.made_by is process
        if is_own and snapshot_path(state.id) in self.late:  # its commit had sent it twice
            self.beside[state.id] = process
            return
        if known is not None and process.may_expire and not process.may_roll_back:
            raise Violation(
                rules.NOTHING_BACK,
                f"{process.name} puts snapshot {state.id} back, not the newest",
            )
        if known is not None and process.may_roll_back:  # a rollback brings back what had expired
            self.there[state.id] = known
            self.beside.pop(state.id, None)
            self._suspect(("snapshot", state.id), known)
            if head is None or (state.id >= head.id and known is not head):
                self._moved_to(
                    known, "rollback"
                )  # expiry had just taken it, or to a tag that is not below
            return
        if process.may_roll_back:
            raise Limit(NO_PART)
        if process.may_expire and process.drops != self.drops:
            raise Limit(EXPIRY_OF_DROPPED)
        if process.drops != self.drops and state.files - self.paths:
            self.beside[state.id] = process
        elif self._continues(state, head):
            self._moved_to(state, "overwrite")
        elif before is not None and before is head and before.base == state.base:
            self._moved_to(state, "replaced")
        elif self.there_again is not None and not self.there.keys() - {state.id}:
            raise Limit(NOT_PUT_BACK_YET)
        elif head is not None and state.id > head.id and self._on_beside(state):
            raise Limit(BUILT_ON_SLEEPERS)
        elif self.world.catalog == REST:
            raise Violation(
                NO_VOID, f"{process.name} has the server take snapshot {state.id} beside the line"
            )
        else:
            self.beside[state.id] = process
        self._once(state)

    def _continues(self, state: State, head: State | None) -> bool:
        if head is None:
            return not state.base and (state.id == 1 or not self.there.keys() - {state.id})
        return state.id == head.id + 1 and state.base == frozenset(head.live)

    def _on_beside(self, state: State) -> bool:
        below = self.there.get(state.id - 1)
        return below is not None and below.id in self.beside and state.base == frozenset(below.live)

    def writer_ended(self, process: Process) -> None:
        """A process has ended its work or has died. If its snapshot lies beside the line and is the
        newest that exists, it is the table from now on: a restarted writer may have to live with
        that. The same holds for one that it could not remove, and whose files others have removed
        meanwhile.
        """
        put, process.putting = process.putting, None
        if process.dead or process.error is not None:
            made = [
                one
                for one, (state, maker) in self.tags.items()
                if maker is process and state is put
            ]
            self.unsure.update(made)
        stands = put is not None and put.slept and self.there.get(put.id) is put
        if process.error is not None and put is not None and stands and put.files - self.paths:
            raise Limit(SLEEPER_ENDED)
        lost, expirer = self.there_again or (None, None)
        if (
            lost is not None
            and lost is self.head
            and process is expirer
            and lost.id not in self.there
        ):
            if process.dead or process.error is not None:
                raise Limit(NEVER_PUT_BACK)
            raise Violation(rules.STAYS, f"{process.name} deletes snapshot {lost.id}, the newest")
        if process is expirer:  # it is back, perhaps by another rollback
            lost = self.there_again = None
        newest = max(self.there, default=0)
        if self.beside.get(newest) is process:
            ours = not (process.may_expire or process.actor.kind.startswith("Java"))
            late = snapshot_path(newest) in self.late
            if ours and not late and not process.dead and process.error is None:
                if lost is not None:  # it saw nothing below its snapshot, as after an expiry
                    raise Limit(NOT_PUT_BACK_YET)
                what = (
                    f"{process.name} reports snapshot {newest}, which lies beside the table's line"
                )
                raise Violation(rules.ACKNOWLEDGED, what)
            raise Limit(SLEEPER_ENDED)

    def _check_age(self, state: State, maker: Process) -> None:
        """An expiry of partitions has removed no file that is younger than it is to be."""
        if (
            self.head is None
            or not isinstance(maker.actor, PartitionExpirer)
            or self.world.clocks_jump
        ):
            return
        oldest = self.world.millis + maker.clock.skew - maker.actor.age
        gone = (one.file for name, one in self.head.live.items() if name not in state.live)
        young = [one.file_name for one in gone if (one.creation_time or 0) > oldest]
        if young:
            raise Violation(rules.YOUNG_FILES, f"snapshot {state.id} lacks {young}")

    def _check_overwritten(self, state: State, maker: Process) -> None:
        """An overwrite has left no row that was in its partition."""
        actor = maker.actor
        if self.head is None or not isinstance(actor, Overwriter) or state.commit is None:
            return
        partition = actor.replaced[state.commit]
        left = [
            name
            for name in self.head.live.keys() & state.live.keys()
            if partition is None or state.live[name].partition == partition
        ]
        if left:
            raise Violation(rules.REPLACED, f"snapshot {state.id} still has {sorted(left)}")

    def _moved_to(self, state: State | None, reason: str, *, noted: bool = False) -> None:
        """Another state is the newest. What it lacks was removed. `noted`: by somebody who notes
        which snapshots he removes.
        """
        old = set(self.head.written) if self.head is not None else set()
        new = set(state.written) if state is not None else set()
        if (
            state is not None
            and state.snapshot.commit_kind is CommitKind.COMPACT
            and reason == "overwrite"
            and not self.world.changing
        ):
            check_compaction(self.world, self.head, state)
        if state is not None and self.world.dynamic:
            check_index(self.world, state)
        if state is not None and self.world.vectors:
            check_vectors(self.world, state)
        if state is not None and self.world.deletes:
            check_deletes(self.world, self.head if reason == "overwrite" else None, state)
        if state is not None and self.world.tracked:
            check_row_ids(state)
        if self.world.changing:
            if state is not None:
                check_changed(self.world, self.head, state, is_built=reason == "overwrite")
            self.line.append(state)
        if reason == "overwrite" and state is not None and state.made_by is not None:
            self._check_age(state, state.made_by)
            self._check_overwritten(state, state.made_by)
        if reason == "overwrite" and state is not None and old - new:
            removes = state.snapshot.commit_kind is CommitKind.OVERWRITE or self.world.changing
            if not removes:
                raise Violation(rules.STAYS, f"snapshot {state.id} lacks {sorted(old - new)}")
        elif old - new or reason != "overwrite":
            self.upsets += 1
        before = self.head.tokens() if self.head is not None else frozenset()
        if state is not None and reason in ("overwrite", "replaced"):
            self._follow(state, reason)
        now = state.tokens() if state is not None else frozenset()
        for token in before - now:
            self.taken[token], self.taken_at[token] = reason, self.upsets
            if noted:
                self.noted.add(token)
        for token in now:
            self.taken.pop(token, None)
            self.noted.discard(token)
        if state is not None and not state.order:
            before = self.head.order if self.head is not None else ()
            kept = dict.fromkeys(name for name in before if name in new)
            state.order = tuple(kept | dict.fromkeys(state.written))
        self.head = state
        if state is not None:
            self.history[state.nonce] = state
            self._suspect(("snapshot", state.id), state)

    def _follow(self, state: State, reason: str) -> None:
        """A new snapshot is built on the newest, or on what that was built on, which it replaces."""
        head = self.head
        below = head.commits if head is not None else frozenset()
        if reason == "replaced" and head is not None and head.commit is not None:
            below -= {head.commit}
        check_once(self.world, state, below - self.excused)
        state.commits = below if state.commit is None else below | {state.commit}

    def _gone(self, process: Process, snapshot_id: int) -> None:
        state = self.there.pop(snapshot_id, None)
        if state is None or process.actor.brings == BRANCH:
            return
        if process.may_expire and process.drops != self.drops:
            raise Limit(EXPIRY_OF_DROPPED)
        state.rolled_back = process.may_roll_back and not process.may_expire
        keeps = process.may_expire or process.may_roll_back
        if not keeps and state.made_by is not process and self.upsets > process.upsets:
            raise Limit(SLEEPER_REMOVED_ANOTHER)
        if self.beside.pop(snapshot_id, None) is not None:
            self.upsets += 1
            self.last_void = self.upsets
            self.voided.update(dict.fromkeys(state.tokens(), self.upsets))
            return
        if self.head is state:
            counted = process.may_expire and self.last_void > process.upsets
            if counted or any(one > snapshot_id for one in self.beside):
                raise Limit(SLEEPER_COUNTED)
            if process.may_expire and not process.may_roll_back:
                if state.upsets > process.upsets:
                    raise Limit(EXPIRY_SLEPT)
                self.there_again = state, process  # it looks again, and must put it back
                return
            voided = state.made_by is process and process.busy
            if not (process.may_roll_back or voided):
                raise Violation(
                    rules.STAYS, f"{process.name} deletes snapshot {state.id}, the newest"
                )
            line = [one for one in self.there if one not in self.beside and one < snapshot_id]
            newest = self.there[max(line)] if line else None
            self._moved_to(newest, "rollback", noted=process.actor.notes)
        elif process.may_roll_back:
            return  # it began to remove the newest before others went on
        elif not process.may_expire and state.made_by is process:
            raise Limit(SLEEPER_REMOVED_BASE)
        elif any(one < snapshot_id for one in self.there if one not in self.beside):
            pinned = any(is_pin(path.removeprefix("tag/tag-")) for path in self.tags)
            if process.may_expire and (self.upsets > process.upsets or pinned):
                raise Limit(EXPIRY_SLEPT)
            raise Violation(
                rules.CONTINUOUS,
                f"{process.name} deletes {snapshot_id} of {sorted(self.there)}",
            )
        elif not process.may_expire:
            raise Violation(
                rules.STAYS, f"{process.name} deletes snapshot {snapshot_id} of the line"
            )

    def _once(self, state: State) -> None:
        """No batch is in a snapshot twice."""
        if len(set(state.written)) < len(state.written):
            raise Violation(rules.ONCE, f"snapshot {state.id} has {sorted(state.written)}")
        seen: dict[Token, str] = {}
        for name in state.written:
            token, attempt = token_of(name), name.partition(".")[0]
            if (
                token is not None
                and seen.get(token, attempt) != attempt
                and token not in self.excused
            ):
                if any(is_pin(path.removeprefix("tag/tag-")) for path in self.tags):
                    raise Limit(ROLLBACK_UNDER_WAY)
                if token not in self.acked and any(
                    getattr(one.actor, "replaces", False) for one in self.beside.values()
                ):
                    raise Limit(REPLACED_BELOW)
                twice = [one for one in state.written if token_of(one) == token]
                raise Violation(rules.ONCE, f"snapshot {state.id} has {twice}")
            if token is not None:
                seen[token] = attempt

    # -- tags, branches ---------------------------------------------------------------------------

    def _tag(self, process: Process, verb: str, path: str) -> None:
        self.suspects.pop(("tag", path), None)
        if verb == "delete":
            self.tags.pop(path, None)
        else:
            state = self.state_at(path)
            original = self.states.get(state.nonce)
            if original is not None:
                state = original
            self.tags[path] = (state, process)
            process.putting = state
            self._suspect(("tag", path), state)

    def _branch(self, verb: str, path: str) -> None:
        if verb == "delete":
            self.branches.pop(path, None)
        elif "snapshot-" in path or "/tag-" in path:
            self.branches[path] = self.state_at(path)

    # -- files ------------------------------------------------------------------------------------

    def roots(self) -> Iterable[tuple[tuple[str, object], State]]:
        """Everything that must be readable whole."""
        for one, state in self.there.items():
            if one not in self.beside:
                yield ("snapshot", one), state
        for path, (state, _) in self.tags.items():
            yield ("tag", path), state
        for path, state in self.branches.items():
            yield ("branch", path), state

    def check_whole(self) -> None:
        """Every snapshot of the line, every tag and every branch is readable whole."""
        if self.suspects:
            roots = dict(self.roots())
            self.suspects = {
                key: state
                for key, state in self.suspects.items()
                if roots.get(key) is state and not is_whole(self, key, state)
            }

    def _suspect(self, key: tuple[str, object], state: State) -> None:
        self.suspects[key] = state

    def _suspect_users_of(self, process: Process, path: str) -> None:
        slept = (
            process.done == 1 and "tagger" in process.actor.kind and self.upsets > process.upsets
        )
        for key, state in self.roots():
            if path in state.files:
                if slept and key[0] == "snapshot":  # it slept between its look and this
                    raise Limit(TAG_DELETER_SLEPT)
                self._suspect(key, state)


def _is_snapshot(path: str) -> bool:
    """Whether this is the file of a snapshot, of the table or of a branch."""
    above, _, name = path.rpartition("/")
    return above.endswith("snapshot") and id_in_name(name, "snapshot-") is not None
