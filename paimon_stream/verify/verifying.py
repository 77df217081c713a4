"""Verifying a table: everything that its snapshots and tags state is compared with what exists.

Invariants: nothing is written. Everything broken becomes a finding with a stable code, never an
exception; only a failing storage raises. Snapshots that expire or are rolled back meanwhile are
skipped. Every manifest is read once (the newest snapshot's once more), every folder is listed once,
and data files are opened only for the sample. Memory: a few dozen bytes per manifest entry, none
for their texts. The other modules of this folder have the checks of their parts.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple, TypeVar

import numpy as np

from paimon_stream.errors import FormatError, NotFound, UnsupportedFeature
from paimon_stream.format.entries import ManifestFileMeta
from paimon_stream.format.manifest_avro import decode_manifest_list
from paimon_stream.format.names import POSTPONE_BUCKET
from paimon_stream.format.snapshot_json import CommitKind
from paimon_stream.options import Arguments
from paimon_stream.reports import Progress, silent
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.together import AT_ONCE
from paimon_stream.table.layout import CHANGELOG_FOLDER, manifest_path
from paimon_stream.table.manifests import expect_manifests
from paimon_stream.table.table import Table
from paimon_stream.verify.files import NONE, Inventory, Longs, Replayed, follow, replay
from paimon_stream.verify.findings import RESTORE, Findings, VerifyReport
from paimon_stream.verify.history import (
    CheckedRoot,
    check_consumers,
    check_hints,
    check_identifiers,
    check_journals,
    check_line,
    check_pins,
    check_schemas,
    read_numbered,
    read_roots,
)
from paimon_stream.verify.manifests import ManifestFacts, Shelf
from paimon_stream.verify.newest import (
    check_hash_index,
    check_index,
    check_newest,
    check_statistics,
)
from paimon_stream.verify.sample import check_sample

DEFAULT_SAMPLE: Final = 10
"""The number of data files that are read by default."""

_T = TypeVar("_T")
_SHOWN: Final = 20


def verify(
    table: Table,
    *,
    sample: int = DEFAULT_SAMPLE,
    progress: Progress = silent,
    runtime: Runtime | None = None,
) -> VerifyReport:
    """Checks that all snapshots, tags, lists and manifests of the table are consistent. `sample`
    data files, drawn at random from the newest snapshot, are read in full. Raises `InvalidOption`
    for a negative number, and `StorageError`.
    """
    storage = table.storage
    findings = Findings()
    sample = Arguments(table.location).whole("sample", sample, least=0)
    roots = read_roots(storage, findings)
    schema_ids = check_schemas(storage, findings)
    check_line(roots, findings)
    check_pins(storage, findings)
    check_identifiers(roots, findings)
    check_hints(storage, findings)
    check_consumers(storage, [root.snapshot.id for root in roots if not root.is_tag], findings)
    check_journals(table, roots, findings)
    inventory = Inventory(storage)
    findings.checked["files"] = inventory.take(table.layout, progress)
    rng = (runtime or system()).rng
    shelf = Shelf(
        table=table,
        findings=findings,
        inventory=inventory,
        schema_ids=schema_ids,
        rng=rng,
        sample=sample,
    )
    history = _HistoryCheck(shelf=shelf)
    live = history.check(roots, progress)
    history.check_changelogs()
    check_newest(table, sample, findings)
    if live is not None and sample:
        check_sample(shelf, live, progress)
    for newest in [root for root in roots if not root.is_tag][-1:]:
        check_hash_index(newest, shelf)
    return findings.report(storage.location)


class _State(NamedTuple):
    """The live files after a snapshot: its manifests by name, and the identities."""

    names: tuple[str, ...]
    live: Longs


@dataclass(slots=True, kw_only=True)
class _HistoryCheck:
    """Goes through snapshots and tags, and keeps the live files of the last one."""

    shelf: Shelf
    reported: set[int] = field(default_factory=set)
    facts: list[ManifestFacts] | None = None  # of the last snapshot; None if they are unknown
    tagged: frozenset[str] = frozenset()  # nonces
    index: str | None = None  # the newest snapshot's index manifest

    @property
    def findings(self) -> Findings:
        return self.shelf.findings

    def check(self, roots: Sequence[CheckedRoot], progress: Progress) -> Longs | None:
        """Checks everything. Returns the live files of the newest snapshot, None if they are
        unknown.
        """
        self.tagged = frozenset(root.snapshot.nonce for root in roots if root.is_tag)
        self.index = next(
            (root.snapshot.index_manifest for root in reversed(roots) if not root.is_tag), None
        )
        state: _State | None = None
        newest: Longs | None = None
        before: int | None = None
        for done, root in enumerate(roots):
            if done % AT_ONCE == 0:
                self.shelf.ahead.forget()
                snapshots = [root.snapshot for root in roots[done : done + AT_ONCE]]
                expect_manifests(self.shelf.ahead, snapshots, self.shelf.facts)
            follows = (
                not root.is_tag and before == root.snapshot.id - 1
            )  # only then can a merge be judged
            state = self._while_there(root, partial(self._root, root, state if follows else None))
            if not root.is_tag:
                newest = None if state is None else state.live
                before = root.snapshot.id
            progress("snapshots", done + 1, len(roots))
        line = [root for root in roots if not root.is_tag]
        if line and newest is not None and self.facts is not None:
            self._check_bucket_counts(line[-1], self.facts)
            self._check_sequences(self.facts, newest)
        return newest

    def check_changelogs(self) -> None:
        """Checks that what long-lived changelogs need exists: their changes, which may be the files
        of their delta.
        """
        for root in read_numbered(self.shelf.storage, CHANGELOG_FOLDER, self.findings):
            changelog = root.snapshot
            if changelog.changelog_manifest_list is None:
                delta = manifest_path(changelog.delta_manifest_list)
                if changelog.commit_kind is not CommitKind.APPEND or not self.shelf.storage.exists(
                    delta
                ):
                    # it changed no row, or the table has its changes in the changelogs of other
                    # snapshots
                    continue
                changelog = replace(
                    changelog,
                    changelog_manifest_list=changelog.delta_manifest_list,
                    changelog_record_count=None,
                )
                root = replace(root, snapshot=changelog)
            self._while_there(root, partial(self._check_changelog, root))

    def _while_there(self, root: CheckedRoot, check: Callable[[], _T]) -> _T | None:
        """What a check returns. If the root has expired meanwhile, that is None, and nothing was
        found.
        """
        known = frozenset(self.shelf.facts)
        outer = self.findings
        findings_of_root = Findings()
        self.shelf.findings = findings_of_root
        result: _T | None = check()
        self.shelf.findings = outer
        if not findings_of_root.is_empty and not self.shelf.storage.exists(root.path):
            findings_of_root.clear()
            self.shelf.forget(known)
            result = None
        outer.absorb(findings_of_root)
        return result

    def _root(self, root: CheckedRoot, state: _State | None) -> _State | None:
        snapshot = root.snapshot
        if snapshot.schema_id not in self.shelf.schema_ids:
            path = f"schema/schema-{snapshot.schema_id}"
            root.broken(
                self.findings,
                "schema-missing",
                f"The schema {path} is missing.",
                path,
                "Restore the schema file from a backup.",
            )
        check_statistics(root, self.shelf)
        check_index(root, self.shelf, self.index)
        base_metas = self._list(root, snapshot.base_manifest_list, snapshot.base_manifest_list_size)
        delta_metas = self._list(
            root, snapshot.delta_manifest_list, snapshot.delta_manifest_list_size
        )
        self._check_changelog(root)
        if base_metas is None or delta_metas is None:
            return None
        base = self._facts(base_metas, root)
        delta = self._facts(delta_metas, root)
        if base is None or delta is None:
            return None
        if not root.is_tag:
            self.facts = [*base, *delta]
        self._check_counts(root, base, delta)
        names = tuple(meta.file_name for meta in base_metas)
        if state is not None and state.names == names:
            after = follow(state.live, [(facts.ids, facts.signs) for facts in delta])
        else:
            after = replay([(facts.ids, facts.signs) for facts in (*base, *delta)])
            self._check_merge(root, state, base)
        self._check_replay(root, after, (*base_metas, *delta_metas))
        self._check_live(root, after.live)
        return _State(names=(*names, *(meta.file_name for meta in delta_metas)), live=after.live)

    def _list(
        self, root: CheckedRoot, name: str, size: int | None
    ) -> tuple[ManifestFileMeta, ...] | None:
        """The manifests in a list; None if it cannot be read."""
        path = manifest_path(name)
        try:
            data = self.shelf.ahead.read(path)
            metas = tuple(decode_manifest_list(data, path))
        except NotFound:
            root.broken(
                self.findings,
                "list-missing",
                f"Manifest list {path} does not exist.",
                path,
                RESTORE,
            )
            return None
        except (FormatError, UnsupportedFeature) as error:
            root.broken(
                self.findings, "list-broken", f"{path} cannot be read: {error}", path, RESTORE
            )
            return None
        self.findings.checked["lists"] += 1
        if size is not None and len(data) != size:
            root.broken(
                self.findings,
                "list-size",
                f"Manifest list {path} has {len(data)} bytes; its snapshot says {size}.",
                path,
                RESTORE,
            )
        return metas

    def _facts(
        self, metas: Sequence[ManifestFileMeta], root: CheckedRoot
    ) -> list[ManifestFacts] | None:
        """The facts of all manifests; None if one of them cannot be read."""
        looked_up = [self.shelf.get(meta) for meta in metas]
        for meta, manifest in zip(metas, looked_up, strict=True):
            if manifest is None:
                self.findings.needed(manifest_path(meta.file_name), root.snapshot.id, root.tag)
        facts = [manifest for manifest in looked_up if manifest is not None]
        return facts if len(facts) == len(looked_up) else None

    def _check_counts(
        self, root: CheckedRoot, base: Sequence[ManifestFacts], delta: Sequence[ManifestFacts]
    ) -> None:
        snapshot = root.snapshot
        came = sum(facts.net_rows for facts in delta)
        total = came + sum(facts.net_rows for facts in base)
        counts = {
            "delta": (snapshot.delta_record_count, came),
            "total": (snapshot.total_record_count, total),
        }
        for what, (said, counted) in counts.items():
            if said != counted:
                self.findings.error(
                    f"{what}-record-count",
                    f"The {what} record count of {root.name} is {said}; its manifests have "
                    f"{counted}.",
                    root.path,
                    "Counts of this table cannot be trusted; its rows are as its files have them.",
                )

    def _check_changelog(self, root: CheckedRoot) -> None:
        name = root.snapshot.changelog_manifest_list
        said = root.snapshot.changelog_record_count
        tagged = root.snapshot.nonce in self.tagged
        if (
            name is not None
            and tagged
            and (root.is_tag or not self.shelf.storage.exists(manifest_path(name)))
        ):
            # a tag may lack it, and so may a snapshot that a rollback restored from one
            # (semantics.md §8)
            return
        metas = (
            ()
            if name is None
            else self._list(root, name, root.snapshot.changelog_manifest_list_size)
        )
        facts = None if metas is None else self._facts(metas, root)
        if facts is None:
            return
        counted = sum(manifest.added_rows for manifest in facts)
        if said is not None and said != counted:
            self.findings.error(
                "changelog-record-count",
                f"The changelog record count of {root.name} is {said}; its manifests have "
                f"{counted}.",
                root.path,
                "Counts cannot be trusted.",
            )
        self._check_live(
            root,
            np.sort(
                np.concatenate([NONE, *(manifest.ids[manifest.signs > 0] for manifest in facts)])
            ),
        )

    def _check_merge(
        self, root: CheckedRoot, state: _State | None, base: Sequence[ManifestFacts]
    ) -> None:
        """Checks that merging manifests changed no live file."""
        if state is None:
            return
        merged = replay([(facts.ids, facts.signs) for facts in base]).live
        if not np.array_equal(merged, state.live):
            lost = len(np.setdiff1d(state.live, merged))
            gained = len(np.setdiff1d(merged, state.live))
            self.findings.error(
                "merge-changed-files",
                f"Manifests were merged between the snapshot before and {root.name}, and "
                f"{lost} live files were lost and {gained} gained by that.",
                root.path,
                "Roll the table back to the snapshot before.",
            )

    def _check_replay(
        self, root: CheckedRoot, after: Replayed, metas: Sequence[ManifestFileMeta]
    ) -> None:
        roll_back = "Roll the table back to the snapshot before"
        twice = f"is added twice as of {root.name}: its rows exist twice."
        for_twice = f"{roll_back} the second commit. Java fails when it next merges manifests."
        dangling = f"is deleted as of {root.name}, but was never added."
        for code, ids, times, what, cure in (
            ("duplicate-add", after.twice, 2, twice, for_twice),
            ("delete-without-add", after.dangling, 1, dangling, f"{roll_back} it."),
        ):
            fresh = [int(identity) for identity in ids if int(identity) not in self.reported]
            self.reported.update(fresh)
            names = self.shelf.names(fresh, metas, at_least=times) if fresh else []
            for name in names[:_SHOWN]:
                self.findings.error(code, f"File {name} {what}", root.path, cure)

    def _check_live(self, root: CheckedRoot, live: Longs) -> None:
        suspects = self.shelf.suspects
        if not suspects:
            return
        ids = np.fromiter(suspects, dtype=np.int64, count=len(suspects))
        for identity in ids[np.isin(ids, live)].tolist():
            suspect = suspects[identity]
            if suspect.present is None:
                root.broken(
                    self.findings,
                    "file-missing",
                    f"File {suspect.path} does not exist.",
                    suspect.path,
                    RESTORE,
                )
            else:
                root.broken(
                    self.findings,
                    "file-size",
                    f"File {suspect.path} has {suspect.present} bytes; its manifest says "
                    f"{suspect.expected}.",
                    suspect.path,
                    RESTORE,
                )

    def _check_bucket_counts(self, root: CheckedRoot, facts: Sequence[ManifestFacts]) -> None:
        totals: Counter[tuple[bytes, int]] = Counter()
        for manifest in facts:
            totals.update(manifest.totals)
        counts: dict[bytes, set[int]] = {}
        for (partition, total), files in totals.items():
            if files > 0 and not (total == POSTPONE_BUCKET and self.shelf.table.is_postponed):
                counts.setdefault(partition, set()).add(total)
        for partition, several in counts.items():
            if len(several) > 1:
                where = self.shelf.table.layout.partition(partition) or "the table"
                cure = (
                    "Compact the table."
                    if POSTPONE_BUCKET in several
                    else "Overwrite the partition."
                )
                self.findings.error(
                    "bucket-counts-differ",
                    f"{where} has files written for {sorted(several)} buckets: a key may be "
                    "in two of them.",
                    root.path,
                    cure,
                )

    def _check_sequences(self, facts: Sequence[ManifestFacts], live: Longs) -> None:
        """Checks that of two level-0 files of a bucket, one is entirely newer than the other
        (semantics.md R6.2).
        """
        ranges = (
            np.concatenate([manifest.ranges for manifest in facts])
            if facts
            else np.empty((0, 4), np.int64)
        )
        ranges = ranges[
            np.isin(ranges[:, 0], live) & (ranges[:, 3] >= 0)
        ]  # files that wait have no numbers
        ranges = ranges[np.lexsort((ranges[:, 2], ranges[:, 1]))]
        same = ranges[1:, 1] == ranges[:-1, 1]
        overlapping = same & (ranges[1:, 2] <= ranges[:-1, 3])
        for group in np.unique(ranges[1:][overlapping][:, 1]).tolist():
            folder = self.shelf.folders[group]
            self.findings.warning(
                "sequence-overlap",
                f"Files of {folder} have sequence numbers in common: two writers wrote it at once.",
                folder,
                "It is then chance which row of a key wins. Let one writer write a bucket; "
                "compact it.",
            )
