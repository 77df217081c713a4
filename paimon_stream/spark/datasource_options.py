"""The options of one read or write by `format("paimon_stream")`, by whom they concern."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from paimon_stream import options as opt
from paimon_stream.catalogs.filesystem import OF_DATABASE
from paimon_stream.catalogs.rest import OF_SERVER
from paimon_stream.errors import InvalidOption
from paimon_stream.options.store_names import recommended_names
from paimon_stream.options.store_options import PREFIXES
from paimon_stream.spark.active_session import in_catalog
from paimon_stream.storage.branch import with_branch
from paimon_stream.storage.location import KIND_OF, scheme_of, store_location
from paimon_stream.storage.store_sources import options_for

_OF_SPARK: Final = frozenset(
    ("checkpointlocation", "queryname", "path", "paths", "owner", "provider", "location")
)
"""Keys by which Spark passes on what was not said by `.option`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of one read or write by whom they concern. `location` names the branch, too.
    `own` are those of the door, and Spark's own; `table` those of the table and the sink.
    """

    location: str
    own: Mapping[str, str]
    table: Mapping[str, str]
    storage: Mapping[str, str] = field(repr=False)


def divided(
    options: Mapping[str, str],
    door: Iterable[str],
) -> SourceOptions:
    """The options, whose keys Spark passes in lower case. `door` are the keys of the door. Raises
    `InvalidOption` if there is not exactly one path, and for keys that are not known.
    """
    given, known = opt.lowered(options), [*door, "branch", "warehouse"]
    path = given.get("path", "")
    if not path.strip() or "paths" in given:
        raise InvalidOption(
            f"paimon_stream was given {given.get('paths', 'no path')}. Name the folder of one table: .start(location), "
            ".save(location) or .load(location). In SQL, use CREATE TEMPORARY VIEW … USING paimon_stream OPTIONS (path "
            "'…'): tables of Spark's catalog, saveAsTable and writeTo do not pass on their options.",
            option="path",
        )
    own = {key: given.pop(key) for key in (*known, *_OF_SPARK) if key in given}
    storage: dict[str, str] = {}
    if "warehouse" in own and "/" not in path:
        of_catalog = (OF_DATABASE, OF_SERVER) if "metastore" in given else ()
        named = [key for key in given if any(one.fullmatch(key) for one in of_catalog)]
        path, found = in_catalog(
            path, {"warehouse": own["warehouse"], **{key: given.pop(key) for key in named}}
        )
        storage |= found
    if (kind := KIND_OF.get(scheme_of(path))) is not None:
        theirs = options_for(store_location(path), given)
        storage |= {
            key: value
            for key, value in given.items()
            if key in theirs or key.startswith(PREFIXES[kind])
        }
        known += recommended_names(kind)
    table = {
        key: value
        for key, value in given.items()
        if key not in storage or key.startswith(opt.SINK_PREFIX)
    }
    opt.check_sink_options(table, additional=known)
    return SourceOptions(
        location=str(with_branch(path, own.get("branch"))), own=own, table=table, storage=storage
    )
