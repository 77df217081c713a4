"""The loads, and the goals for ours."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["COLD", "COLUMNS", "COMPACTED", "DDL", "LOADS", "MIXED", "Goal", "Load", "load_from"]

COLUMNS = (
    ("id", "bigint"),
    ("name", "string"),
    ("amount", "decimal(12,2)"),
    ("price", "double"),
    ("at", "timestamp"),
    ("quantity", "int"),
    ("note", "string"),
    ("region", "string"),
)
DDL = ", ".join(f"{name} {kind}" for name, kind in COLUMNS)
MIXED = (
    ("id", "bigint"),
    ("quantity", "int"),
    ("amount", "decimal(12,2)"),
    *((f"code{number}", "string") for number in range(4)),
    *((f"text{number}", "string") for number in range(4)),
    *((f"price{number}", "decimal(18,4)") for number in range(2)),
    *((f"total{number}", "decimal(38,10)") for number in range(2)),
    *((f"place{number}", "struct<city:string,zip:int,street:string>") for number in range(2)),
    *((f"tags{number}", "array<string>") for number in range(2)),
    ("labels", "map<string,string>"),
)
"""Twenty columns of text, decimals and nested values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A goal: our `figure` divided by the peer's (with `minus`: the difference of the two) is at
    most `limit`.

    With `peer_load`, the peer's figure comes from another load of the same run. With `above`, that
    system's figure is first taken from both, as the part that no sink can save.
    """

    text: str
    figure: str
    peer: str
    limit: float
    minus: bool = False
    peer_load: str | None = None
    above: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One stream: `warm_up` micro-batches that are not measured, then `batches` micro-batches that
    are. Each has `files_per_batch` files. With `compacted`, the systems that can compact beside the
    stream do so. With `mixed`, the columns are those of `MIXED`.
    """

    name: str
    title: str
    batches: int = 10
    warm_up: int = 2
    rows_per_batch: int = 200_000
    files_per_batch: int = 2
    partitioned: bool = False
    buckets: int = 0
    keyed: bool = False
    compacted: bool = False
    mixed: bool = False
    without: tuple[str, ...] = ()
    goals: tuple[Goal, ...] = ()

    @property
    def all_batches(self) -> int:
        """The number of batches, including those that are not measured."""
        return self.warm_up + self.batches

    @property
    def rows(self) -> int:
        """The rows of the batches that are measured."""
        return self.batches * self.rows_per_batch

    @property
    def all_rows(self) -> int:
        """The rows of the whole stream."""
        return self.all_batches * self.rows_per_batch

    @property
    def ddl(self) -> str:
        """The columns of the rows, as Spark writes them."""
        return ", ".join(f"{name} {kind}" for name, kind in MIXED) if self.mixed else DDL

    @property
    def data_key(self) -> tuple[object, ...]:
        """The key of the files. Loads with the same key read the same files."""
        return (self.keyed, self.mixed, self.all_batches, self.rows_per_batch, self.files_per_batch)

    def as_json(self) -> dict[str, Any]:
        """The fields that a child process needs."""
        return {**asdict(self), "goals": ()}


def load_from(fields: dict[str, Any]) -> Load:
    """The inverse of `as_json`."""
    return Load(**fields)


_CPU, _WALL = "cpu", "wall"

LOADS: dict[str, Load] = {
    load.name: load
    for load in (
        Load(
            name="L1",
            title="append, unpartitioned",
            goals=(
                Goal(text="CPU ≤ 0.75 × Spark parquet", figure=_CPU, peer="parquet", limit=0.75),
                Goal(text="CPU ≤ 1.0 × pypaimon", figure=_CPU, peer="pypaimon", limit=1.0),
                Goal(text="wall ≤ Spark parquet", figure=_WALL, peer="parquet", limit=1.0),
            ),
        ),
        Load(
            name="L2",
            title="append, 5 partitions",
            partitioned=True,
            goals=(
                Goal(text="CPU ≤ 0.62 × Spark parquet", figure=_CPU, peer="parquet", limit=0.62),
                Goal(text="fewer files than the jar", figure="files", peer="jar", limit=0.99),
            ),
        ),
        Load(
            name="L3",
            title="append, 8 buckets",
            buckets=8,
            without=("parquet", "delta"),
            goals=(
                Goal(text="CPU ≤ 0.62 × Iceberg", figure=_CPU, peer="iceberg", limit=0.62),
                Goal(text="CPU ≤ 0.35 × pypaimon", figure=_CPU, peer="pypaimon", limit=0.35),
                Goal(text="CPU ≤ 0.55 × the jar", figure=_CPU, peer="jar", limit=0.55),
                Goal(
                    text="CPU ≤ 1.1 × our own L1",
                    figure=_CPU,
                    peer="ours",
                    limit=1.1,
                    peer_load="L1",
                ),
                Goal(text="no more files than the jar", figure="files", peer="jar", limit=1.0),
            ),
        ),
        Load(
            name="L4",
            title="upserts by primary key, half of them updates, 4 buckets",
            rows_per_batch=100_000,
            buckets=4,
            keyed=True,
            without=("parquet",),
            goals=(
                Goal(text="CPU ≤ 0.45 × the jar", figure=_CPU, peer="jar", limit=0.45),
                Goal(text="CPU ≤ 0.22 × pypaimon", figure=_CPU, peer="pypaimon", limit=0.22),
                Goal(text="no more files than the jar", figure="files", peer="jar", limit=1.0),
            ),
        ),
        Load(
            name="L5",
            title="tiny batches",
            batches=200,
            rows_per_batch=1_000,
            files_per_batch=1,
            goals=(
                Goal(
                    text="CPU over noop ≤ 0.6 × pypaimon's",
                    figure=_CPU,
                    peer="pypaimon",
                    above="noop",
                    limit=0.6,
                ),
                Goal(
                    text="p50 over noop ≤ 0.6 × pypaimon's",
                    figure="p50",
                    peer="pypaimon",
                    above="noop",
                    limit=0.6,
                ),
                Goal(text="p50 ≤ noop + 30 ms", figure="p50", peer="noop", limit=30, minus=True),
                Goal(
                    text="early: p50 ≤ noop + 30 ms",
                    figure="first",
                    peer="noop",
                    limit=30,
                    minus=True,
                ),
                Goal(
                    text="late: p50 ≤ noop + 30 ms",
                    figure="last",
                    peer="noop",
                    limit=30,
                    minus=True,
                ),
            ),
        ),
        Load(
            name="L6",
            title="append, 20 columns of text, decimals and nested values",
            mixed=True,
            goals=(Goal(text="CPU ≤ 0.8 × Spark parquet", figure=_CPU, peer="parquet", limit=0.8),),
        ),
    )
}

COMPACTED = Load(
    name="compacted",
    title="upserts by primary key, half of them updates, 4 buckets, compacted by the stream",
    batches=195,
    warm_up=5,
    rows_per_batch=100_000,
    buckets=4,
    keyed=True,
    compacted=True,
)
COLD = Load(
    name="cold",
    title="the first batch of a new process, append, unpartitioned",
    batches=1,
    warm_up=0,
    goals=(
        Goal(
            text="first commit ≤ Spark parquet's + 0.7 s",
            figure="first_s",
            peer="parquet",
            limit=0.7,
            minus=True,
        ),
        Goal(
            text="CPU ≤ Spark parquet's + 0.7 s",
            figure=_CPU,
            peer="parquet",
            limit=0.7,
            minus=True,
        ),
    ),
)
