"""The options of tables, with Paimon's keys and defaults. A sink may override them for its own
writes.
"""

from paimon_stream.options.option import (
    Option,
    boolean,
    duration,
    file_prefix,
    integer,
    levels,
    names,
    one_of,
    positive,
    share,
    share_or_none,
    size,
    small,
    switch,
    text,
    time_form,
    word,
    zone,
)

BUCKET = Option("bucket", integer, "-1", "Number of buckets. -1: no fixed buckets.")
BUCKET_KEY = Option(
    "bucket-key", text, None, "Columns that decide a row's bucket, separated by commas."
)
BUCKET_FUNCTION = Option(
    "bucket-function.type", one_of("default", "mod", "hive"), "default", "How keys get a bucket."
)
FILE_FORMAT = Option("file.format", text, "parquet", "Format of data files.")
FILE_COMPRESSION = Option("file.compression", text, "zstd", "Compression of data files.")
ZSTD_LEVEL = Option(
    "file.compression.zstd-level", small, "1", "Level of zstd for data files and manifests."
)
FILE_BLOCK_SIZE = Option(
    "file.block-size", size, None, "Maximum size of a Parquet row group or an ORC stripe."
)
ORC_LTZ_LEGACY = Option(
    "orc.timestamp-ltz.legacy.type",
    boolean,
    "true",
    "true: Java shifts timestamps with local time zone in ORC files by its own time zone. Must be false for "
    "this package to write such columns.",
)
FILE_SUFFIX_COMPRESSION = switch(
    "file.suffix.include.compression", "Add the compression to data file names."
)
DATA_FILE_PREFIX = Option("data-file.prefix", file_prefix, "data-", "Prefix of data file names.")
DATA_FILE_DIRECTORY = Option(
    "data-file.path-directory", text, None, "Folder between the table and the partitions."
)
EXTERNAL_PATHS = Option(
    "data-file.external-paths", text, "", "Folders for data files, if there is a strategy."
)
EXTERNAL_STRATEGY = Option(
    "data-file.external-paths.strategy",
    one_of("none", "specific-fs", "round-robin", "weight-robin", "entropy-inject"),
    "none",
    "Which external path a new file gets. none: files lie in the table.",
)
EXTERNAL_FS = Option(
    "data-file.external-paths.specific-fs",
    word,
    "",
    "The scheme of the paths that specific-fs uses.",
)
EXTERNAL_WEIGHTS = Option(
    "data-file.external-paths.weights",
    lambda value: [positive(weight) for weight in value.split(",")],
    None,
    "With weight-robin, how many files each path gets, such as 1,3.",
)
FILE_FORMAT_PER_LEVEL = Option(
    "file.format.per.level",
    levels,
    "",
    "Formats by level, for tables with primary keys, such as 0:avro,5:parquet.",
)
FILE_COMPRESSION_PER_LEVEL = Option(
    "file.compression.per.level", levels, "", "Compressions by level (primary keys)."
)
STATS_MODE_PER_LEVEL = Option(
    "metadata.stats-mode.per.level", levels, "", "Statistics modes by level (primary keys)."
)
THIN_MODE = switch(
    "data-file.thin-mode", "Files of tables with primary keys store each key only once."
)
CHANGELOG_PRODUCER = Option(
    "changelog-producer",
    one_of("none", "input", "lookup", "full-compaction"),
    "none",
    "Who writes changelog files. none: nobody. input: each write stores the changes as they come. lookup and "
    "full-compaction: the job that compacts the table.",
)
CHANGELOG_ROW_DEDUPLICATE = switch(
    "changelog-producer.row-deduplicate", "Updates that change nothing are not logged."
)
CHANGELOG_IGNORED_COLUMNS = Option(
    "changelog-producer.row-deduplicate-ignore-fields",
    names,
    "",
    "Columns, divided by commas, whose changes are none for changelog-producer.row-deduplicate.",
)
FORCE_LOOKUP = switch(
    "force-lookup", "Compactions look up older values, as for the changelog producer lookup."
)
CHANGELOG_FILE_PREFIX = Option(
    "changelog-file.prefix", file_prefix, "changelog-", "Prefix of changelog file names."
)
CHANGELOG_FILE_FORMAT = Option("changelog-file.format", text, None, "Format of changelog files.")
CHANGELOG_FILE_COMPRESSION = Option(
    "changelog-file.compression", text, None, "Compression of changelog files."
)
CHANGELOG_FILE_STATS = Option(
    "changelog-file.stats-mode", text, None, "Statistics of each column of changelog files."
)
ROWKIND_FIELD = Option(
    "rowkind.field", text, None, "The column that holds each row's kind: +I, -U, +U or -D."
)
IGNORE_UPDATE_BEFORE = switch("ignore-update-before", "Drop -U rows.")
RECORD_EXPIRE_TIME = Option(
    "record-level.expire-time", duration, None, "Compactions drop rows older than this."
)
RECORD_TIME_FIELD = Option(
    "record-level.time-field",
    text,
    None,
    "The column with the time of a row for record-level.expire-time: TIMESTAMP, or seconds since 1970 in INT "
    "or BIGINT, or milliseconds in BIGINT.",
)
TARGET_FILE_SIZE = Option(
    "target-file-size",
    size,
    None,
    "A data file is closed at this size. If not set: 256 mb for append tables, 128 mb with a primary key.",
)
STATS_MODE = Option("metadata.stats-mode", text, "truncate(16)", "Statistics kept for each column.")
STATS_DENSE = Option(
    "metadata.stats-dense-store", boolean, "true", "Store no entry for columns without statistics."
)
STATS_FIRST_N = Option(
    "metadata.stats-keep-first-n-columns",
    integer,
    "-1",
    "Keep statistics only for this number of columns, counted from the first. -1: for all columns.",
)
PARTITION_DEFAULT_NAME = Option(
    "partition.default-name",
    text,
    "__DEFAULT_PARTITION__",
    "Folder name for null and blank partition values.",
)
PARTITION_LEGACY_NAME = Option(
    "partition.legacy-name",
    boolean,
    "true",
    "Write dates and times in folder names as Paimon 0.x did.",
)
MANIFEST_COMPRESSION = Option("manifest.compression", text, "zstd", "Avro codec of manifests.")
MANIFEST_FORMAT = Option("manifest.format", one_of("avro"), "avro", "Format of manifests.")
MANIFEST_TARGET_SIZE = Option(
    "manifest.target-file-size",
    size,
    "8 mb",
    "A manifest is closed when it reaches this size. Smaller manifests are merged until they reach it.",
    aliases=("manifest-target-size",),
)
MANIFEST_MERGE_MIN_COUNT = Option(
    "manifest.merge-min-count",
    positive,
    "30",
    "The number of small manifests at which they are merged.",
    aliases=("manifest-merge-min-count",),
)
MANIFEST_FULL_COMPACTION_SIZE = Option(
    "manifest.full-compaction-threshold-size",
    size,
    "16 mb",
    "All changed manifests are rewritten when their total size reaches this.",
    aliases=("manifest-full-compaction-size",),
)
MANIFEST_DROP_DELETE_STATS = switch(
    "manifest.delete-file-drop-stats", "Statistics of deleted files are stored anyway."
)
PARTITION_EXPIRATION_TIME = Option(
    "partition.expiration-time", duration, None, "Older partitions are dropped."
)
PARTITION_STRATEGY = Option(
    "partition.expiration-strategy",
    one_of("values-time", "update-time"),
    "values-time",
    "values-time: a partition is as old as the time in its values. update-time: as old as its newest file.",
)
PARTITION_INTERVAL = Option(
    "partition.expiration-check-interval", duration, "1 h", "How often partitions expire."
)
PARTITION_AT_END = switch(
    "end-input.check-partition-expire", "Partitions expire after each batch write."
)
PARTITION_MOST = Option(
    "partition.expiration-max-num", positive, "100", "At most this many partitions expire at once."
)
PARTITION_BATCH = Option(
    "partition.expiration-batch-size",
    integer,
    None,
    "The largest number that one snapshot drops. If not set: all.",
)
PARTITION_FORM = Option(
    "partition.timestamp-formatter",
    time_form,
    None,
    "The form of the times in partition values, as Java's DateTimeFormatter has it. If not set: yyyy-M-d[ H:m:s[.S]].",
)
PARTITION_PATTERN = Option(
    "partition.timestamp-pattern",
    text,
    None,
    "How the partition columns make a time, such as $dt $hour:00:00. If not set: the first column is one.",
)
PARTITION_STRICT = switch(
    "partition.timestamp-format.strict", "Values that name no time are written with a warning."
)
OF_PARTITIONS = (
    PARTITION_EXPIRATION_TIME,
    PARTITION_STRATEGY,
    PARTITION_MOST,
    PARTITION_BATCH,
    PARTITION_FORM,
    PARTITION_PATTERN,
)
COMMIT_USER_PREFIX = Option("commit.user-prefix", text, None, "Prefix of generated commit users.")
COMMIT_TIMEOUT = Option(
    "commit.timeout",
    duration,
    "10 min",
    "A commit is retried for at most this time. (Java has no limit.)",
    aliases=("commit-timeout",),
)
COMMIT_MAX_RETRIES = Option(
    "commit.max-retries",
    integer,
    "10",
    "Maximum retries of a commit.",
    aliases=("commit-max-retries",),
)
COMMIT_MIN_RETRY_WAIT = Option(
    "commit.min-retry-wait", duration, "10 ms", "Shortest wait between retries."
)
COMMIT_MAX_RETRY_WAIT = Option(
    "commit.max-retry-wait", duration, "10 s", "Longest wait between retries."
)
IGNORE_EMPTY_COMMIT = Option(
    "snapshot.ignore-empty-commit", boolean, "true", "A batch without rows makes no snapshot."
)
FORCE_CREATE_SNAPSHOT = switch(
    "commit.force-create-snapshot", "A batch without rows creates a snapshot, too."
)
DYNAMIC_OVERWRITE = Option(
    "dynamic-partition-overwrite",
    boolean,
    "true",
    "An overwrite that names no partition replaces only partitions that get rows. false: it replaces the whole table.",
)
OVERWRITE_UPGRADE = Option(
    "overwrite-upgrade",
    boolean,
    "true",
    "When an overwrite replaces a bucket of a table with a primary key and the new files share no key, they "
    "are placed at the bucket's top level, so that readers need not merge them.",
)
NUM_LEVELS = Option(
    "num-levels",
    positive,
    None,
    "Number of levels in a bucket of a table with a primary key. If not set: num-sorted-run.compaction-trigger plus 1.",
)
STRICT_MODE = Option(
    "commit.strict-mode.last-safe-snapshot",
    integer,
    None,
    "A commit fails if another user compacted or overwrote the table after this snapshot. -1: after the "
    "snapshot that is the newest at the first commit.",
)
DISCARD_DUPLICATES = switch(
    "commit.discard-duplicate-files",
    "An append skips files that are already in the table instead of failing. It then runs the same checks as a replay.",
)
SNAPSHOT_TIME_RETAINED = Option(
    "snapshot.time-retained", duration, "1 h", "Snapshots are kept at least this long."
)
SNAPSHOT_NUM_RETAINED_MIN = Option(
    "snapshot.num-retained.min", positive, "10", "At least this many snapshots stay."
)
SNAPSHOT_NUM_RETAINED_MAX = Option(
    "snapshot.num-retained.max",
    positive,
    "2147483647",
    "At most this many snapshots stay, however young they are.",
)
SNAPSHOT_EXPIRE_LIMIT = Option(
    "snapshot.expire.limit", positive, "50", "At most this many snapshots expire at once."
)
SNAPSHOT_EXPIRE_MODE = Option(
    "snapshot.expire.execution-mode",
    one_of("sync", "async"),
    "sync",
    "sync: after its commit, a batch waits for the expiry for at most 10 seconds. async: it does not wait. "
    "In an object store or HDFS it waits only if sync is set. A process that ends waits for it for that long.",
)
CLEAN_EMPTY_DIRECTORIES = switch(
    "snapshot.clean-empty-directories",
    "Expiry also deletes the bucket and partition folders that it has emptied.",
    aliases=("snapshot.expire.clean-empty-directories",),
)
CHANGELOG_NUM_RETAINED_MIN = Option(
    "changelog.num-retained.min",
    positive,
    None,
    "At least this number of snapshots and changelogs is kept. If larger than snapshot.num-retained.min, changelogs "
    "outlive their snapshots.",
)
CHANGELOG_NUM_RETAINED_MAX = Option(
    "changelog.num-retained.max",
    positive,
    None,
    "At most this number of snapshots and changelogs is kept. If larger than snapshot.num-retained.max, changelogs "
    "outlive their snapshots.",
)
CHANGELOG_TIME_RETAINED = Option(
    "changelog.time-retained",
    duration,
    None,
    "Changelogs younger than this are kept. If longer than snapshot.time-retained, they outlive their snapshots.",
)
CONSUMER_CHANGELOG_ONLY = switch(
    "consumer.changelog-only",
    "Where changelogs outlive their snapshots, consumers keep only changelogs from expiring, not snapshots.",
)
TAG_TIME_RETAINED = Option(
    "tag.default-time-retained", duration, None, "How long new tags stay. If not set: forever."
)
TAG_TIME_EXPIRE = Option(
    "tag.time-expire-enabled", boolean, "true", "Expired tags are deleted after commits."
)
TAG_AUTOMATIC_CREATION = Option(
    "tag.automatic-creation",
    one_of("none", "process-time", "watermark", "batch"),
    "none",
    "Whether tags are created after commits: when a period has ended, by the time of commits or by the watermarks of "
    "snapshots, or (batch) after each commit that is not a stream's.",
)
TAG_CREATION_PERIOD = Option(
    "tag.creation-period",
    one_of("daily", "hourly", "two-hours"),
    "daily",
    "The period of an automatic tag.",
)
TAG_PERIOD_DURATION = Option(
    "tag.creation-period-duration",
    duration,
    None,
    "The period of an automatic tag, instead of tag.creation-period. The name of a tag then has the minute, too.",
)
TAG_CREATION_DELAY = Option(
    "tag.creation-delay",
    duration,
    "0 ms",
    "How long after the end of a period its tag is created, for rows that come late. Shorter than the period.",
)
TAG_PERIOD_FORMATTER = Option(
    "tag.period-formatter",
    one_of("with_dashes", "without_dashes", "without_dashes_and_spaces"),
    "with_dashes",
    "How automatic tags of days and hours are named: 2026-11-30 17, 20261130 17 or 2026113017.",
)
TAG_AUTOMATIC_COMPLETION = switch(
    "tag.automatic-completion", "Periods without a commit get a tag and a snapshot."
)
TAG_NUM_RETAINED_MAX = Option(
    "tag.num-retained-max",
    positive,
    None,
    "The most automatic tags; in mode batch, the most tags. Older ones are deleted when one is created.",
)
TAG_BATCH_NAME = Option(
    "tag.batch.customized-name",
    file_prefix,
    None,
    "The tag of mode batch. If not set: batch-write-2026-11-30.",
)
TAG_CALLBACKS = Option(
    "tag.callbacks", text, "", "Java classes. They are not called, and a warning says so."
)
TAG_SUCCESS_FILE = switch(
    "tag.create-success-file", "No file is written beside a tag, and a warning says so."
)
PROCESS_TIME_ZONE = Option(
    "sink.process-time-zone",
    zone,
    None,
    "The time zone of automatic tags by the time of commits, such as Europe/Berlin. If not set: the system's.",
)
WATERMARK_TIME_ZONE = Option(
    "sink.watermark-time-zone", zone, "UTC", "The time zone of automatic tags by watermarks."
)
FILE_OPERATION_THREADS = Option(
    "file-operation.thread-num",
    positive,
    "8",
    "Number of threads that delete files when many are to be deleted.",
    aliases=("delete-file.thread-num",),
)
INDEX_IN_DATA_DIR = switch(
    "index-file-in-data-file-dir", "Index files are stored beside the data files."
)
CONFLICT_DETECTION = Option(
    "conflict-detection-mode",
    one_of("none", "value", "row_incremental"),
    "value",
    "Which conflict checks a commit makes. value: all that apply, and each commit reads the table's files anew. "
    "row_incremental: the same checks, but each commit reads only what was committed since the one before. none: "
    "appends are checked only for their bucket count. Commits that remove files are always checked.",
)
SEQUENCE_INIT_MODE = Option(
    "write.sequence-number-init-mode",
    one_of("scan", "snapshot"),
    "scan",
    "snapshot: each snapshot of a table with a primary key stores the largest sequence number, so that new "
    "writers need not look for it. scan: it does not.",
)
STOP_TRIGGER = Option(
    "num-sorted-run.stop-trigger",
    positive,
    None,
    "A stream warns when a bucket has more sorted runs than this, because its compaction cannot keep up or nobody "
    "compacts. If not set: num-sorted-run.compaction-trigger plus 3.",
)
FULL_COMPACTION_COMMITS = Option(
    "full-compaction.delta-commits",
    positive,
    None,
    "A stream that compacts merges all runs of the buckets of each batch whose number + 1 is divisible by this.",
)
PARTITIONED_IN_METASTORE = switch(
    "metastore.partitioned-table",
    "A Hive Metastore is told of the partitions. It is set when the table is created in a Hive catalog.",
)
TAG_TO_PARTITION = Option(
    "metastore.tag-to-partition",
    text,
    None,
    "A Hive Metastore is told of the tags, as partitions of a column with this name, which the table does not have. "
    "It is set when the table is created in a Hive catalog.",
)
TAG_TO_PARTITION_PREVIEW = Option(
    "metastore.tag-to-partition.preview",
    one_of("none", "process-time", "watermark", "batch"),
    "none",
    "A commit tells the metastore of the tag of the present period, too, which is created later: by the time of the "
    "commit, or by the watermark of its snapshot. none, batch: it does not.",
)
WRITE_ONLY = switch(
    "write-only",
    "Writers leave compaction and expiry to others.",
    aliases=("write.compaction-skip",),
)
BUCKET_APPEND_ORDERED = Option(
    "bucket-append-ordered",
    boolean,
    "true",
    "Java's readers keep the order of files in a bucket. Ours always keep it.",
)
POSTPONE_BUCKETS = Option(
    "postpone.default-bucket-num",
    positive,
    "1",
    "Buckets of a partition whose first rows waited in bucket -2.",
)
DYNAMIC_TARGET_ROWS = Option(
    "dynamic-bucket.target-row-num", positive, "2000000", "The most keys of a dynamic bucket."
)
DYNAMIC_MAX_BUCKETS = Option(
    "dynamic-bucket.max-buckets", integer, "-1", "Most buckets of a partition. -1: no limit."
)
DYNAMIC_INITIAL_BUCKETS = Option(
    "dynamic-bucket.initial-buckets", positive, None, "The most tasks that open buckets."
)
DYNAMIC_PARALLELISM = Option(
    "dynamic-bucket.assigner-parallelism",
    positive,
    None,
    "Tasks that open buckets. If not set: the cores, at most 8.",
)

