"""What this package does with the options that were added to Paimon after 1.4.2, and with older
options that only engines for BLOBs, vectors and indexes use. `docs/options.md` has them as a table.

Ignoring an option must not make a table that others read wrongly. So if an option says how files
are made, or what must be kept besides the files, then the option is followed, or the table is
refused. An option that only makes other engines faster has no effect.
"""

from enum import Enum
from typing import Final, NamedTuple


class Treatment(Enum):
    """What is done with an option."""

    FOLLOWED = "followed"
    REFUSED = "refused"
    WARNED = "a warning"
    UNUSED = "no effect"


class NewerOptions(NamedTuple):
    """Options that are treated in the same way.

    Attributes:
        keys: the names of the options. `<column>` stands for the name of a column.
        treatment: what is done with these options.
        why: what follows from the treatment, as a sentence.
    """

    keys: tuple[str, ...]
    treatment: Treatment
    why: str


NEWER_OPTIONS: Final = (
    NewerOptions(
        (
            "compaction.small-file-ratio",
            "deletion-vectors.merge-on-read",
            "write.sequence-number-init-mode",
        ),
        Treatment.FOLLOWED,
        "As Java does.",
    ),
    NewerOptions(
        ("sequence.snapshot-ordering",),
        Treatment.REFUSED,
        "Such tables are not read, and not compacted.",
    ),
    NewerOptions(
        ("primary-key.nullable",),
        Treatment.REFUSED,
        "Keys may be NULL. Such tables are neither read nor written.",
    ),
    NewerOptions(
        ("query-auth.enabled",),
        Treatment.REFUSED,
        "Only the catalog's server knows which rows and columns a user may see. Such tables are not read.",
    ),
    NewerOptions(
        ("fields.<column>.map.storage-layout",),
        Treatment.REFUSED,
        "With shared-shredding, the files hold a MAP in columns of another form. Such tables are neither read nor "
        "written.",
    ),
    NewerOptions(
        (
            "pk-bitmap.index.columns",
            "pk-btree.index.columns",
            "pk-full-text.index.columns",
            "pk-multivalue.index.columns",
            "pk-vector.index.columns",
        ),
        Treatment.REFUSED,
        "A compaction has to build the indexes, so such tables are read and written, and not compacted.",
    ),
    NewerOptions(
        (
            "blob-descriptor-field",
            "blob-field",
            "blob-view-field",
            "vector-field",
            "video-frame-field",
        ),
        Treatment.REFUSED,
        "Such tables are not written. Columns of type BLOB and VECTOR are not read either.",
    ),
    NewerOptions(
        ("postpone.merge-on-read",),
        Treatment.WARNED,
        "Rows that wait in bucket -2 are shown after a compaction only, also by Java's core library. Reads warn, too.",
    ),
    NewerOptions(
        ("manifest-sort.enabled",),
        Treatment.WARNED,
        "Manifests are merged in the order of commits.",
    ),
    NewerOptions(
        ("target-file-row-num",),
        Treatment.WARNED,
        "Files are closed by their size alone.",
    ),
    NewerOptions(
        ("visibility-callback.enabled",),
        Treatment.WARNED,
        "A commit does not wait until a compaction or an index has its rows.",
    ),
    NewerOptions(
        (
            "manifest-sort.max-rewrite-size",
            "manifest-sort.partition-field",
            "manifest.merge-optimize.enabled",
            "manifest.sidecar.enabled",
            "visibility-callback.check-interval",
            "visibility-callback.timeout",
        ),
        Treatment.UNUSED,
        "How manifests are sorted, or how long a commit waits.",
    ),
    NewerOptions(
        ("compaction.skip-expired-partitions",),
        Treatment.UNUSED,
        "Partitions that are about to expire are compacted, too.",
    ),
    NewerOptions(
        ("row-tracking.partition-group-on-commit",),
        Treatment.UNUSED,
        "Row ids are given in the order of the files.",
    ),
    NewerOptions(
        (
            "postpone.batch-write-fixed-bucket.rescale-load-factor",
            "postpone.target-row-num-per-bucket",
            "postpone.target-size-per-bucket",
        ),
        Treatment.UNUSED,
        "Rows are always written into bucket -2, and `postpone.default-bucket-num` says where they go.",
    ),
    NewerOptions(
        (
            "data-evolution.compaction.rewrite-row-ids",
            "data-evolution.merge-into.file-pruning",
            "data-evolution.merge-into.source-persist",
            "data-evolution.reassign.skip-contiguous-row-count",
            "data-evolution.row-id-conflict-rewrite.max-size",
            "data-evolution.row-sidecar.enabled",
            "data-evolution.row-sidecar.max-selected-rows",
            "data-evolution.row-sidecar.max-selection-ratio",
            "data-evolution.write-cols-optimization.enabled",
        ),
        Treatment.UNUSED,
        "Updates and compactions of tables with data evolution, and files beside theirs that make reads faster.",
    ),
    NewerOptions(
        (
            "blob-as-descriptor",
            "blob-compaction.enabled",
            "blob-view.resolve.enabled",
            "blob-write-null-on-fetch-failure",
            "blob-write-null-on-missing-file",
            "blob.copy-buffer-size",
            "blob.split-by-file-size",
            "blob.target-file-size",
            "lookup.blob-as-descriptor",
            "mosaic.num-buckets",
            "mosaic.stats-columns",
            "variant.inferShreddingSchema",
            "variant.shredding.adaptive.maxInferBufferRow",
            "variant.shredding.adaptive.retentionRatio",
            "variant.shredding.inferenceMode",
            "variant.shredding.maxInferBufferRow",
            "variant.shredding.maxSchemaDepth",
            "variant.shredding.maxSchemaWidth",
            "variant.shredding.minFieldCardinalityRatio",
            "variant.shreddingSchema",
            "vector.file.format",
            "vector.target-file-size",
        ),
        Treatment.UNUSED,
        "Of BLOB, VARIANT and VECTOR columns and of Mosaic files, which are refused themselves.",
    ),
    NewerOptions(
        (
            "bitmap-index.compression",
            "bitmap-index.compression-level",
            "bitmap-index.dictionary-block-size",
            "bitmap-index.fallback-scan-max-size",
            "btree-index.block-size",
            "btree-index.bloom-filter.enabled",
            "btree-index.fallback-scan-max-size",
            "btree-index.records-per-range",
            "full-text-index.search-mode",
            "global-index.build.max-parallelism",
            "global-index.build.max-shard",
            "global-index.build.parallelism",
            "global-index.column-update-action",
            "global-index.enabled",
            "global-index.external-path",
            "global-index.filter.refine-from-data",
            "global-index.row-count-per-shard",
            "global-index.search-mode",
            "global-index.thread-num",
            "scalar-index.search-mode",
            "sorted-index.records-per-file",
            "vector-index.search-mode",
            "vector-search.distribute.enabled",
            "vector-search.lateral-join.batch-size",
        ),
        Treatment.UNUSED,
        "Of global indexes. None is used or built here, and a table that has one is not compacted.",
    ),
    NewerOptions(
        (
            "chain-table.split.key-range-enabled",
            "chain-table.streaming.merge-snapshot",
            "commit.native.enabled",
            "format-table.scan.list-parallelism",
            "local-cache.block-size",
            "local-cache.dir",
            "local-cache.enabled",
            "local-cache.max-size",
            "local-cache.whitelist",
            "local-kv-db.block-size",
            "lookup.cache-rows",
            "lookup.continuous.discovery-interval",
            "parquet.filter.columnindex.enabled",
            "parquet.write-page-index.enabled",
            "read.native.enabled",
            "read.parallelism",
            "scan.bucket",
            "scan.fallback-branch.read-fail-fast",
            "scan.native-plan.enabled",
            "scan.plan-auto-tag-for-read.time-retained",
            "write.native.enabled",
        ),
        Treatment.UNUSED,
        "How other engines read, and how they cache what they have read.",
    ),
)
