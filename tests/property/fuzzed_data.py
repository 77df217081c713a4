"""Data files, shuffle packets and whole tables: good ones, which `tests/kits/fuzzing.py` changes at
random.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import FormatError, PaimonStreamError, UnsupportedFeature
from paimon_stream.format import parquet_footer
from paimon_stream.format.manifest_avro import decode_manifest_list, encode_manifest_list
from paimon_stream.format.snapshot_json import decode_snapshot, encode_snapshot
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.read.avro_rows import read_avro
from paimon_stream.read.orc_footer import OrcFooter
from paimon_stream.read.orc_rows import read_orc
from paimon_stream.read.parquet_rows import read_parquet
from paimon_stream.read.rows import BROKEN_FILE
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_spec import PartitionFilter, parse_partition
from paimon_stream.table.table import load_table
from paimon_stream.write.shuffle_packets import unpack
from tests.kits.fuzzing import GOLDEN, PATH, Decoder
from tests.property.fuzzed_metadata import of_records, plain

# -- data files
# -------------------------------------------------------------------------------------------

_COLUMNS: Final = pa.table(
    {
        "a": pa.array([1, None, 3] * 20, pa.int32()),
        "t": pa.array([0, None, 4 * 10**15] * 20, pa.timestamp("us")),
        "s": pa.array(["x", None, "yy"] * 20),
    }
)
_FIELDS: Final = [
    DataField(id=i, name=k, type=parse_type(t))
    for i, (k, t) in enumerate((("a", "INT"), ("t", "TIMESTAMP(6)"), ("s", "STRING")))
]
_DATA_ERRORS: Final = (FormatError, UnsupportedFeature, OSError, MemoryError, *BROKEN_FILE)
"""`read/rows.py` makes one error of ours of these (the cases of whole tables look at that)."""


def _parquet(**form: Any) -> bytes:
    made = io.BytesIO()
    pq.write_table(_COLUMNS, made, compression="none", **form)
    return made.getvalue()


def _orc_file(columns: pa.Table, compression: str) -> bytes:
    made = io.BytesIO()
    orc.write_table(columns, made, compression=compression)
    return made.getvalue()


_INT96: Final = _parquet(use_deprecated_int96_timestamps=True)
_FAR: Final = pa.table({"t": pa.array([-(2**55), None, 2**55, *range(600)], pa.timestamp("us"))})
"""Beyond nanoseconds, so the file's streams are read here and not by Arrow."""


def _footer(data: bytes) -> bytes:
    return data[parquet_footer.footer_start(len(data), data[-8:]) :]


def _thrift(data: bytes) -> None:
    parquet_footer.declare_twelve_bytes(data)
    parquet_footer.declare_int96(data, frozenset({0, 1}))


def _parquet_rows(data: bytes) -> None:
    for chunk in read_parquet(pa.BufferReader(data), PATH, _FIELDS, 16):
        for name, array in chunk.columns.items():
            chunk.leaf(array, next(one.type for one in _FIELDS if one.name == name))


def _orc_footer(data: bytes) -> None:
    source = pa.BufferReader(data)
    footer = OrcFooter.read(source)
    for stripe in footer.stripes[:20]:
        for stream in footer.stripe_footer(source, stripe).streams[:20]:
            footer.stream(source, stream)
    for column in footer.columns().values():
        list(footer.below(column))


def _orc_rows(data: bytes) -> None:
    for legacy in (True, False):
        for _chunk in read_orc(pa.BufferReader(data), PATH, _FIELDS[1:2], legacy_ltz=legacy):
            pass


_AVRO_FILES: Final = [
    path.read_bytes() for path in sorted(GOLDEN.glob("all_types_avro/db.db/t/**/*.avro"))
]


def _avro_rows(data: bytes) -> None:
    for chunk in read_avro(pa.BufferReader(data), PATH, _avro_schema(), 7):
        for name, array in chunk.columns.items():
            array.validate()
            chunk.leaf(array, next(one.type for one in _avro_schema() if one.name == name))


@cache
def _avro_schema() -> tuple[DataField, ...]:
    table = PaimonTable.load(str(GOLDEN / "all_types_avro" / "db.db" / "t"))
    return tuple(table.schema.fields)


_FILES: Final[dict[str, Decoder]] = {
    "footer of Parquet": Decoder(good=[_footer(_INT96)], decode=_thrift, raises=(FormatError,)),
    "Parquet with INT96": Decoder(good=[_INT96], decode=_parquet_rows, raises=_DATA_ERRORS),
    "footer of ORC": Decoder(
        good=[
            _orc_file(one, packed)
            for one in (_COLUMNS, _FAR)
            for packed in ("uncompressed", "zlib", "zstd")
        ],
        decode=_orc_footer,
    ),
    "ORC beyond nanoseconds": Decoder(
        good=[_orc_file(_FAR, "uncompressed")], decode=_orc_rows, raises=_DATA_ERRORS
    ),
    "Avro rows": Decoder(good=list(map(plain, _AVRO_FILES)), decode=_avro_rows),
    "records of Avro rows": replace(
        of_records(lambda data, _: _avro_rows(data), _AVRO_FILES), raises=_DATA_ERRORS, naming=""
    ),
}


def _packets(columns: pa.Table) -> list[bytes]:
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, columns.schema) as writer:
        writer.write_table(columns)
    return [stream.getvalue().to_pybytes()]