# Options that say how rows of one key are merged.
MERGE_ENGINE = Option(
    "merge-engine",
    one_of("deduplicate", "partial-update", "aggregation", "first-row"),
    "deduplicate",
    "How rows with the same key are merged.",
)
SEQUENCE_FIELD = Option(
    "sequence.field",
    text,
    "",
    "Columns that order the rows of one key, separated by commas. If not set: their order of arrival.",
)
SEQUENCE_SORT_ORDER = Option(
    "sequence.field.sort-order",
    one_of("ascending", "descending"),
    "ascending",
    "Whether the largest or the smallest value of sequence.field is the newest.",
)
IGNORE_DELETE = switch(
    "ignore-delete",
    "Ignore -D rows.",
    aliases=(
        "first-row.ignore-delete",
        "deduplicate.ignore-delete",
        "partial-update.ignore-delete",
    ),
)
DEFAULT_AGGREGATE_FUNCTION = Option(
    "fields.default-aggregate-function", text, None, "The columns' default function."
)
AGGREGATION_REMOVE_ON_DELETE = switch(
    "aggregation.remove-record-on-delete", "A -D row deletes, and retracts nothing."
)
PARTIAL_UPDATE_REMOVE_ON_DELETE = switch(
    "partial-update.remove-record-on-delete", "A -D row deletes the whole row."
)
PARTIAL_UPDATE_REMOVE_ON_SEQUENCE_GROUP = Option(
    "partial-update.remove-record-on-sequence-group",
    text,
    "",
    "Columns that order sequence groups, separated by commas. A -D row in such a group deletes the row.",
)

