"""The Avro schemas of manifest lists, manifests and index manifests, exactly as Java writes them
(format.md §4.2–§4.6)."""

from typing import Any, Final


def _nullable(type_: Any) -> list[Any]:
    return ["null", type_]


def _field(name: str, type_: Any) -> dict[str, Any]:
    made = {"name": name, "type": type_}
    return {**made, "default": None} if isinstance(type_, list) else made


def _record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [_field(*one) for one in fields]}


def _top_record(*fields: tuple[str, Any]) -> dict[str, Any]:
    named = {"type": "record", "name": "record", "namespace": "org.apache.paimon.avro.generated"}
    return {**named, "fields": [_field(*one) for one in fields]}


def _stats(name: str) -> dict[str, Any]:
    counts = {"type": "array", "items": ["null", "long"]}
    return _record(name, ("_MIN_VALUES", "bytes"), ("_MAX_VALUES", "bytes"), ("_NULL_COUNTS", _nullable(counts)))


_STRINGS: Final = {"type": "array", "items": "string"}
_FILE: Final = _record(
    "record__FILE",
    ("_FILE_NAME", "string"),
    ("_FILE_SIZE", "long"),
    ("_ROW_COUNT", "long"),
    ("_MIN_KEY", "bytes"),
    ("_MAX_KEY", "bytes"),
    ("_KEY_STATS", _stats("record__FILE__KEY_STATS")),
    ("_VALUE_STATS", _stats("record__FILE__VALUE_STATS")),
    ("_MIN_SEQUENCE_NUMBER", "long"),
    ("_MAX_SEQUENCE_NUMBER", "long"),
    ("_SCHEMA_ID", "long"),
    ("_LEVEL", "int"),
    ("_EXTRA_FILES", _STRINGS),
    ("_CREATION_TIME", _nullable({"type": "long", "logicalType": "timestamp-millis"})),
    ("_DELETE_ROW_COUNT", _nullable("long")),
    ("_EMBEDDED_FILE_INDEX", _nullable("bytes")),
    ("_FILE_SOURCE", _nullable("int")),
    ("_VALUE_STATS_COLS", _nullable(_STRINGS)),
    ("_EXTERNAL_PATH", _nullable("string")),
    ("_FIRST_ROW_ID", _nullable("long")),
    ("_WRITE_COLS", _nullable(_STRINGS)),
)

MANIFEST_SCHEMA: Final = _top_record(
    ("_VERSION", "int"),
    ("_KIND", "int"),
    ("_PARTITION", "bytes"),
    ("_BUCKET", "int"),
    ("_TOTAL_BUCKETS", "int"),
    ("_FILE", _FILE),
)
"""The schema of a manifest, as Java writes it."""

MANIFEST_LIST_SCHEMA: Final = _top_record(
    ("_VERSION", "int"),
    ("_FILE_NAME", "string"),
    ("_FILE_SIZE", "long"),
    ("_NUM_ADDED_FILES", "long"),
    ("_NUM_DELETED_FILES", "long"),
    ("_PARTITION_STATS", _stats("record__PARTITION_STATS")),
    ("_SCHEMA_ID", "long"),
    ("_MIN_BUCKET", _nullable("int")),
    ("_MAX_BUCKET", _nullable("int")),
    ("_MIN_LEVEL", _nullable("int")),
    ("_MAX_LEVEL", _nullable("int")),
    ("_MIN_ROW_ID", _nullable("long")),
    ("_MAX_ROW_ID", _nullable("long")),
)
"""The schema of a manifest list, as Java writes it."""

_DELETIONS: Final = _record(
    "record__DELETIONS_VECTORS_RANGES",
    ("f0", "string"),
    ("f1", "int"),
    ("f2", "int"),
    ("_CARDINALITY", _nullable("long")),
)
_GLOBAL_INDEX: Final = _record(
    "record__GLOBAL_INDEX",
    ("_ROW_RANGE_START", "long"),
    ("_ROW_RANGE_END", "long"),
    ("_INDEX_FIELD_ID", "int"),
    ("_EXTRA_FIELD_IDS", _nullable({"type": "array", "items": "int"})),
    ("_INDEX_META", _nullable("bytes")),
)

INDEX_MANIFEST_SCHEMA: Final = _top_record(
    ("_VERSION", "int"),
    ("_KIND", "int"),
    ("_PARTITION", "bytes"),
    ("_BUCKET", "int"),
    ("_INDEX_TYPE", "string"),
    ("_FILE_NAME", "string"),
    ("_FILE_SIZE", "long"),
    ("_ROW_COUNT", "long"),
    ("_DELETIONS_VECTORS_RANGES", _nullable({"type": "array", "items": _nullable(_DELETIONS)})),
    ("_EXTERNAL_PATH", _nullable("string")),
    ("_GLOBAL_INDEX", _nullable(_GLOBAL_INDEX)),
)
"""The schema of an index manifest, as Java writes it."""
