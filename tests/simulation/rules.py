"""The rules that no schedule may break, by name. A planted bug says which of them it breaks."""

from __future__ import annotations

from typing import Final

ACKNOWLEDGED: Final = "acknowledged rows are there"
ONCE: Final = "rows are there at most once"
WHOLE: Final = "everything is readable whole"
CONTINUOUS: Final = "ids are continuous"
STAYS: Final = "nothing vanishes"
NOTHING_BACK: Final = "nothing comes back"
NOT_REPLACED: Final = "a snapshot is never replaced"
LOSSES_REPORTED: Final = "losses are reported"
NO_FALSE_ALARM: Final = "no false alarm"
ADVICE: Final = "advice works"
ROLLBACK_STANDS: Final = "what a rollback took stays away"
STREAMS_END: Final = "streams come to their end"
ORPHANS_FOUND: Final = "orphans are found"
READERS: Final = "readers see states that existed"
SUMS: Final = "sums are those of the model"
USERS_TAGS: Final = "tags of users stay"
YOUNG_FILES: Final = "young files stay"
DOCTOR: Final = "the doctor is right"
WHOLE_BATCH: Final = "a batch is there as a whole"
ONE_BUCKET: Final = "a key has one bucket"
INDEX_COMPLETE: Final = "the index knows every key"
INDEX_CURRENT: Final = "the index is that of the live files"
ROW_IDS: Final = "a row has an id of its own"
EACH_KEY_ONCE: Final = "readers see each key once"
DELETES: Final = "a deleted row stays deleted, and no other row goes"
CHANGED: Final = "a change of rows is made once, on the rows that are there"
COMPACTED: Final = "a compaction changes no row"
LEVELS: Final = "no two files of a level share keys"
HOLDERS_LOCK: Final = "a lock is its holder's"
LOCK_GIVEN_BACK: Final = "a lock that is not used is given back"
UNDER_LOCK: Final = "snapshots are published under the lock"
NO_VOID: Final = "a server that compares bases takes no void snapshot"
REPLACED: Final = "an overwrite leaves only its own rows"
COUNTS: Final = "counts are those of the entries"
SIZES: Final = "sizes are those of the files"
STATISTICS: Final = "statistics are those of the entries"
NEWEST_SCHEMA: Final = "a snapshot has the newest schema"
MARKS: Final = "a snapshot says whose it is"
HINTS: Final = "the hint names the newest snapshot"
NO_REASON: Final = "nothing fails without a reason"

RULES: Final = frozenset(
    value for name, value in list(vars().items()) if name.isupper() and isinstance(value, str)
)

PYTHON_ERROR: Final = "the code raises no error of Python"
"""What an error such as `TypeError` breaks. It is no rule of the table: where a bug is planted, the
plant itself is broken.
"""