# Options that this release refuses, or that only other engines use.
TABLE_TYPE = Option(
    "type", word, "table", "Kind of table. Only ordinary tables are read and written."
)
BRANCH = Option("branch", word, "main", "Set in a table, it must be the branch that is opened.")
FALLBACK_BRANCH = Option(
    "scan.fallback-branch", text, "", "Readers also see another branch. Such tables are not read."
)
PRIMARY_BRANCH = Option(
    "scan.primary-branch", text, "", "As scan.fallback-branch, the other way round."
)
DELETION_VECTORS = switch(
    "deletion-vectors.enabled",
    "Deleted rows are marked, and their files are not rewritten. Readers of tables with primary keys see rows only "
    "after a compaction.",
)
BITMAP64 = switch("deletion-vectors.bitmap64", "Deletion vectors are bitmaps of 64 bits.")
VECTORS_TARGET_SIZE = Option(
    "deletion-vector.index-file.target-size",
    size,
    "2 mb",
    "Size from which on a new file with deletion vectors is begun, in append tables without buckets.",
)
DELETION_VECTORS_MERGE_ON_READ = switch(
    "deletion-vectors.merge-on-read",
    "Readers merge the files of level 0 although the table has deletion vectors.",
)
ROW_TRACKING = switch(
    "row-tracking.enabled", "Rows of append tables have ids, which compactions keep."
)
DATA_EVOLUTION = switch(
    "data-evolution.enabled",
    "Columns may have files of their own. Whole rows are appended and overwritten, and nothing is compacted or deleted.",
)
PK_CLUSTERING_OVERRIDE = switch(
    "pk-clustering-override", "Files are not sorted by key. Such tables are refused."
)
CLUSTERING_INCREMENTAL = switch(
    "clustering.incremental", "Such tables are written, but only Java compacts them."
)
LOOKUP_REMOTE_FILES = switch(
    "lookup.remote-file.enabled",
    "Compactions keep files for look-ups in the table. Such tables are not compacted.",
)
CHAIN_TABLE = switch(
    "chain-table.enabled", "Partitions build on each other. Such tables are not compacted."
)
SNAPSHOT_ORDERING = switch(
    "sequence.snapshot-ordering", "Rows are ordered by snapshot. Such tables are not read."
)
PRIMARY_KEY_NULLABLE = switch(
    "primary-key.nullable", "Keys may be NULL. Such tables are neither read nor written."
)
QUERY_AUTH = switch(
    "query-auth.enabled", "A server decides what each user may read. Such tables are not read."
)


