"""Lists all declared options."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from paimon_stream.options import of_sinks, of_tables
from paimon_stream.options.option import Option, Scope

__all__ = ["sink_options", "table_options"]


def table_options() -> tuple[Option[Any], ...]:
    """All declared table options."""
    return _declared(of_tables, Scope.TABLE)


def sink_options() -> tuple[Option[Any], ...]:
    """All declared sink options."""
    return _declared(of_sinks, Scope.SINK)


def _declared(module: ModuleType, scope: Scope) -> tuple[Option[Any], ...]:
    return tuple(one for one in vars(module).values() if isinstance(one, Option) and one.scope is scope)
