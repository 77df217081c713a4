"""Lists all declared options."""

from types import ModuleType
from typing import Any

from paimon_stream.options import of_compaction, of_merging, of_sinks, of_stores, of_tables, of_unsupported_features
from paimon_stream.options.option import Option


def table_options() -> tuple[Option[Any], ...]:
    """All declared table options."""
    modules = (of_tables, of_compaction, of_unsupported_features, of_merging)
    return tuple(one for module in modules for one in _declared(module))


def compaction_options() -> tuple[Option[Any], ...]:
    """All declared options of compactions, which are table options, too."""
    return _declared(of_compaction)


def sink_options() -> tuple[Option[Any], ...]:
    """All declared sink options."""
    return _declared(of_sinks) + store_options()


def store_options() -> tuple[Option[Any], ...]:
    """All declared options for object stores, which are sink options, too."""
    return _declared(of_stores)


def _declared(module: ModuleType) -> tuple[Option[Any], ...]:
    return tuple(one for one in vars(module).values() if isinstance(one, Option))
