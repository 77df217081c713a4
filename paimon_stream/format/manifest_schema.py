"""The Avro schemas of manifests and manifest lists, exactly as Java writes them (format.md §4.2–§4.4),
and which others can be read as them."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["MANIFEST_LIST_SCHEMA", "MANIFEST_SCHEMA", "misfit"]


def _nullable(type_: Any) -> list[Any]:
    return ["null", type_]


def _field(name: str, type_: Any) -> dict[str, Any]:
    made = {"name": name, "type": type_}
    return {**made, "default": None} if isinstance(type_, list) else made


def _record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [_field(*one) for one in fields]}


def _top_record(*fields: tuple[str, Any]) -> dict[str, Any]:
    made = _record("record", *fields)
    return {
        "type": "record",
        "name": "record",
        "namespace": "org.apache.paimon.avro.generated",
        "fields": made["fields"],
    }


def _stats(name: str) -> dict[str, Any]:
    counts = {"type": "array", "items": ["null", "long"]}
    return _record(
        name, ("_MIN_VALUES", "bytes"), ("_MAX_VALUES", "bytes"), ("_NULL_COUNTS", _nullable(counts))
    )


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


def misfit(wanted: Any, found: Any) -> str | None:
    """What is wrong with a writer schema, None if records of it can be read as `wanted`."""
    if not isinstance(found, dict) or found.get("type") != "record":
        return "it does not hold records"
    present = {one["name"]: one["type"] for one in found["fields"]}
    for one in wanted["fields"]:
        name, type_ = one["name"], one["type"]
        nullable = isinstance(type_, list)
        if name not in present:
            if nullable:
                continue
            return f"its records have no {name}"
        branches = present[name] if isinstance(present[name], list) else [present[name]]
        values = [branch for branch in branches if branch != "null"]
        if len(values) != 1 or (len(branches) > 1 and not nullable):
            return f"its field {name} is of another type"
        core = type_[1] if nullable else type_
        if isinstance(core, dict) and core["type"] == "record":
            inner = misfit(core, values[0])
            if inner:
                return f"in {name}, {inner}"
        elif _family(core) != _family(values[0]):
            return f"its field {name} is of another type"
    return None


def _family(type_: Any) -> Any:
    """Types that read as the same Python values."""
    if isinstance(type_, dict):
        if type_["type"] == "array":
            items = type_["items"]
            branches = items if isinstance(items, list) else [items]
            return "array", tuple(sorted({str(_family(one)) for one in branches if one != "null"}))
        return _family(type_["type"])
    return "long" if type_ == "int" else type_
