"""The options of compactions, with Paimon's keys and defaults. One compaction may override them."""

from paimon_stream.options.option import Option, duration, integer, positive, share, share_or_none, size, switch

COMPACTION_MIN_FILES = Option(
    "compaction.min.file-num", positive, "5",
    "Number of small files of an append table's partition or bucket from which on they are compacted.")  # fmt: skip
COMPACTION_DELETE_RATIO = Option(
    "compaction.delete-ratio-threshold", share_or_none, "0.2",
    "A file of an append table without buckets is compacted if more than this share of its rows is deleted.",
)  # fmt: skip
COMPACTION_FILE_LIMIT = Option(
    "compaction.file-num-limit", positive, "100000",
    "One compaction of an append table without buckets takes at most this number of files.")  # fmt: skip
COMPACTION_SMALL_RATIO = Option(
    "compaction.small-file-ratio", share, "0.7", "A file is small if its size is below this share of target-file-size."
)
COMPACTION_REWRITE_ALL = switch("compaction.force-rewrite-all-files", "A full compaction rewrites large files, too.")
SPLIT_OPEN_FILE_COST = Option(
    "source.split.open-file-cost", size, "4 mb",
    "A compaction of an append table without buckets counts each file as this much larger.")  # fmt: skip
COMPACTION_TRIGGER = Option(
    "num-sorted-run.compaction-trigger", positive, "5",
    "A bucket of a table with a primary key is compacted at this number of sorted runs. See "
    "num-sorted-run.stop-trigger.")  # fmt: skip
COMPACTION_AMPLIFICATION = Option(
    "compaction.max-size-amplification-percent", integer, "200",
    "All runs are merged if the newer ones are larger than this percentage of the oldest.")  # fmt: skip
COMPACTION_SIZE_RATIO = Option("compaction.size-ratio", integer, "1", "Per cent by which the next run may be larger.")
COMPACTION_OFFPEAK_START = Option(
    "compaction.offpeak.start.hour", integer, "-1", "First off-peak hour of the local day. -1: there is none."
)
COMPACTION_OFFPEAK_END = Option("compaction.offpeak.end.hour", integer, "-1", "The hour after the off-peak. -1: none.")
COMPACTION_OFFPEAK_RATIO = Option("compaction.offpeak-ratio", integer, "0", "Added to compaction.size-ratio off-peak.")
COMPACTION_INTERVAL = Option(
    "compaction.optimization-interval", duration, None,
    "All runs are merged this often. For a single compaction any value means: now.")  # fmt: skip
COMPACTION_TOTAL_SIZE = Option(
    "compaction.total-size-threshold", size, None, "All runs are merged if they are smaller together."
)
COMPACTION_INCREMENTAL_SIZE = Option(
    "compaction.incremental-size-threshold", size, None,
    "All runs are merged if those below the highest level are larger together.")  # fmt: skip
COMPACTION_FORCE_UP = switch("compaction.force-up-level-0", "Each compaction takes all files of level 0.")
