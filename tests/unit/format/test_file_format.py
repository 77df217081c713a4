"""What each file format can do is reported before anything is written."""

from __future__ import annotations

import warnings

import pytest

from paimon_stream.errors import InvalidOption, UnsupportedFeature
from paimon_stream.format.file_format import (
    FileFormat,
    check_columns,
    compression,
    file_format,
    warn_of_ignored,
)
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.options import Options

# format.md §7.1: the formats that may be compressed so, and those that need a native library for
# it.
LEGAL = {
    "zstd": ("parquet orc avro", ""),
    "snappy": ("parquet orc avro", ""),
    "none": ("parquet orc", ""),
    "uncompressed": ("parquet", ""),
    "null": ("avro", ""),
    "lz4": ("parquet orc", ""),
    "gzip": ("parquet", ""),
    "zlib": ("orc", ""),
    "lzo": ("", "parquet orc"),
    "deflate": ("avro", ""),
    "brotli": ("", "parquet"),
    "bzip2": ("", ""),
}


@pytest.mark.parametrize("word", LEGAL)
@pytest.mark.parametrize("format_", FileFormat)
def test_compressions_are_legal_as_the_format_says(word: str, format_: FileFormat) -> None:
    legal, native = LEGAL[word]
    options = Options({"file.compression": word.upper()})
    if format_.value in legal.split():
        assert compression(options, format_) == word
        return
    kind = UnsupportedFeature if format_.value in native.split() else InvalidOption
    with pytest.raises(kind, match=r"file\.compression") as refused:
        compression(options, format_)
    assert "Set it to one of zstd" in str(refused.value)


def test_the_format_is_read_in_any_case_and_others_are_refused() -> None:
    assert file_format(Options({})) is FileFormat.PARQUET
    assert file_format(Options({"file.format": "ORC"})) is FileFormat.ORC
    with pytest.raises(UnsupportedFeature, match="csv"):
        file_format(Options({"file.format": "csv"}))


def refused(format_: FileFormat, sql: str, name: str = "c", **options: str) -> str:
    field = DataField(id=0, name=name, type=parse_type(sql))
    with pytest.raises(UnsupportedFeature) as caught:
        check_columns(format_, [field], Options(options), "/w/t")
    assert caught.value.context["column"] == name
    return str(caught.value)


@pytest.mark.parametrize(
    "sql",
    [
        "TIME(4)",
        "TIMESTAMP(7)",
        "TIMESTAMP_LTZ(9)",
        "ARRAY<TIMESTAMP(9)>",
        "MAP<STRING, ROW<a TIME(9)>>",
        "MULTISET<INT>",
    ],
)
def test_avro_refuses_what_java_refuses(sql: str) -> None:
    assert "parquet or orc" in refused(FileFormat.AVRO, sql)


def test_avro_refuses_names_that_avro_does_not_have() -> None:
    assert "'a-b'" in refused(FileFormat.AVRO, "INT", "a-b")
    assert "'ü'" in refused(FileFormat.AVRO, "ROW<ü INT>")


def test_orc_with_local_time_zone_needs_the_option() -> None:
    assert "orc.timestamp-ltz.legacy.type" in refused(FileFormat.ORC, "TIMESTAMP_LTZ(6)")
    assert "orc.timestamp-ltz.legacy.type" in refused(FileFormat.ORC, "ARRAY<TIMESTAMP_LTZ(3)>")
    options = Options({"orc.timestamp-ltz.legacy.type": "false"})
    field = DataField(id=0, name="c", type=parse_type("TIMESTAMP_LTZ(6)"))
    check_columns(FileFormat.ORC, [field], options)


def test_options_without_effect_are_named_once() -> None:
    given = {
        "parquet.page.size": "1 mb",
        "parquet.bloom.filter.enabled#a": "true",
        "orc.stripe.size": "1 mb",
    }
    with pytest.warns(UserWarning, match=r"parquet\.bloom\.filter\.enabled#a\.$") as warned:
        warn_of_ignored(given, FileFormat.PARQUET)
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_ignored(given, FileFormat.ORC)
        warn_of_ignored(given, FileFormat.AVRO)
    with pytest.warns(UserWarning, match="zstd-level"):
        warn_of_ignored({"file.compression.zstd-level": "3"}, FileFormat.ORC)
