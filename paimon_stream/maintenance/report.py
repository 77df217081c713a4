"""What all reports of maintenance have in common: their JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

__all__ = ["Report"]


class Report:
    """A dataclass with a form for JSON."""

    __slots__ = ()

    also_in_json: ClassVar[tuple[str, ...]] = ()
    """The properties that the JSON has in addition to the fields."""

    def to_json(self) -> dict[str, Any]:
        """The report as values for JSON. The table's location, if there is one, comes first, as `table`."""
        fields: Any = self
        names = (*(one.name for one in dataclasses.fields(fields)), *self.also_in_json)
        return {("table" if name == "location" else name): _plain(getattr(self, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Report):
        return value.to_json()
    return dict(value) if isinstance(value, Mapping) else value
