"""Whether text is UTF-8. Spark, Arrow and Java Paimon accept other bytes as text, but readers then fail."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_UTF8: Final = (
    r"\A(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|\xed[\x80-\x9f][\x80-\xbf]"
    r"|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}"
    r"|\xf4[\x80-\x8f][\x80-\xbf]{2})*\z"
)
"""UTF-8 (RFC 3629, chapter 4) as a regular expression over bytes."""


def count_not_utf8(column: pa.Array) -> int:
    """The number of values that are not UTF-8 in a column of text or bytes. Arrow checks each value when it
    casts bytes to text. The values are counted only if that cast fails, because counting costs much more."""
    raw = column.cast(pa.binary())
    try:
        raw.cast(pa.string())
    except pa.ArrowInvalid:
        return int(pc.sum(pc.invert(pc.match_substring_regex(raw, _UTF8))).as_py())
    return 0
