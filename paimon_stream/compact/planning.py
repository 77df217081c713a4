"""Plans a compaction of a table's live files, and finds what carries the units out."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

from paimon_stream.compact.append_plan import Thresholds, plan_append
from paimon_stream.compact.compactable import check_indexes
from paimon_stream.compact.keyed_plan import KeyedThresholds, next_unit
from paimon_stream.compact.older_rows import RecordExpiry
from paimon_stream.compact.rewrite import KeyedRewriter, Rewriter
from paimon_stream.compact.units import Bucket, KeyedUnit, Unit, bucket_of
from paimon_stream.errors import FormatError
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.types import TypeRoot
from paimon_stream.read.keyed import buckets
from paimon_stream.read.scan import Scan
from paimon_stream.reports import Progress
from paimon_stream.runtime import Runtime
from paimon_stream.table.schema import SchemaStore

_MILLIS_OF_HOUR: Final = 3_600_000


def plan_units(
    scan: Scan,
    runtime: Runtime,
    wrong: Callable[[FormatError, ManifestEntry], object],
    *,
    full: bool,
    early: bool = True,
    only: Collection[Bucket] | None = None,
) -> tuple[Thresholds | KeyedThresholds, list[Unit]]:
    """The units of the scan's files; with `only`, just those of these buckets. Without `early`,
    `compaction.optimization-interval` has not passed. Where keys or levels are wrong,
    there is none, and `wrong` is called with the error and a file of the bucket. Raises as `check_indexes`."""
    check_indexes(scan.table, scan.snapshot)
    options, spec = scan.table.options, scan.merge
    if spec is None:
        limits = Thresholds.of(options)
        units = plan_append(scan.files, limits, full=full)
        return limits, [one for one in units if only is None or one.bucket in only]
    thresholds, types = keyed_limits(scan, runtime, early=early), [scan.schema.field(name).type for name in spec.keys]
    found: list[Unit] = []
    for files in buckets(one for one in scan.files if only is None or bucket_of(one) in only):
        try:
            unit = next_unit(files, spec, types, thresholds, full=full)
        except FormatError as why:
            wrong(why, files[0])
            continue
        found += [] if unit is None else [unit]
    return thresholds, found


def keyed_limits(scan: Scan, runtime: Runtime, *, early: bool = True) -> KeyedThresholds:
    """The thresholds of a table with a primary key, now. See `plan_units`. Raises `InvalidOption`."""
    options, spec = scan.table.options, scan.merge
    assert spec is not None
    hour = runtime.clock.local_millis() // _MILLIS_OF_HOUR % 24
    sums = [name for name, rule in spec.rules.items() if rule.function == "sum"]
    # The sum of a part may be too large for the type although that of all is not.
    decimals = any(scan.schema.field(name).type.root is TypeRoot.DECIMAL for name in sums)
    schemas, now = SchemaStore(scan.table.storage), runtime.clock.now_millis()
    expiry = RecordExpiry.of(scan.schema, options, schemas, now)
    names = scan.schema.field_names
    limits = KeyedThresholds.of(spec, options, hour, columns=names, as_whole=decimals, expiry=expiry)
    return limits if early else replace(limits, always_full=False)


def rewriter_of(
    scan: Scan, limits: Thresholds | KeyedThresholds, units: Sequence[Unit], runtime: Runtime, progress: Progress
) -> Rewriter:
    """What carries out these units. Raises `ConfigError`s."""
    if isinstance(limits, Thresholds):
        return Rewriter(scan, runtime, progress, units)
    keyed = [one for one in units if isinstance(one, KeyedUnit)]
    return KeyedRewriter(scan, runtime, progress, keyed, limits)
