"""What verification finds: values, and the one place where they are gathered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

__all__ = ["Finding", "Findings", "Severity", "VerifyReport"]

Severity: TypeAlias = Literal["error", "warning", "info"]
_ORDER: Final = {"error": 0, "warning": 1, "info": 2}
_MOST_OF_A_KIND: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be. `code` is stable, `path` is relative to the table (None where
    it is about no single file), `cure` says what to do. An error loses data or makes an engine fail."""

    severity: Severity
    code: str
    message: str
    path: str | None
    cure: str

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "severity": self.severity,
            "code": self.code,
            "message": self.message,
            "path": self.path,
            "cure": self.cure,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What was found, errors first, and how much was looked at (snapshots, manifests, files, rows …).
    Of each code at most a hundred findings are kept; `omitted` counts the others."""

    table: str
    findings: tuple[Finding, ...]
    checked: Mapping[str, int]
    omitted: Mapping[str, int] = field(default_factory=dict)

    @property
    def healthy(self) -> bool:
        """Whether there is no error; warnings do not count."""
        return not any(one.severity == "error" for one in self.findings)

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "table": self.table,
            "healthy": self.healthy,
            "findings": [one.to_json() for one in self.findings],
            "checked": dict(self.checked),
            "omitted": dict(self.omitted),
        }


@dataclass(slots=True)
class Findings:
    """Gathers findings and counts. The same finding is kept once."""

    checked: Counter[str] = field(default_factory=Counter)
    _kept: dict[tuple[str, str | None, str], Finding] = field(default_factory=dict)
    _by_code: Counter[str] = field(default_factory=Counter)

    def error(self, code: str, message: str, path: str | None, cure: str) -> None:
        """Something that loses data, or on which an engine fails."""
        self._add("error", code, message, path, cure)

    def warning(self, code: str, message: str, path: str | None, cure: str) -> None:
        """Something that may become an error, or a sign of one."""
        self._add("warning", code, message, path, cure)

    def info(self, code: str, message: str, path: str | None, cure: str) -> None:
        """Something worth knowing."""
        self._add("info", code, message, path, cure)

    def _add(self, severity: Severity, code: str, message: str, path: str | None, cure: str) -> None:
        key = (code, path, message)
        if key in self._kept:
            return
        self._by_code[code] += 1
        if self._by_code[code] <= _MOST_OF_A_KIND:
            self._kept[key] = Finding(severity=severity, code=code, message=message, path=path, cure=cure)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found."""
        return not self._kept

    def absorb(self, other: Findings) -> None:
        """Takes over what another one gathered."""
        self.checked.update(other.checked)
        for one in other._kept.values():
            self._add(one.severity, one.code, one.message, one.path, one.cure)
        kept = Counter(one.code for one in other._kept.values())
        self._by_code.update(other._by_code - kept)

    def clear(self) -> None:
        """Forgets what was found, not what was counted."""
        self._kept.clear()
        self._by_code.clear()

    def report(self, table: str) -> VerifyReport:
        """All of it."""
        found = sorted(self._kept.values(), key=lambda one: _ORDER[one.severity])
        omitted = {c: n - _MOST_OF_A_KIND for c, n in self._by_code.items() if n > _MOST_OF_A_KIND}
        return VerifyReport(table=table, findings=tuple(found), checked=dict(self.checked), omitted=omitted)
