"""Whatever bytes a decoder gets, it ends soon, in little memory, and in a value or an error that it
documents.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import paimon_stream
from tests.kits.limited import outcomes
from tests.property.fuzzed_decoders import CASES

pytestmark = pytest.mark.lowest

MEGABYTES = 256
SECONDS = 120
"""Of the processor, for all inputs of a case, many on a slow machine. Each input has five
(`kits/fuzzing.py`).
"""
PACKAGE = Path(paimon_stream.__file__).parent
NAMED_LIKE_ONE = re.compile("decode|decompress|deserialize|parse|read|unescape|unpack")
ALSO = {
    "commit/table_cache.recorded_number",
    "format/avro_file.blocks_of",
    "format/parquet_footer.footer_start",
    "format/mentions.Mentions.hashes",
    "options/checks.age_of",
    "options/checks.moment_millis",
    "maintenance/automatic_tags.TagNames.time_of",
    "table/consumers.consumers",
    "maintenance/expire_partitions.nanos_of",
    "maintenance/expiring.ExpiringNotes.unfinished",
    "options/option.Options.value",
    "spark/checkpoint.Checkpoint.offsets_hash",
    "storage/location.shown_location",
    "storage/location.store_location",
    "storage/store_errors.failure_of",
    "storage/store_sources.settings_of",
    "catalogs/opening.open_storage",
    "table/register.registered_writers",
    "stream/batch_summary.BatchSummary.of",
    "stream/batch_summary.previous_of",
    "table/layout.external_roots",
    "table/layout.id_in_name",
}
"""Decoders of other names."""
OTHERS = {
    "api/inspection.",
    "compact/publish.CompactReport.read_amplification",
    "compact/units.",
    "read/merged.reading_order",
    "format/arrow_types.from_bytes",
    "storage/base.Storage.read",
    "storage/hdfs.HdfsStorage.read",
    "storage/local.LocalStorage.read",
    "storage/memory.MemoryStorage.read",
    "storage/object_store.ObjectStorage.read",
    "storage/os_files.reading",
    "storage/read_ahead.ReadAhead.read",
    "format/avro_file.encode_",
    "format/avro_unknown.extended",
    "format/avro_unknown.with_unknown",
    "format/murmur.hash_bytes",
    "spark/datasource.PaimonDataSource.reader",
    "catalogs/hive_login.Connection.readAll",
    "catalogs/rest.RestStorage.read",
    "change/merge_shares.unpacked",  # what tasks of the same job have packed
    "spark/datasource_stream.StreamReader.read",
    "spark/envelopes.parsed_json",
    "table/references.References.read_beside",
}
"""What is named like a decoder, or takes bytes, and decodes nothing. A '.' or '_' at the end stands
for all that begin so.
"""


def functions() -> Iterator[tuple[str, ast.FunctionDef, str]]:
    """The public functions and methods: each with its name, and its key in `reached`."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ast.parse(path.read_text())
        classes = [
            one
            for one in module.body
            if isinstance(one, ast.ClassDef) and not one.name.startswith("_")
        ]
        for owner, inside in [("", module.body), *((f"{one.name}.", one.body) for one in classes)]:
            for one in inside:
                if isinstance(one, ast.FunctionDef) and not one.name.startswith("_"):
                    first = min([one.lineno, *(each.lineno for each in one.decorator_list)])
                    name = (
                        f"{path.relative_to(PACKAGE).with_suffix('').as_posix()}.{owner}{one.name}"
                    )
                    yield name, one, f"{path}:{first}"


def decoders() -> dict[str, str]:
    """The functions that decode: those with the name of a decoder, those whose first argument is
    bytes, and others.
    """
    found = {}
    for name, one, key in functions():
        first = one.args.args[0].annotation if one.args.args else None
        takes_bytes = first is not None and ast.unparse(first).startswith("bytes")
        excluded = any(
            name == other or (other[-1] in "._" and name.startswith(other)) for other in OTHERS
        )
        if name in ALSO or (not excluded and (NAMED_LIKE_ONE.match(one.name) or takes_bytes)):
            found[name] = key
    return found


def reached(folder: Path) -> set[str]:
    """The functions that the cases call while they read their good inputs."""
    called: set[CodeType] = set()

    def note(frame: FrameType, *_: Any) -> None:
        called.add(frame.f_code)

    before = sys.gettrace()
    for number, case in enumerate(CASES.values()):
        own = folder / str(number)
        own.mkdir()
        sys.settrace(note)
        try:
            case.read_good(str(own))
        finally:
            sys.settrace(before)
    return {f"{code.co_filename}:{code.co_firstlineno}" for code in called}


def test_no_changed_input_takes_long_or_much_memory_or_raises_another_error() -> None:
    found = outcomes("tests.property.fuzzed_decoders", seconds=SECONDS)
    assert found.keys() == CASES.keys()
    wrong = [
        f"{name}: {one.error or f'{one.megabytes} MB, {one.seconds} seconds'} {one.text}"
        for name, one in found.items()
        if one.error or one.megabytes > MEGABYTES or one.seconds > SECONDS
    ]
    assert not wrong, "\n".join(wrong)


def test_every_decoder_of_the_package_has_a_case(tmp_path: Path) -> None:
    known, called = decoders(), reached(tmp_path)
    assert known.keys() >= ALSO
    missing = sorted(name for name, key in known.items() if key not in called)
    assert not missing, (
        "Add them to CASES in fuzzed_decoders.py, or to OTHERS if they decode nothing."
    )
