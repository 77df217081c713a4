"""The one rule for the names of files and folders in a table (format.md §1). Others may have
written metadata, messages and journals, so whatever turns a name into a path to read or delete asks
here. Names of buckets and partitions are fixed (format.md §1.1, §1.4). Those of data files are
open: options give prefixes, and tables from Hive keep theirs.
"""

import math
import re
from collections.abc import Iterable, Sequence
from decimal import Context, Decimal
from typing import Any, Final

import numpy as np

from paimon_stream.errors import CorruptMetadata, UnsupportedFeature
from paimon_stream.format.types import DataType, TypeRoot

LONGEST_NAME: Final = 255
"""The longest name of a file or folder, in bytes of UTF-8, that common file systems allow."""
POSTPONE_BUCKET: Final = -2
"""The bucket of files that wait for a compaction to give them their buckets."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,254}")
_BUCKET_FOLDER: Final = re.compile(r"bucket-(?:0|[1-9][0-9]{0,9}|postpone)")
_LARGEST_BUCKET: Final = 2**31 - 1
_SHOWN: Final = 80


def wrong_with(name: str) -> str | None:
    """Why no file or folder of a table can have this name, as the end of a sentence; None if one
    can.
    """
    if _PLAIN.fullmatch(name):
        return None
    if name in ("", ".", ".."):
        return "it is no name"
    if "/" in name:
        return "it holds a '/', so it would lead to another folder"
    if "\0" in name:
        return "it holds a NUL character"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "it cannot be written in UTF-8"
    return f"it has {size} bytes, and {LONGEST_NAME} are allowed" if size > LONGEST_NAME else None


def checked_name(name: str, path: str, source: str | None = None) -> str:
    """Returns the name if a file or folder of a table can have it. `path` is the file or folder
    that names it; `source` says the same in words for the message. Raises `CorruptMetadata`.
    """
    wrong = wrong_with(name)
    if wrong is not None:
        cure = f"{wrong}. No such file was read or deleted. Run verify, which lists such entries."
        text = f"{source or path} names {shown_name(name)}, which cannot be the name of a file in a table: {cure}"
        raise CorruptMetadata(text, path=path, file=name[:_SHOWN])
    return name


def shown_name(name: str) -> str:
    """The name in quotes, with special characters escaped; the end of a long one is left out."""
    return repr(name) if len(name) <= _SHOWN else f"{name[:_SHOWN]!r}…"


def is_bucket(bucket: int, total_buckets: int | None = None) -> bool:
    """Whether a table can have this bucket: below the number of buckets if that is fixed, or
    `POSTPONE_BUCKET`.
    """
    if bucket == POSTPONE_BUCKET:
        return True
    most = total_buckets if total_buckets is not None and total_buckets > 0 else _LARGEST_BUCKET
    return 0 <= bucket < most


def is_bucket_folder(name: str) -> bool:
    """Whether Paimon gives this name to the folder of a bucket: `bucket-<number>` or
    `bucket-postpone`.
    """
    return _BUCKET_FOLDER.fullmatch(name) is not None


def is_partition_folder(name: str, key: str) -> bool:
    """Whether Paimon gives this name to a folder of the partition key: `<key>=<value>`."""
    return name.startswith(f"{escape(key)}=")


# -- names in the bytes of manifests
# ------------------------------------------------------------------
PREFIX_BYTES: Final = 5
"""How many bytes at the beginning of a name are compared."""

MAX_PREFIXES: Final = 16
"""With more different prefixes than this, only the first byte of each name is compared."""


class Mentions:
    """Finds names that begin like one of `names` in the bytes of a manifest, without decoding its
    records.

    Avro stores a string as its length and its plain bytes, so a manifest's blocks have every name
    in full. Looking for the wanted beginnings is many times faster than decoding 25 fields of every
    record. Invariant: every name with one of the prefixes is found, in any field. Bytes that merely
    look like a name may be found, too: callers ask which files are still in use, so that does no
    harm.

    >>> Mentions([b"data-1.avro"]).hashes(bytes([0, 22]) + b"data-2.avro") == [hash(b"data-2.avro")]
    True
    """

    def __init__(self, names: Iterable[bytes]) -> None:
        prefixes = {name[:PREFIX_BYTES] for name in names}
        if len(prefixes) > MAX_PREFIXES:
            prefixes = {prefix[:1] for prefix in prefixes}
        self._prefixes = sorted(prefixes)

    def hashes(self, block: bytes) -> list[int]:
        """The hashes of the names in a decompressed block, and perhaps of bytes that are not
        names.
        """
        found: list[int] = []
        for prefix in self._prefixes:
            start = block.find(prefix, 1)
            while (
                start > 0
            ):  # step by one byte, because bytes that look like a name may overlap a name
                _note(block, start, found)
                start = block.find(prefix, start + 1)
        return found


def _note(block: bytes, start: int, found: list[int]) -> None:
    """Records the string that starts at `start`, if the bytes before it can be its length (zig-zag,
    seven bits per byte). Two bytes of length are enough for every file name.
    """
    last = block[start - 1]
    if last > 0x7F:
        return
    found.append(hash(block[start : start + (last >> 1)]))
    if start > 1 and (first := block[start - 2]) > 0x7F:
        size = (last << 7 | first & 0x7F) >> 1
        if (
            size <= LONGEST_NAME
        ):  # in crafted bytes, longer strings could overlap at every byte: hashing takes minutes
            found.append(hash(block[start : start + size]))


# -- the folder of a partition, `dt=19782/region=x` (format.md §1.4)
# ----------------------------------
#
# Other engines find a partition's files by this text alone, so it must equal theirs, even Java's
# text for a float.

_ESCAPED: Final = {
    code: f"%{code:02X}" for code in (*range(0x20), 0x7F, *map(ord, "\"#%'*/:=?\\{}[]^"))
}
_ESCAPE: Final = re.compile("%([0-9a-fA-F]{2})")
_JAVA_WHITESPACE: Final = frozenset(
    map(
        chr,
        (
            *range(0x09, 0x0E),
            *range(0x1C, 0x21),
            0x1680,
            *range(0x2000, 0x2007),
            *range(0x2008, 0x200B),
        ),
    )
) | frozenset("\u2028\u2029\u205f\u3000")
_WIDE: Final = Context(prec=100)
_NULL: Final = "__DEFAULT_PARTITION__"


def escape(text: str) -> str:
    """The text as a part of a path: characters that have a meaning in file systems or URIs become
    `%XX`.
    """
    return text.translate(_ESCAPED)


def unescape(text: str) -> str:
    """The text before `escape` changed it."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


