"""Verifies a table: compares everything that its snapshots and tags state with what exists.

Invariants: nothing is written. Everything broken becomes a finding with a stable code, never an
exception; only a failing storage raises. Snapshots that expire or are rolled back during the check
are skipped. Every manifest is read once (the newest snapshot's once more), every folder is listed
once, and data files are opened only for the sample. The memory needed is a few dozen bytes for each
manifest entry. The texts in entries are not kept. The other modules of this folder check the
different parts of a table.
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
from paimon_stream.verify.findings import RESTORE, RESTORE_OR_DROP, Findings, VerifyReport
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
from paimon_stream.verify.manifests import CheckedTable, ManifestSummary, SampleCandidates
from paimon_stream.verify.newest import (
    check_hash_index,
    check_index,
    check_newest,
    check_statistics,
)
from paimon_stream.verify.sample import Sampled, check_sample

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
    snapshot_roots = [root for root in roots if not root.is_tag]
    check_consumers(storage, [root.snapshot.id for root in snapshot_roots], findings)
    check_journals(table, roots, findings)
    inventory = Inventory.of(storage, table.layout, progress)
    findings.checked["files"] = len(inventory)
    candidates = SampleCandidates(sample, (runtime or system()).rng)
    checked = CheckedTable(
        table=table,
        findings=findings,
        inventory=inventory,
        schema_ids=schema_ids,
        candidates=candidates,
    )
    newest_roots = snapshot_roots[-1:]
    history = _HistoryCheck(
        checked=checked,
        tagged=frozenset(root.snapshot.nonce for root in roots if root.is_tag),
        index=next((root.snapshot.index_manifest for root in newest_roots), None),
    )
    live = history.check(roots, progress)
    history.check_changelogs()
    check_newest(table, sample, findings)
    for newest in newest_roots:
        sampled: Sampled = {}
        if live is not None and sample:
            sampled = check_sample(checked, newest.snapshot, live, progress)
        check_hash_index(newest, checked, sampled)
    return findings.report(storage.location)


class _State(NamedTuple):
    """The facts that are known after a snapshot was checked.

    Attributes:
        names: the names of the snapshot's manifests, in order.
        live: the identities of the snapshot's live files.
        summaries: the summaries of the snapshot's manifests.
    """

    names: tuple[str, ...]
    live: Longs
    summaries: list[ManifestSummary]


@dataclass(slots=True, kw_only=True)
class _HistoryCheck:
    """Checks all snapshots and tags one after the other, and follows the live files from one to the
    next.

    Attributes:
        checked: the checked table, which has the manifests.
        tagged: the nonces of the tagged snapshots.
        index: the index manifest of the newest snapshot.
        reported: the identities of files that were found to be added twice, or deleted without
            having been added.
    """

    checked: CheckedTable
    tagged: frozenset[str]
    index: str | None
    reported: set[int] = field(default_factory=set)

    @property
    def findings(self) -> Findings:
        """The collector to which findings are added at present (`_while_there`)."""
        return self.checked.findings

    def check(self, roots: Sequence[CheckedRoot], progress: Progress) -> Longs | None:
        """Checks everything. Returns the live files of the newest snapshot; None if they are
        unknown.
        """
        state: _State | None = None
        newest: _State | None = None
        before: int | None = None
        for done, root in enumerate(roots):
            if done % AT_ONCE == 0:
                self.checked.ahead.forget()
                snapshots = [ahead.snapshot for ahead in roots[done : done + AT_ONCE]]
                expect_manifests(self.checked.ahead, snapshots, self.checked.summaries)
            if root.is_tag or before != root.snapshot.id - 1:
                state = None  # a merge can be judged only against the snapshot before
            state = self._while_there(root, partial(self._check_root, root, state))
            if not root.is_tag:
                newest = state
                before = root.snapshot.id
            progress("snapshots", done + 1, len(roots))
        if newest is None:
            return None
        line = [root for root in roots if not root.is_tag]
        self._check_bucket_counts(line[-1], newest.summaries)
        self._check_sequences(newest.summaries, newest.live)
        return newest.live

    def check_changelogs(self) -> None:
        """Checks that the changes of long-lived changelogs exist. The changes may be files in the
        delta list of a changelog.
        """
        for root in read_numbered(self.checked.storage, CHANGELOG_FOLDER, self.findings):
            with_changes = self._with_changes(root)
            if with_changes is not None:
                self._while_there(with_changes, partial(self._check_changelog, with_changes))

    def _with_changes(self, changelog: CheckedRoot) -> CheckedRoot | None:
        """A long-lived changelog whose changelog list names its changes. If the changelog has no
        such list, its delta list is used instead. None if the snapshot has no changelog list and is
        not an APPEND, or if its delta list no longer exists.
        """
        snapshot = changelog.snapshot
        if snapshot.changelog_manifest_list is not None:
            return changelog
        if snapshot.commit_kind is not CommitKind.APPEND:
            return None
        if not self.checked.storage.exists(manifest_path(snapshot.delta_manifest_list)):
            return None
        of_delta = replace(
            snapshot,
            changelog_manifest_list=snapshot.delta_manifest_list,
            changelog_record_count=None,
        )
        return replace(changelog, snapshot=of_delta)

    def _while_there(self, root: CheckedRoot, check: Callable[[], _T]) -> _T | None:
        """Runs a check of a root, and returns its result. If the root has expired in the meantime,
        returns None, and drops the findings of the check.
        """
        known = frozenset(self.checked.summaries)
        outer = self.findings
        findings_of_root = Findings()
        self.checked.findings = findings_of_root
        result: _T | None = check()
        self.checked.findings = outer
        if not findings_of_root.is_empty and not self.checked.storage.exists(root.path):
            findings_of_root.clear()
            self.checked.forget(known)
            result = None
        outer.absorb(findings_of_root)
        return result

    def _check_root(self, root: CheckedRoot, state: _State | None) -> _State | None:
        """Checks a snapshot or tag. `state` has the facts that are known after the previous
        snapshot. Returns the facts that are known after this one; None if some of its manifests
        cannot be read.
        """
        snapshot = root.snapshot
        if snapshot.schema_id not in self.checked.schema_ids:
            path = f"schema/schema-{snapshot.schema_id}"
            root.broken(
                self.findings,
                "schema-missing",
                f"The schema {path} is missing.",
                path,
                "Restore the schema file from a backup.",
            )
        check_statistics(root, self.checked)
        check_index(root, self.checked, self.index)
        base_metas = self._list(root, snapshot.base_manifest_list, snapshot.base_manifest_list_size)
        delta_metas = self._list(
            root, snapshot.delta_manifest_list, snapshot.delta_manifest_list_size
        )
        self._check_changelog(root)
        if base_metas is None or delta_metas is None:
            return None
        base = self._summaries(base_metas, root)
        delta = self._summaries(delta_metas, root)
        if base is None or delta is None:
            return None
        self._check_counts(root, base, delta)
        names = tuple(meta.file_name for meta in base_metas)
        if state is not None and state.names == names:
            after = follow(state.live, [(manifest.ids, manifest.signs) for manifest in delta])
        else:
            after = replay([(manifest.ids, manifest.signs) for manifest in (*base, *delta)])
            self._check_merge(root, state, base)
        self._check_replay(root, after, (*base_metas, *delta_metas))
        self._check_live(root, after.live)
        names_of_delta = tuple(meta.file_name for meta in delta_metas)
        return _State(names=names + names_of_delta, live=after.live, summaries=[*base, *delta])

    def _list(
        self, root: CheckedRoot, name: str, size: int | None
    ) -> tuple[ManifestFileMeta, ...] | None:
        """The manifests in a manifest list; None if the list cannot be read."""
        path = manifest_path(name)
        try:
            data = self.checked.ahead.read(path)
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

    def _summaries(
        self, metas: Sequence[ManifestFileMeta], root: CheckedRoot
    ) -> list[ManifestSummary] | None:
        """The summaries of all manifests; None if at least one manifest cannot be read."""
        manifests = [self.checked.get(meta) for meta in metas]
        for meta, manifest in zip(metas, manifests, strict=True):
            if manifest is None:
                self.findings.needed(manifest_path(meta.file_name), root.snapshot.id, root.tag)
        summaries = [manifest for manifest in manifests if manifest is not None]
        if len(summaries) < len(manifests):
            return None
        return summaries

    def _check_counts(
        self, root: CheckedRoot, base: Sequence[ManifestSummary], delta: Sequence[ManifestSummary]
    ) -> None:
        snapshot = root.snapshot
        added = sum(manifest.net_rows for manifest in delta)
        total = added + sum(manifest.net_rows for manifest in base)
        counts = {
            "delta": (snapshot.delta_record_count, added),
            "total": (snapshot.total_record_count, total),
        }
        for kind, (recorded, counted) in counts.items():
            if recorded != counted:
                self.findings.error(
                    f"{kind}-record-count",
                    f"The {kind} record count of {root.name} is {recorded}; its manifests have "
                    f"{counted}.",
                    root.path,
                    "Counts of this table cannot be trusted; its rows are as its files have them.",
                )

    def _check_changelog(self, root: CheckedRoot) -> None:
        name = root.snapshot.changelog_manifest_list
        recorded = root.snapshot.changelog_record_count
        summaries: list[ManifestSummary] | None = []
        if name is not None:
            # A tag may lack its changelog, and so may a snapshot that a rollback restored from a
            # tag (semantics.md §8).
            is_tagged = root.snapshot.nonce in self.tagged
            if is_tagged and (root.is_tag or not self.checked.storage.exists(manifest_path(name))):
                return
            metas = self._list(root, name, root.snapshot.changelog_manifest_list_size)
            summaries = None
            if metas is not None:
                summaries = self._summaries(metas, root)
        if summaries is None:
            return
        counted = sum(manifest.added_rows for manifest in summaries)
        if recorded is not None and recorded != counted:
            self.findings.error(
                "changelog-record-count",
                f"The changelog record count of {root.name} is {recorded}; its manifests have "
                f"{counted}.",
                root.path,
                "Counts cannot be trusted.",
            )
        added = [manifest.ids[manifest.signs > 0] for manifest in summaries]
        self._check_live(root, np.sort(np.concatenate([NONE, *added])))

    def _check_merge(
        self, root: CheckedRoot, state: _State | None, base: Sequence[ManifestSummary]
    ) -> None:
        """Checks that a merge of manifests did not change which files are live."""
        if state is None:
            return
        merged = replay([(manifest.ids, manifest.signs) for manifest in base]).live
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
        """Checks that each file was added once, and that it was deleted only after that."""
        # A file that was added twice has two entries or more in the manifests.
        for name in self._unreported(after.twice, metas, at_least=2):
            self.findings.error(
                "duplicate-add",
                f"File {name} is added twice as of {root.name}: its rows exist twice.",
                root.path,
                "Roll the table back to the snapshot before the second commit. Java fails when it "
                "next merges manifests.",
            )
        for name in self._unreported(after.dangling, metas, at_least=1):
            self.findings.error(
                "delete-without-add",
                f"File {name} is deleted as of {root.name}, but was never added.",
                root.path,
                "Roll the table back to the snapshot before it.",
            )

    def _unreported(
        self, ids: Longs, metas: Sequence[ManifestFileMeta], *, at_least: int
    ) -> list[str]:
        """The first few names that were not reported before. Only files that occur in the manifests
        at least `at_least` times count. `ids` are the hashes of the identities of the files.
        """
        fresh = [int(identity) for identity in ids if int(identity) not in self.reported]
        self.reported.update(fresh)
        if not fresh:
            return []
        return self.checked.names(fresh, metas, at_least=at_least)[:_SHOWN]

    def _check_live(self, root: CheckedRoot, live: Longs) -> None:
        """Checks that live files exist with the right sizes."""
        wrong_files = self.checked.wrong_files
        if not wrong_files:
            return
        ids = np.fromiter(wrong_files, dtype=np.int64, count=len(wrong_files))
        for identity in ids[np.isin(ids, live)].tolist():
            wrong = wrong_files[identity]
            if wrong.present is None:
                root.broken(
                    self.findings,
                    "file-missing",
                    f"File {wrong.path} does not exist.",
                    wrong.path,
                    RESTORE_OR_DROP,
                )
            else:
                root.broken(
                    self.findings,
                    "file-size",
                    f"File {wrong.path} has {wrong.present} bytes; its manifest says "
                    f"{wrong.expected}.",
                    wrong.path,
                    RESTORE,
                )

    def _check_bucket_counts(self, root: CheckedRoot, summaries: Sequence[ManifestSummary]) -> None:
        """Checks that all files of a partition were written for the same number of buckets."""
        totals: Counter[tuple[bytes, int]] = Counter()
        for manifest in summaries:
            totals.update(manifest.totals)
        counts: dict[bytes, set[int]] = {}
        for (partition, total), files in totals.items():
            if files > 0 and not (total == POSTPONE_BUCKET and self.checked.table.is_postponed):
                counts.setdefault(partition, set()).add(total)
        for partition, bucket_counts in counts.items():
            if len(bucket_counts) > 1:
                where = self.checked.table.layout.partition(partition) or "the table"
                repair = "Overwrite the partition."
                if POSTPONE_BUCKET in bucket_counts:
                    repair = "Compact the table."
                self.findings.error(
                    "bucket-counts-differ",
                    f"{where} has files written for {sorted(bucket_counts)} buckets: a key may be "
                    "in two of them.",
                    root.path,
                    repair,
                )

    def _check_sequences(self, summaries: Sequence[ManifestSummary], live: Longs) -> None:
        """Checks the sequence numbers of level-0 files. Of any two such files of a bucket, one must
        be entirely newer than the other (semantics.md R6.2).
        """
        # The columns are identity, bucket, lowest and highest number (`ManifestSummary.ranges`).
        ranges = np.concatenate(
            [np.empty((0, 4), np.int64), *(manifest.ranges for manifest in summaries)]
        )
        has_numbers = ranges[:, 3] >= 0  # files that wait have no numbers
        ranges = ranges[np.isin(ranges[:, 0], live) & has_numbers]
        ranges = ranges[np.lexsort((ranges[:, 2], ranges[:, 1]))]
        same = ranges[1:, 1] == ranges[:-1, 1]
        overlapping = same & (ranges[1:, 2] <= ranges[:-1, 3])
        for group in np.unique(ranges[1:][overlapping][:, 1]).tolist():
            folder = self.checked.folders.by_hash[group]
            self.findings.warning(
                "sequence-overlap",
                f"Files of {folder} have sequence numbers in common: two writers wrote it at once.",
                folder,
                "It is then chance which row of a key wins. Let one writer write a bucket; "
                "compact it.",
            )