def _pk_index(key: str) -> Option[str]:
    return Option(key, text, "", "Columns with such an index. The table is not compacted.")


PK_BITMAP_INDEX = _pk_index("pk-bitmap.index.columns")
PK_BTREE_INDEX = _pk_index("pk-btree.index.columns")
PK_FULL_TEXT_INDEX = _pk_index("pk-full-text.index.columns")
PK_MULTIVALUE_INDEX = _pk_index("pk-multivalue.index.columns")
PK_VECTOR_INDEX = _pk_index("pk-vector.index.columns")
BLOB_FIELD = Option("blob-field", text, "", "Columns that are BLOBs. The table is not written.")
BLOB_DESCRIPTOR_FIELD = Option(
    "blob-descriptor-field",
    text,
    "",
    "Columns that say where BLOBs are. The table is not written.",
    aliases=("blob.stored-descriptor-fields",),
)
BLOB_VIEW_FIELD = Option(
    "blob-view-field",
    text,
    "",
    "Columns that name BLOBs of other tables. The table is not written.",
)
VIDEO_FRAME_FIELD = Option(
    "video-frame-field", text, "", "Columns that are frames of videos. The table is not written."
)
VECTOR_FIELD = Option(
    "vector-field", text, "", "Columns that are vectors. The table is not written."
)
POSTPONE_MERGE_ON_READ = switch(
    "postpone.merge-on-read",
    "Warns that rows of bucket -2 are not shown before a compaction.",
)
MANIFEST_SORT = switch(
    "manifest-sort.enabled", "Warns that manifests are merged in the order of commits."
)
TARGET_FILE_ROWS = Option(
    "target-file-row-num",
    positive,
    str(2**63 - 1),
    "Warns that data files are closed by their size alone.",
)
VISIBILITY_CALLBACK = switch(
    "visibility-callback.enabled",
    "Warns that commits do not wait until compactions and indexes have their rows.",
)
COMMIT_CALLBACKS = Option(
    "commit.callbacks", text, "", "Java classes. They are not called, and a warning says so."
)
ICEBERG_STORAGE = Option(
    "metadata.iceberg.storage", word, "disabled", "Warns that no Iceberg metadata is written."
)
EXPLICIT_CAST = switch(
    "write.merge-schema.explicit-cast", "Columns are only widened, and a warning says so."
)