def _unpacked(data: bytes) -> None:
    """The bytes say which pieces of a stream come in which order, and which of them end it."""
    whole = _packets(_COLUMNS)[0]
    pieces = [whole[i * 100 : i * 100 + 100] for i in range(len(whole) // 100 + 1)]
    chosen = [pieces[(byte & 127) % len(pieces)] for byte in data]
    ends = [bool(byte & 128) for byte in data]
    batch = pa.record_batch(
        {"ends": pa.array(ends, pa.bool_()), "piece": pa.array(chosen, pa.binary())}
    )
    for _batch in unpack([batch.slice(0, 2), batch.slice(2)]):
        pass


# -- whole tables
# -----------------------------------------------------------------------------------------


def _stored_plainly(root: Path) -> None:
    """Rewrites the metadata of a table without compression, so that changes reach its records."""
    sizes: dict[str, int] = {}
    for path in sorted(
        (root / "manifest").glob("*"), key=lambda one: one.name.startswith("manifest-list-")
    ):
        data = path.read_bytes()
        if path.name.startswith("manifest-list-"):
            metas = [
                replace(one, file_size=sizes[one.file_name])
                for one in decode_manifest_list(data, PATH)
            ]
            data = encode_manifest_list(metas, compression="null", level=1)
        else:
            data = plain(data)
        path.write_bytes(data)
        sizes[path.name] = len(data)
    for path in (root / "snapshot").glob("snapshot-*"):
        found = decode_snapshot(path.read_bytes(), PATH)
        path.write_bytes(
            encode_snapshot(
                replace(
                    found,
                    base_manifest_list_size=sizes[found.base_manifest_list],
                    delta_manifest_list_size=sizes[found.delta_manifest_list],
                    changelog_manifest_list_size=sizes.get(found.changelog_manifest_list or ""),
                )
            )
        )


def _head(data: bytes) -> int:
    """How many bytes before the records of an Avro file stay as they are; none of other files."""
    return data.index(data[-16:]) + 16 if data.startswith(b"Obj") else 0


def _some_partitions(opened: PaimonTable) -> None:
    """Reads the manifests as a commit does that looks at some partitions."""
    table, latest = load_table(LocalStorage(opened.location)), opened.latest_snapshot()
    manifests = ManifestStore(table.storage)
    specs = [
        parse_partition(
            table.schema.partition_fields, {}, "__DEFAULT_PARTITION__", table=opened.location
        )
    ]
    for meta in manifests.base_and_delta(latest) if latest else ():
        manifests.read_of(meta, PartitionFilter(table.partition_types, specs=specs))


def _use(root: str) -> None:
    """Reads the table in all ways, and then writes to it. Whatever is wrong, verify finds it, and
    raises nothing.
    """
    PaimonTable.load(root).verify()
    steps: list[Callable[[PaimonTable], Any]] = [
        lambda table: list(table.to_batches()),
        lambda table: [table.files(partition=dict(one.partition)) for one in table.files()[:1]],
        _some_partitions,
        lambda table: table.tags(),
        lambda table: table.compact(dry_run=True),
        lambda table: table.remove_orphan_files(dry_run=True),
        lambda table: table.expire_snapshots(dry_run=True),
        lambda table: table.compact_manifests(dry_run=True),
        lambda table: table.rebuild_index(dry_run=True),
        lambda table: table.append(table.to_arrow()),
        lambda table: table.compact(full=True),
        lambda table: table.overwrite(table.to_arrow()),
        lambda table: table.compact_manifests(),
        lambda table: table.expire_snapshots(retain_min=1, retain_max=1),
    ]
    for step in steps:
        try:
            step(PaimonTable.load(root))
        except PaimonStreamError:
            continue


def _table(name: str, pattern: str) -> Decoder:
    """A table of which one file is damaged, the last that the pattern finds."""
    good: list[bytes] = []

    def prepare(folder: str) -> Callable[[bytes], object]:
        whole, root = Path(folder) / "whole", Path(folder) / "t"
        shutil.copytree(GOLDEN / name / "db.db" / "t", whole)
        _stored_plainly(whole)
        path = sorted(whole.glob(pattern))[-1]
        good[:] = [path.read_bytes()]

        def ask(data: bytes) -> None:
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(whole, root)
            (root / path.relative_to(whole)).write_bytes(data)
            _use(str(root))

        return ask

    return Decoder(
        good=good,
        prepare=prepare,
        raises=(PaimonStreamError,),
        share=0.025,
        keeps_length=True,
        head=_head,
    )


_TABLES: Final = {
    "all_types": ("schema/schema-0", "**/*.parquet"),
    "all_types_orc": ("**/*.orc",),
    "all_types_avro": ("**/*.avro",),
    "pk_updates": ("manifest/manifest-[0-9a-f]*", "manifest/manifest-list-*-0"),
    "partition_types": ("manifest/manifest-[0-9a-f]*", "manifest/manifest-list-*-1"),
    "kinds/vectors_pk": ("manifest/index-manifest-*", "index/index-*"),
    "kinds/vectors_append64": ("manifest/index-manifest-*", "index/index-*"),
    "kinds/dynamic_plain": ("manifest/index-manifest-*", "index/index-*"),
}

CASES: Final[dict[str, Decoder]] = {
    **_FILES,
    "shuffle packets": Decoder(
        good=[bytes(range(20))], decode=_unpacked, raises=(PaimonStreamError,)
    ),
    **{
        f"{name}: {one}": _table(name, one)
        for name, patterns in _TABLES.items()
        for one in patterns
    },
}

if int(pa.__version__.split(".")[0]) < 20:
    for case in ("all_types_orc: **/*.orc", "ORC beyond nanoseconds"):
        CASES[case] = replace(
            CASES[case], share=0
        )  # a damaged stripe ends the whole process inside Arrow 18