def partition_path(
    keys: Sequence[str],
    types: Sequence[DataType],
    values: Sequence[Any],
    default: str = _NULL,
    legacy: bool = True,
) -> str:
    """The folder of a partition, relative to the table, without a slash at its end; empty without
    keys. `values` are in the internal form of `format/binary_row.py`; NULL, empty and blank ones
    become `default`. `legacy` is `partition.legacy-name`. Raises `UnsupportedFeature` for nested
    types, BINARY, and without `legacy` for TIMESTAMP WITH LOCAL TIME ZONE, which Java writes in the
    zone of its machine.
    """
    parts = []
    for key, type_, value in zip(keys, types, values, strict=True):
        check_partition_key(key, type_, legacy)
        text = "" if value is None else value_text(type_, value, legacy)
        parts.append(f"{escape(key)}={escape(default if is_blank(text) else text)}")
    return "/".join(parts)


def is_blank(text: str) -> bool:
    """Whether the text is empty or only white space by Java's rules. Such text shares the folder of
    NULL.
    """
    return all(char in _JAVA_WHITESPACE for char in text)


def check_partition_key(key: str, type_: DataType, legacy: bool, table: str = "") -> None:
    """Raises `UnsupportedFeature` for a type whose folder other engines would not find; see
    `partition_path`.
    """
    if type_.is_nested or type_.is_binary:
        why = "Paimon has no folder name for it"
    elif type_.root is TypeRoot.TIMESTAMP_LTZ and not legacy:
        why = "with partition.legacy-name = false its folder name depends on the time zone of each machine"
    else:
        return
    text = f"Partition key {key!r} of {table or 'the table'} is {type_}: {why}. Partition by a column of another type."
    raise UnsupportedFeature(text, table=table, column=key, type=str(type_))