# Options that say how compactions choose their files. A single compaction may override those whose
# names here begin with COMPACTION (`compaction_options`).
COMPACTION_MIN_FILES = Option(
    "compaction.min.file-num",
    positive,
    "5",
    "Number of small files of an append table's partition or bucket from which on they are compacted.",
)
COMPACTION_DELETE_RATIO = Option(
    "compaction.delete-ratio-threshold",
    share_or_none,
    "0.2",
    "A file of an append table without buckets is compacted if more than this share of its rows is deleted.",
)
COMPACTION_FILE_LIMIT = Option(
    "compaction.file-num-limit",
    positive,
    "100000",
    "One compaction of an append table without buckets takes at most this number of files.",
)
COMPACTION_SMALL_RATIO = Option(
    "compaction.small-file-ratio",
    share,
    "0.7",
    "A file is small if its size is below this share of target-file-size.",
)
COMPACTION_REWRITE_ALL = switch(
    "compaction.force-rewrite-all-files", "A full compaction rewrites large files, too."
)
COMPACTION_OPEN_FILE_COST = Option(
    "source.split.open-file-cost",
    size,
    "4 mb",
    "A compaction of an append table without buckets counts each file as this much larger.",
)
COMPACTION_TRIGGER = Option(
    "num-sorted-run.compaction-trigger",
    positive,
    "5",
    "A bucket of a table with a primary key is compacted at this number of sorted runs. See "
    "num-sorted-run.stop-trigger.",
)
COMPACTION_AMPLIFICATION = Option(
    "compaction.max-size-amplification-percent",
    integer,
    "200",
    "All runs are merged if the newer ones are larger than this percentage of the oldest.",
)
COMPACTION_SIZE_RATIO = Option(
    "compaction.size-ratio", integer, "1", "Per cent by which the next run may be larger."
)
COMPACTION_OFFPEAK_START = Option(
    "compaction.offpeak.start.hour",
    integer,
    "-1",
    "First off-peak hour of the local day. -1: there is none.",
)
COMPACTION_OFFPEAK_END = Option(
    "compaction.offpeak.end.hour", integer, "-1", "The hour after the off-peak. -1: none."
)
COMPACTION_OFFPEAK_RATIO = Option(
    "compaction.offpeak-ratio", integer, "0", "Added to compaction.size-ratio off-peak."
)
COMPACTION_INTERVAL = Option(
    "compaction.optimization-interval",
    duration,
    None,
    "All runs are merged this often. For a single compaction any value means: now.",
)
COMPACTION_TOTAL_SIZE = Option(
    "compaction.total-size-threshold",
    size,
    None,
    "All runs are merged if they are smaller together.",
)
COMPACTION_INCREMENTAL_SIZE = Option(
    "compaction.incremental-size-threshold",
    size,
    None,
    "All runs are merged if those below the highest level are larger together.",
)
COMPACTION_FORCE_UP = switch(
    "compaction.force-up-level-0", "Each compaction takes all files of level 0."
)
