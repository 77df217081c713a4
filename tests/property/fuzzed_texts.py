"""Texts of options, locations, partitions and types: good ones, which `tests/kits/fuzzing.py`
changes at random.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Final

import pyarrow as pa

from paimon_stream import errors
from paimon_stream import options as opt
from paimon_stream.catalogs.opening import open_storage
from paimon_stream.errors import (
    ConfigError,
    CorruptMetadata,
    IncompatibleSchema,
    InvalidData,
    InvalidOption,
    UnsupportedFeature,
)
from paimon_stream.format.arrow_types import from_arrow
from paimon_stream.format.binary_row import deserialize, deserialize_partition
from paimon_stream.format.partition_path import partition_path, unescape
from paimon_stream.format.stats import parse_mode
from paimon_stream.format.types import DataField, arrow_type, parse_type
from paimon_stream.maintenance.automatic_tags import TagNames
from paimon_stream.maintenance.expire_partitions import nanos_of
from paimon_stream.options.option import Option, Options
from paimon_stream.read.condition_text import condition_on, value_in_text
from paimon_stream.read.convert import convert, normalize
from paimon_stream.read.sql_text import SqlColumn
from paimon_stream.storage import location as locations
from paimon_stream.storage.store_errors import failure_of
from paimon_stream.storage.store_sources import settings_of
from paimon_stream.table.layout import external_roots
from paimon_stream.table.partition_spec import parse_partition
from tests.kits.fuzzing import Decoder, of_text
from tests.kits.sql_cases import CASES as SQL_CASES
from tests.kits.sql_cases import ROWS
from tests.property.fuzzed_metadata import KEY_FIELDS, KEY_TYPES, KEYS, PARTITION

# -- texts
# ------------------------------------------------------------------------------------------------

_OPTIONS: Final = [one for one in vars(opt).values() if isinstance(one, Option)]
_OPTION_TEXTS: Final = [
    *{one.default for one in _OPTIONS if one.default is not None},
    "128 mb",
    "10 min",
    "5 ",
    "0:avro,5:parquet",
    "file:///a,s3://b/c",
    "1,2,3",
    "Europe/Berlin",
    "+08:00",
    "GMT+8",
    "yyyyMMdd[ HH:mm]",
    "yyyy-MM-dd'T'HH:mm:ss.SSS",
    "$dt $h",
    "truncate(16)",
    "a,b",
    "2026-01-02T03:04:05Z",
]


def _option(text: str) -> None:
    for option in _OPTIONS:
        try:
            Options({option.key: text}).value(option)
        except InvalidOption:
            continue


def _form(text: str) -> None:
    options = Options({opt.PARTITION_FORM.key: text})
    for value in (
        "2026-01-02",
        "20260102 03:04",
        "2026-01-02T03:04:05.678",
        " " * 40 + "x",
        "1" * 40,
    ):
        nanos_of(value, options)


def _moment(text: str) -> None:
    opt.moment_millis(text, "older_than", "/t", 10**12)


def _age(text: str) -> None:
    opt.age_of(text, "older_than", "/t")


def _partition_text(text: str) -> None:
    spec = parse_partition(KEY_FIELDS, text, "__DEFAULT_PARTITION__", table="/t")
    assert spec.row is None or deserialize_partition(KEY_TYPES, spec.row)
    for column, value in zip(KEY_FIELDS, text.split("/"), strict=False):
        try:
            parse_partition([column], {column.name: value}, "__DEFAULT_PARTITION__", table="/t")
        except InvalidData:
            continue


_SQL_TYPES: Final = {field.name: from_arrow(field.type) for field in ROWS.schema}
_SQL_COLUMNS: Final = {
    "": {name: SqlColumn(name=name, type=type_) for name, type_ in _SQL_TYPES.items()}
}
_SQL_TEXTS: Final = [
    *SQL_CASES,
    "i >= 10 AND s = 'north' OR day < '2024-03-01'",
    "ts BETWEEN '2024-02-29T10:30' AND '2024-03-01 00:00:00.5'",
]


def _sql(text: str) -> None:
    with suppress(InvalidOption, UnsupportedFeature):
        condition_on(text, _SQL_COLUMNS, "where")
    for number, (name, type_) in enumerate(_SQL_TYPES.items()):
        field = DataField(id=number, name=name, type=type_)
        with suppress(InvalidOption, UnsupportedFeature):
            value_in_text(text, field, _SQL_COLUMNS, "updates")


_STORES: Final = [
    "s3://bucket/a/b",
    "s3a://b.ucket/a",
    "gs://bucket/a",
    "oss://bucket/x",
    "az://container/a",
    "abfss://container@account.dfs.core.windows.net/a",
]
_LOCATIONS: Final = [
    *_STORES,
    "/a/b",
    "file:///a/b%20c",
    "file:/a",
    "memory://name/x",
    "memory://[::1]/x",
    "a/b$branch_x",
    "s3://user:secret@host:80/a?b#c",
]


def _location(text: str) -> None:
    locations.shown_location(text)
    if locations.scheme_of(text) in locations.KIND_OF:
        locations.store_location(text)
    if locations.scheme_of(text) not in locations.KIND_OF:
        open_storage(text).exists("snapshot/LATEST")


def _external(text: str) -> None:
    options = Options({opt.EXTERNAL_PATHS.key: text, opt.EXTERNAL_STRATEGY.key: "round-robin"})
    external_roots(options)


_STORE_VALUES: Final = {
    "s3": (
        "s3.endpoint",
        "s3.proxy.uri",
        "fs.s3a.proxy.port",
        "s3.region",
        "fs.s3a.aws.credentials.provider",
    ),
    "gcs": ("gcs.service-account-key", "gcs.endpoint", "gs.auth.type"),
    "azure": ("azure.account-key", "azure.endpoint", "fs.azure.account.oauth2.client.endpoint"),
}


def _store_option(text: str) -> None:
    for location in _STORES:
        place = locations.store_location(location)
        for name in _store_names(place.kind):
            try:
                settings_of(place, {name: text}, environment={})
            except ConfigError:
                continue


@cache
def _store_names(kind: str) -> tuple[str, ...]:
    from paimon_stream.options.store_names import recommended_names

    return tuple(recommended_names(kind))


def _tag_name(text: str) -> None:
    for period in ("daily", "hourly", "two-hours"):
        options = Options(
            {opt.TAG_AUTOMATIC_CREATION.key: "process-time", opt.TAG_CREATION_PERIOD.key: period}
        )
        tags = TagNames.of(options)
        tags.time_of(text)


_TYPE_TEXTS: Final = [
    "BIGINT NOT NULL",
    "DECIMAL(30, 2)",
    "TIMESTAMP(3) WITH LOCAL TIME ZONE NOT NULL",
    "DOUBLE PRECISION",
    "ROW<`a b` INT, c ARRAY<MAP<STRING, ROW<x TINYINT>>>> NOT NULL",
    "VARCHAR(2147483647)",
    "MULTISET<CHAR(3)>",
    "VARIANT",
    "TIME(3)",
]


def _type(text: str) -> None:
    arrow_type(
        parse_type(text.encode(errors="replace").decode())
    )  # JSON has no half of a surrogate pair


_STRING: Final = parse_type("STRING")
_PARSED: Final = (
    *("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(5, 2)", "BOOLEAN"),
    *("DECIMAL(38, 38)", "DATE", "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(5)", "TIMESTAMP(9)"),
)


def _other_kind(text: str) -> None:
    """Text of a column that has become each other kind."""
    column = pa.array([text.encode(errors="replace").decode(), None])
    for target in map(parse_type, _PARSED):
        with suppress(InvalidData, UnsupportedFeature):
            convert(column, _STRING, target, normalize, "c").validate(full=True)


CASES: Final[dict[str, Decoder]] = {
    "text of another kind": of_text(
        _other_kind,
        ["-12.5", "1e-3", "yes", "2024-02-29", "2024-02-29 01:02:03.123456789", "+Infinity"],
        (),
    ),
    "type": of_text(_type, _TYPE_TEXTS, (CorruptMetadata, UnsupportedFeature)),
    "options": of_text(_option, _OPTION_TEXTS, ()),
    "SQL": of_text(_sql, _SQL_TEXTS, ()),
    "form of a time": of_text(
        _form, ["yyyyMMdd[ HH:mm]", "yyyy-M-d[ H:m:s[.S]]", "dd'x''y'"], (InvalidOption,)
    ),
    "mode of statistics": of_text(parse_mode, ["truncate(16)", "none"], (InvalidOption,)),
    "age": of_text(_age, ["7 d", "36 h"], (InvalidOption,), "older_than"),
    "moment": of_text(
        _moment, ["7 d", "2026-11-01T12:00Z", "12", "2026-11-01 12:00+02:00"], (InvalidOption,)
    ),
    "partition as text": of_text(
        _partition_text,
        [
            partition_path(tuple(KEYS), KEY_TYPES, deserialize(KEY_TYPES, PARTITION)),
            "/".join(
                (
                    "true",
                    "1",
                    "-2",
                    "3",
                    "1.5",
                    "1e3",
                    "2.50",
                    "1e-2",
                    "x",
                    "y",
                    "2024-02-29",
                    "10:30:00.5",
                    "2024-02-29T10:30",
                    "2024-02-29T10:30:00+09:00",
                )
            ),
            "a=2024-02-29/z=2024-02-29T10:30:00Z",
        ],
        (IncompatibleSchema, InvalidData),
    ),
    "escaped name": of_text(lambda text: unescape(text), ["a%2Fb", "%zz%41"], ()),
    "location": of_text(_location, _LOCATIONS, (ConfigError, errors.StorageError)),
    "external paths": of_text(_external, ["file:///a//b/,s3://x/y", "s3://a"], (InvalidOption,)),
    "storage options": replace(
        of_text(
            _store_option,
            [
                "http://[::1]:80",
                "https://a.b:443/c",
                "true",
                "5 s",
                '{"gcs_base_url": "http://x"}',
                "YWJj",
                "SSE-C",
                "org.apache.A,B",
            ],
            (),
        ),
        share=0.2,
    ),
    "name of a tag": of_text(_tag_name, ["2026-01-02", "2026-01-02 03"], ()),
    "answer of a store": of_text(
        lambda text: failure_of(Exception(text)),
        [
            "Client error with status 403 Forbidden: <Error><Code>AccessDenied</Code></Error>",
            "<Code>404</Code>",
        ],
        (),
    ),
}
