"""The options of one read or write by `format("paimon_stream")`, divided by what they concern."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from paimon_stream import options as opt
from paimon_stream.catalogs.filesystem import OF_DATABASE
from paimon_stream.catalogs.metastore import metastore_of
from paimon_stream.catalogs.rest import OF_SERVER
from paimon_stream.errors import InvalidOption
from paimon_stream.options.store_names import recommended_names
from paimon_stream.options.store_options import PREFIXES
from paimon_stream.spark.active_session import in_catalog
from paimon_stream.storage.branch import with_branch
from paimon_stream.storage.location import KIND_OF, scheme_of
from paimon_stream.storage.uri import storage_options_for

_OF_SPARK: Final = frozenset(
    ("checkpointlocation", "queryname", "path", "paths", "owner", "provider", "location")
)
"""Keys that Spark adds for what the user said by other means than `.option`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of one read or write, divided by what they concern.

    Attributes:
        location: the table's folder, with the branch.
        own: options of the read or write itself, and options that Spark adds.
        table: options of the table and the sink.
        storage: options of the storage, with secrets.
    """

    location: str
    own: Mapping[str, str]
    table: Mapping[str, str]
    storage: Mapping[str, str] = field(repr=False)


def divided(
    options: Mapping[str, str],
    own_keys: Iterable[str],
) -> SourceOptions:
    """Divides the options by what they concern.

    Args:
        options: all options, with keys in lower case, as Spark passes them; `catalog` has the
            options of a catalog as JSON.
        own_keys: the keys that this kind of read or write knows.

    Raises:
        InvalidOption: there is not exactly one path, or a key is not known.
    """
    rest = opt.lowered(options)
    known = [*own_keys, "branch", "warehouse"]
    path = _path_in(rest)
    catalog_text = rest.pop("catalog", None)
    own = {key: rest.pop(key) for key in (*known, *_OF_SPARK) if key in rest}
    storage: dict[str, str] = {}
    catalog = _take_catalog(catalog_text, own.get("warehouse"), path, rest)
    if catalog is not None:
        path, of_catalog = in_catalog(path, catalog)
        storage |= of_catalog
    storage |= storage_options_for(path, rest)
    kind = KIND_OF.get(scheme_of(path))
    if kind is not None:
        storage |= {key: value for key, value in rest.items() if key.startswith(PREFIXES[kind])}
        known += recommended_names(kind)
    table = {
        key: value
        for key, value in rest.items()
        if key not in storage or key.startswith(opt.SINK_PREFIX)
    }
    opt.check_sink_options(table, additional=known)
    return SourceOptions(
        location=str(with_branch(path, own.get("branch"))), own=own, table=table, storage=storage
    )


def _take_catalog(
    catalog_text: str | None, warehouse: str | None, path: str, rest: dict[str, str]
) -> dict[str, str] | None:
    """The options of the catalog that says where the table is. None if the path does.

    Args:
        catalog_text: the option `catalog`.
        warehouse: the option `warehouse`.
        path: the option `path`.
        rest: the options that nothing has taken. Those of a catalog are removed.

    Raises:
        InvalidOption: `catalog` and `warehouse` are both given.
    """
    if catalog_text is not None:
        if warehouse is not None:
            raise InvalidOption(
                "catalog and warehouse both say where the table is. Give one of them.",
                option="warehouse",
            )
        return cast("dict[str, str]", json.loads(catalog_text))
    is_without = warehouse is None and metastore_of(rest) != "hive"
    if is_without or "/" in path:
        return None
    catalog = {} if warehouse is None else {"warehouse": warehouse}
    if "metastore" in rest:
        keys = [key for key in rest if OF_DATABASE.fullmatch(key) or OF_SERVER.fullmatch(key)]
        catalog |= {key: rest.pop(key) for key in keys}
    return catalog


def _path_in(options: Mapping[str, str]) -> str:
    """The path of the table. Raises `InvalidOption` if the options do not name exactly one path."""
    path = options.get("path", "")
    if not path.strip() or "paths" in options:
        raise InvalidOption(
            f"paimon_stream was given {options.get('paths', 'no path')}. Name the folder of one "
            "table: .start(location), .save(location) or .load(location). In SQL, use CREATE "
            "TEMPORARY VIEW … USING paimon_stream OPTIONS (path '…'), or the names that "
            "paimon_stream.register_views gives to tables: tables that CREATE TABLE or saveAsTable "
            "makes do not pass on their options.",
            option="path",
        )
    return path
