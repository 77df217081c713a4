"""The findings of verification: their values, and the one place where they are collected."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from paimon_stream.errors import first_few
from paimon_stream.reports import Report
from paimon_stream.table.layout import PIN_PREFIX

RESTORE: Final = "Restore the file from a backup, or roll the table back to a snapshot or tag that does not use it."
RESTORE_OR_DROP: Final = f"{RESTORE} If there is no copy of a data file, drop_lost_files() makes the table whole without its rows."
REBUILD: Final = "Run `paimon-stream rebuild-index TABLE --yes`, which rebuilds the hash index from the data files."
REBUILD_LATER: Final = (
    "Nothing, unless you roll back to there: then run `paimon-stream rebuild-index TABLE --yes`."
)
Severity: TypeAlias = Literal["error", "warning", "info"]
_ORDER: Final = {"error": 0, "warning": 1, "info": 2}
_MOST_OF_A_KIND: Final = 100
"""How many findings of one code are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Report):
    """One problem. `code` is stable. `path` is relative to the table; it is None if the problem
    does not concern a single file. `cure` says what to do. An error loses data or makes an engine
    fail. `snapshots` (ranges of ids, first and last) and `tags` (names) are the ones that need the
    file.
    """

    severity: Severity
    code: str
    message: str
    path: str | None
    cure: str
    snapshots: tuple[tuple[int, int], ...] = ()
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport(Report):
    """The findings, errors first, and how much was checked (snapshots, manifests, files, rows, …).
    At most a hundred findings of each code are kept; `omitted` counts the others.
    """

    also_in_json = ("healthy",)

    location: str
    findings: tuple[Finding, ...]
    checked: Mapping[str, int]
    omitted: Mapping[str, int] = field(default_factory=dict)

    @property
    def healthy(self) -> bool:
        """Whether there is no error; warnings do not count."""
        return not any(finding.severity == "error" for finding in self.findings)


@dataclass(slots=True)
class _Needs:
    """The snapshots (as ranges of ids) and the tags that need a file."""

    snapshots: list[tuple[int, int]] = field(default_factory=list)
    tags: dict[str, None] = field(default_factory=dict)

    def add(self, first: int, last: int) -> None:
        """Adds snapshots. Calls must come in ascending order of the ids."""
        if self.snapshots and first <= self.snapshots[-1][1] + 1:
            self.snapshots[-1] = (self.snapshots[-1][0], max(last, self.snapshots[-1][1]))
        else:
            self.snapshots.append((first, last))

    def sentence(self) -> str:
        ranges = list(map(_range_in_words, self.snapshots))
        tags = first_few(list(map(repr, self.tags)))
        named = []
        if len(ranges) == 1 and self.snapshots[0][0] == self.snapshots[0][1]:
            named.append(f"snapshot {ranges[0]}")
        elif ranges:
            named.append(f"snapshots {first_few(ranges)}")
        if len(self.tags) == 1:
            named.append(f"tag {tags}")
        elif self.tags:
            named.append(f"tags {tags}")
        return f" Needed by {' and '.join(named)}."


def _range_in_words(ids: tuple[int, int]) -> str:
    first, last = ids
    if first == last:
        return str(first)
    return f"{first} to {last}"


@dataclass(slots=True)
class Findings:
    """Collects findings and counts. Equal findings are kept once, with all snapshots and tags that
    they concern.
    """

    checked: Counter[str] = field(default_factory=Counter)
    """How much was checked, by kind (snapshots, manifests, files, …)."""
    _kept: dict[tuple[str, str | None, str], Finding] = field(default_factory=dict)
    """The findings by code, path and message."""
    _omitted: dict[int, str] = field(default_factory=dict)
    """The codes of findings beyond the limit of their code, by the hash of the same key."""
    _by_code: Counter[str] = field(default_factory=Counter)
    """How many findings of each code are kept."""
    _needs: dict[str, _Needs] = field(default_factory=dict)
    """Who needs a file, by its path."""

    def error(self, code: str, message: str, path: str | None, cure: str) -> None:
        """Adds a problem that loses data or makes an engine fail."""
        self._add(Finding(severity="error", code=code, message=message, path=path, cure=cure))

    def warning(self, code: str, message: str, path: str | None, cure: str) -> None:
        """Adds a problem that may become an error, or that is a sign of an error."""
        self._add(Finding(severity="warning", code=code, message=message, path=path, cure=cure))

    def info(self, code: str, message: str, path: str | None, cure: str) -> None:
        """Adds a fact that is worth knowing."""
        self._add(Finding(severity="info", code=code, message=message, path=path, cure=cure))

    def needed(self, path: str, snapshot_id: int, tag: str | None) -> None:
        """Records that a tag needs the file, or that a snapshot needs it if `tag` is None.
        Snapshots must come in ascending order.
        """
        needs = self._needs.setdefault(path, _Needs())
        if tag is None:
            needs.add(snapshot_id, snapshot_id)
        else:
            needs.tags[tag] = None

    def _add(self, finding: Finding) -> None:
        key = (finding.code, finding.path, finding.message)
        if key in self._kept or hash(key) in self._omitted:
            if key in self._kept and _ORDER[finding.severity] < _ORDER[self._kept[key].severity]:
                self._kept[key] = finding  # it may be worse for another snapshot
            return
        if self._by_code[finding.code] < _MOST_OF_A_KIND:
            self._by_code[finding.code] += 1
            self._kept[key] = finding
        else:
            self._omitted[hash(key)] = finding.code

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found."""
        return not self._kept

    def absorb(self, collector: "Findings") -> None:
        """Takes over everything that another collector has."""
        self.checked.update(collector.checked)
        for finding in collector._kept.values():
            self._add(finding)
        known = {hash(key) for key in self._kept} if collector._omitted else set()
        self._omitted.update(
            (key, code) for key, code in collector._omitted.items() if key not in known
        )
        kept = {finding.path for finding in self._kept.values()} if collector._needs else set()
        for path, needs in collector._needs.items():
            # If a finding is not kept, the snapshots and tags that it concerns are not needed.
            if path in kept:
                kept_needs = self._needs.setdefault(path, _Needs())
                kept_needs.tags.update(needs.tags)
                for first, last in needs.snapshots:
                    kept_needs.add(first, last)

    def clear(self) -> None:
        """Forgets the findings, but not the counts."""
        self._kept.clear()
        self._omitted.clear()
        self._by_code.clear()
        self._needs.clear()

    def report(self, table: str) -> VerifyReport:
        """The report of everything that was collected."""
        findings = sorted(
            map(self._shown, self._kept.values()), key=lambda finding: _ORDER[finding.severity]
        )
        omitted = dict(Counter(self._omitted.values()))
        return VerifyReport(
            location=table, findings=tuple(findings), checked=dict(self.checked), omitted=omitted
        )

    def _shown(self, finding: Finding) -> Finding:
        """The finding with the snapshots and tags that need its file."""
        needs = None if finding.path is None else self._needs.get(finding.path)
        if needs is None:
            return finding
        # The tag of a rollback that is under way must not be deleted by hand.
        tags = [name for name in needs.tags if not name.startswith(PIN_PREFIX)]
        message = finding.message + needs.sentence()
        cure = finding.cure
        if tags and not needs.snapshots:
            cure += " Only tags need it: to delete them with delete_tag() helps, too."
        return replace(
            finding,
            message=message,
            cure=cure,
            snapshots=tuple(needs.snapshots),
            tags=tuple(needs.tags),
        )