def value_text(type_: DataType, value: Any, legacy: bool = True) -> str:
    """The text of a partition value in internal form. With `legacy` it is the one of Java's
    `toString`.
    """
    match type_.root:
        case TypeRoot.BOOLEAN:
            return "true" if value else "false"
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return _java_float(value, single=type_.root is TypeRoot.FLOAT)
        case TypeRoot.DECIMAL:
            unscaled = int(value.scaleb(type_.scale, _WIDE))
            return f"{Decimal(unscaled).scaleb(-type_.scale, _WIDE):f}"
        case TypeRoot.DATE if not legacy:
            return _date(value)
        case TypeRoot.TIME if not legacy:
            seconds, millis = divmod(value, 1000)
            if type_.precision == 0:
                return _clock(seconds)
            # Trailing zeros are cut, but at least one digit is kept.
            return f"{_clock(seconds)}.{f'{millis:03d}'.rstrip('0')[: type_.precision] or '0'}"
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return _local_date_time(value) if legacy else _sql_timestamp(value, type_.precision)
        case _:
            return str(value)


def _java_float(value: float, single: bool) -> str:
    """The text of `Float.toString` and `Double.toString`: the shortest digits that read back as the
    same number, with at least one digit after the point. Below 0.001 and from ten million on, the
    text has an exponent.
    """
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if math.isinf(value):
        return f"{sign}Infinity"
    if value == 0:
        return f"{sign}0.0"
    number = np.float32(value) if single else np.float64(value)
    digits, _, exponent_text = np.format_float_scientific(
        abs(number), unique=True, trim="-"
    ).partition("e")
    if len(digits) == 1:
        # Java takes the closest number with two digits; among the smallest numbers that differs.
        digits, _, exponent_text = f"{abs(float(number)):.1e}".partition("e")
    digits, exponent = digits.replace(".", "").rstrip("0") or "0", int(exponent_text)
    if not -3 <= exponent < 7:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole, fraction = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :]
    return f"{sign}{whole}.{fraction or '0'}"


def _date(days: int) -> str:
    """The text of `LocalDate.toString`: the year has four digits or more, and a sign from 10000
    on.
    """
    text, month, day = str(np.datetime64(days, "D")).rsplit("-", 2)
    year = int(text)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month}-{day}"


def _clock(seconds: int) -> str:
    """The time of the day at this second since 1970."""
    return str(np.datetime64(seconds, "s"))[-8:]


def _split_timestamp(nanos: int) -> tuple[str, str, str]:
    """The date, the time of day, and nine digits of fraction."""
    seconds, fraction = divmod(nanos, 10**9)
    return _date(seconds // 86_400), _clock(seconds), f"{fraction:09d}"


def _local_date_time(nanos: int) -> str:
    """The text of `LocalDateTime.toString`: no seconds if they are zero, else 0, 3, 6 or 9 digits
    of fraction.
    """
    date, clock, fraction = _split_timestamp(nanos)
    while fraction.endswith("000"):
        fraction = fraction[:-3]
    if fraction:
        return f"{date}T{clock}.{fraction}"
    return f"{date}T{clock.removesuffix(':00')}"


def _sql_timestamp(nanos: int, precision: int) -> str:
    date, clock, fraction = _split_timestamp(nanos)
    digits = fraction.rstrip("0").ljust(precision, "0")
    return f"{date} {clock}" + (f".{digits}" if digits else "")
