"""The files that the streams read, made from a fixed seed, and what a table must hold after
them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .loads import MIXED, Load

__all__ = ["Sums", "expected", "make_data", "sums_of"]

SEED = 20_260_101
REGIONS = 5
_NAMES = 1_000
_CENTS = pa.decimal128(12, 2)
_START = 1_767_225_600_000_000  # 2026-01-01, in microseconds

Sums = dict[str, int]
"""The number of rows, and the sums of ids, quantities and cents."""


def make_data(load: Load, folder: Path) -> Path:
    """Writes the load's files, and returns their folder. Files of an earlier load with the same key
    are reused.
    """
    place = folder / ("keyed" if load.keyed else "append")
    if load.mixed:
        place = folder / "mixed"
    place = place.with_name("-".join([place.name, *map(str, load.data_key[2:])]))
    if (place.parent / f"{place.name}.json").exists():
        return place
    place.mkdir(parents=True)
    random = np.random.default_rng(SEED)
    sums = _keyed(load, place, random) if load.keyed else _append(load, place, random)
    (place.parent / f"{place.name}.json").write_text(json.dumps(sums))
    return place


def expected(place: Path) -> Sums:
    """What a table must hold after all files of a folder are read."""
    sums: Sums = json.loads((place.parent / f"{place.name}.json").read_text())
    return sums


def sums_of(table: pa.Table) -> Sums:
    """The sums of Arrow rows with the columns `id`, `quantity` and `amount`."""
    amount = pc.sum(table["amount"]).as_py()
    return {
        "rows": table.num_rows,
        "id": pc.sum(table["id"]).as_py(),
        "quantity": pc.sum(table["quantity"]).as_py(),
        "cents": int(amount * 100),
    }


def _append(load: Load, place: Path, random: np.random.Generator) -> Sums:
    sums: Sums = {}
    files = load.all_batches * load.files_per_batch
    count = load.rows_per_batch // load.files_per_batch
    for number in range(files):
        rows = _rows(np.arange(number * count, (number + 1) * count), random)
        if load.mixed:
            rows = _mixed(rows, random)
        for name, value in sums_of(rows).items():
            sums[name] = sums.get(name, 0) + value
        _write(rows, place, number)
    return sums


def _keyed(load: Load, place: Path, random: np.random.Generator) -> Sums:
    """Each key occurs once in a batch. After the first batch, half of a batch's keys are in the
    table already.
    """
    count, half = load.rows_per_batch, load.rows_per_batch // 2
    known = 0
    quantities = np.zeros(load.all_rows, np.int64)
    cents = np.zeros(load.all_rows, np.int64)
    per_file = count // load.files_per_batch
    for batch in range(load.all_batches):
        fresh = count if batch == 0 else count - half
        old = random.choice(known, half, replace=False) if known else np.empty(0, np.int64)
        keys = np.concatenate([old, np.arange(known, known + fresh)])
        random.shuffle(keys)
        known += fresh
        rows = _rows(keys, random)
        quantities[keys] = rows["quantity"].to_numpy()
        # The low half of a decimal of 16 bytes.
        cents[keys] = np.frombuffer(rows["amount"].chunk(0).buffers()[1], np.int64)[::2]
        for part in range(load.files_per_batch):
            _write(
                rows.slice(part * per_file, per_file), place, batch * load.files_per_batch + part
            )
    return {
        "rows": known,
        "id": known * (known - 1) // 2,
        "quantity": int(quantities.sum()),
        "cents": int(cents.sum()),
    }


def _rows(ids: np.ndarray, random: np.random.Generator) -> pa.Table:
    count = len(ids)
    names = pa.array([f"customer{number:04d}" for number in range(_NAMES)])
    regions = pa.array([f"region{number}" for number in range(REGIONS)])
    cents = pa.array(random.integers(0, 10**7, count)).cast(pa.decimal128(19, 0))
    # A decimal's bytes are those of its cents: 16 each, whatever its scale.
    amount = pa.Array.from_buffers(_CENTS, count, cents.buffers())
    times = _START + ids * 1_000_000 + random.integers(0, 1_000_000, count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": names.take(pa.array(random.integers(0, _NAMES, count))),
            "amount": amount,
            "price": random.random(count) * 100,
            "at": pa.array(times).cast(pa.timestamp("us", "UTC")),
            "quantity": pa.array(random.integers(1, 50, count), pa.int32()),
            "note": _texts(count, random),
            "region": regions.take(pa.array(random.integers(0, REGIONS, count))),
        }
    )


def _mixed(rows: pa.Table, random: np.random.Generator) -> pa.Table:
    """The rows with the columns of `MIXED`."""
    count = rows.num_rows

    def codes() -> pa.Array:
        values = pa.array([f"code-{number:03d}" for number in range(200)])
        return values.take(pa.array(random.integers(0, len(values), count)))

    def decimals(kind: pa.DataType) -> pa.Array:
        unscaled = pa.array(random.integers(0, 10**12, count)).cast(pa.decimal128(19, 0))
        return pa.Array.from_buffers(kind, count, unscaled.buffers())

    def places() -> pa.Array:
        zips = pa.array(random.integers(0, 100_000, count), pa.int32())
        members = [codes(), zips, _texts(count, random, 20)]
        return pa.StructArray.from_arrays(members, ["city", "zip", "street"])

    def several(most: int) -> tuple[pa.Array, int]:
        offsets = np.append(0, np.cumsum(random.integers(0, most + 1, count))).astype(np.int32)
        return pa.array(offsets), int(offsets[-1])

    def tags() -> pa.Array:
        offsets, total = several(4)
        return pa.ListArray.from_arrays(offsets, _texts(total, random, 10))

    def labels() -> pa.Array:
        numbers = np.arange(count * 2) % 2
        keys = pa.array(["colour", "size"]).take(pa.array(numbers))
        offsets = pa.array(np.arange(count + 1, dtype=np.int32) * 2)
        return pa.MapArray.from_arrays(offsets, keys, _texts(count * 2, random, 10))

    made = {
        "code": codes,
        "text": lambda: _texts(count, random, 24),
        "price": lambda: decimals(pa.decimal128(18, 4)),
        "total": lambda: decimals(pa.decimal128(38, 10)),
        "place": places,
        "tags": tags,
        "labels": labels,
    }
    columns = {
        name: rows[name] if name in rows.column_names else made[name.rstrip("0123456789")]()
        for name, _ in MIXED
    }
    return pa.table(columns)


def _texts(count: int, random: np.random.Generator, characters: int = 40) -> pa.Array:
    """Texts of that many characters, an even number; hardly any two are equal."""
    letters = np.frombuffer(random.bytes(count * characters // 2).hex().encode(), np.uint8)
    offsets = np.arange(count + 1, dtype=np.int32) * characters
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
    )


def _write(rows: pa.Table, place: Path, number: int) -> None:
    """Writes one file. Spark reads files in the order of their times, so each file gets a different
    time.
    """
    path = place / f"part-{number:05d}.parquet"
    pq.write_table(rows, path, compression="snappy")
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
