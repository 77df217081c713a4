"""The Avro schemas of manifest lists, manifests and index manifests, as Java writes them (format.md §4.2–§4.6)."""

from typing import Any, Final


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


_TYPES: Final[dict[str, Any]] = {
    "ints": _array("int"),
    "strings": _array("string"),
    "counts": _array(["null", "long"]),
    "millis": {"type": "long", "logicalType": "timestamp-millis"},
}


def _fields(text: str, **records: dict[str, Any]) -> list[dict[str, Any]]:
    """The fields of a text such as `_BUCKET int, _LEVEL int?` (nullable). Types are Avro's, `_TYPES` or `records`."""
    made = []
    for name, word in map(str.split, text.split(",")):
        core = word.removesuffix("?")
        type_ = {**_TYPES, **records}.get(core, core)
        field = {"name": name, "type": type_}
        made.append(field if word == core else {**field, "type": ["null", type_], "default": None})
    return made


def _record(name: str, text: str, **records: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": _fields(text, **records)}


def _top_record(text: str, **records: dict[str, Any]) -> dict[str, Any]:
    named = {"type": "record", "name": "record", "namespace": "org.apache.paimon.avro.generated"}
    return {**named, "fields": _fields(text, **records)}


def _stats(name: str) -> dict[str, Any]:
    return _record(name, "_MIN_VALUES bytes, _MAX_VALUES bytes, _NULL_COUNTS counts?")


_FILE: Final = _record(
    "record__FILE",
    "_FILE_NAME string, _FILE_SIZE long, _ROW_COUNT long, _MIN_KEY bytes, _MAX_KEY bytes, _KEY_STATS keys, "
    "_VALUE_STATS values, _MIN_SEQUENCE_NUMBER long, _MAX_SEQUENCE_NUMBER long, _SCHEMA_ID long, _LEVEL int, "
    "_EXTRA_FILES strings, _CREATION_TIME millis?, _DELETE_ROW_COUNT long?, _EMBEDDED_FILE_INDEX bytes?, "
    "_FILE_SOURCE int?, _VALUE_STATS_COLS strings?, _EXTERNAL_PATH string?, _FIRST_ROW_ID long?, _WRITE_COLS strings?",
    keys=_stats("record__FILE__KEY_STATS"),
    values=_stats("record__FILE__VALUE_STATS"),
)

MANIFEST_SCHEMA: Final = _top_record(
    "_VERSION int, _KIND int, _PARTITION bytes, _BUCKET int, _TOTAL_BUCKETS int, _FILE file", file=_FILE
)
"""The schema of a manifest, as Java writes it."""

MANIFEST_LIST_SCHEMA: Final = _top_record(
    "_VERSION int, _FILE_NAME string, _FILE_SIZE long, _NUM_ADDED_FILES long, _NUM_DELETED_FILES long, "
    "_PARTITION_STATS stats, _SCHEMA_ID long, _MIN_BUCKET int?, _MAX_BUCKET int?, _MIN_LEVEL int?, _MAX_LEVEL int?, "
    "_MIN_ROW_ID long?, _MAX_ROW_ID long?",
    stats=_stats("record__PARTITION_STATS"),
)
"""The schema of a manifest list, as Java writes it."""

_DELETIONS: Final = _record("record__DELETIONS_VECTORS_RANGES", "f0 string, f1 int, f2 int, _CARDINALITY long?")
_GLOBAL_INDEX: Final = _record(
    "record__GLOBAL_INDEX",
    "_ROW_RANGE_START long, _ROW_RANGE_END long, _INDEX_FIELD_ID int, _EXTRA_FIELD_IDS ints?, _INDEX_META bytes?",
)

INDEX_MANIFEST_SCHEMA: Final = _top_record(
    "_VERSION int, _KIND int, _PARTITION bytes, _BUCKET int, _INDEX_TYPE string, _FILE_NAME string, _FILE_SIZE long, "
    "_ROW_COUNT long, _DELETIONS_VECTORS_RANGES ranges?, _EXTERNAL_PATH string?, _GLOBAL_INDEX covered?",
    ranges=_array(["null", _DELETIONS]),
    covered=_GLOBAL_INDEX,
)
"""The schema of an index manifest, as Java writes it."""
