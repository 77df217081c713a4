"""Reports as JSON: all with the same keys, the table first."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

__all__ = ["report_json"]


def report_json(report: Any) -> dict[str, Any]:
    """The fields of a report, as values for JSON. A report is a dataclass with `location`, which becomes
    `table`."""
    found = {one.name: _plain(getattr(report, one.name)) for one in dataclasses.fields(report)}
    return {"table": found.pop("location"), **found}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value
