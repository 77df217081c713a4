"""The formats of data files: their compressions, and the columns that each format cannot hold. The
rules are in format.md §7.1, §7.5 and §7.6. Columns that Java writes but reads back as other values
are refused (docs/format-notes.md).
"""

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Final

from paimon_stream.errors import InvalidOption, UnsupportedFeature
from paimon_stream.format.types import DataField, DataType, TypeRoot
from paimon_stream.options import FILE_COMPRESSION, FILE_FORMAT, ORC_LTZ_LEGACY, ZSTD_LEVEL, Options


class FileFormat(Enum):
    """A format of data files. Its value is the word in the option, and the extension of file
    names.
    """

    PARQUET = "parquet"
    ORC = "orc"
    AVRO = "avro"


_COMPRESSIONS: Final = {
    FileFormat.PARQUET: ("zstd", "snappy", "gzip", "lz4", "none", "uncompressed"),
    FileFormat.ORC: ("zstd", "snappy", "zlib", "lz4", "none"),
    FileFormat.AVRO: ("zstd", "snappy", "deflate", "null"),
}
# Java needs native libraries to write and read files with these compressions. These libraries are
# rarely installed.
_NATIVE: Final = {
    FileFormat.PARQUET: ("lzo", "brotli"),
    FileFormat.ORC: ("lzo",),
    FileFormat.AVRO: (),
}
# Options of the format's own library that have an effect in this package, without their prefix.
_HONOURED: Final = {
    FileFormat.PARQUET: (
        "page.size",
        "page.row.count.limit",
        "dictionary.page.size",
        "enable.dictionary",
        "writer.version",
        "compression.codec.zstd.level",
    ),
    FileFormat.ORC: (
        "stripe.size",
        "compress.size",
        "row.index.stride",
        "dictionary.key.threshold",
        "compression.strategy",
        "write.batch-size",
        "timestamp-ltz.legacy.type",
    ),
    FileFormat.AVRO: (),
}
_AVRO_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ORC_LTZ_PROBLEM: Final = (
    "in ORC files Java moves timestamps with local time zone by the time zone of each JVM, unless "
    f"{ORC_LTZ_LEGACY.key} = false. Set that in the table, or set file.format to parquet"
)


def file_format(options: Options) -> FileFormat:
    """The format that `file.format` names, in any letter case. Raises `UnsupportedFeature` for any
    other name.
    """
    word = options.value(FILE_FORMAT).strip().lower()
    for format_ in FileFormat:
        if word == format_.value:
            return format_
    raise UnsupportedFeature(
        f"{FILE_FORMAT.key} = {word!r} is a file format that this release does not write. "
        "Set it to parquet, orc or avro: "
        "readers take the format from each file, so a table may hold several.",
        option=FILE_FORMAT.key,
        value=word,
    )


def compression(options: Options, format_: FileFormat) -> str:
    """`file.compression` in lower case. Raises `InvalidOption` for a compression that Java refuses
    in this format, and `UnsupportedFeature` for a compression that needs native libraries
    (format.md §7.1).
    """
    word = options.value(FILE_COMPRESSION).strip().lower()
    compressions = _COMPRESSIONS[format_]
    if word in compressions:
        return word
    if word in _NATIVE[format_]:
        raise UnsupportedFeature(
            f"{FILE_COMPRESSION.key} = {word!r} needs a native library in every reader. "
            f"Set it to one of {', '.join(compressions)}.",
            option=FILE_COMPRESSION.key,
            value=word,
        )
    raise InvalidOption(
        f"{FILE_COMPRESSION.key} = {word!r} is not a compression of {format_.value} files. "
        f"Set it to one of {', '.join(compressions)}.",
        option=FILE_COMPRESSION.key,
        value=word,
    )


def check_columns(
    format_: FileFormat, fields: Sequence[DataField], options: Options, table: str = ""
) -> None:
    """Checks that Java reads back the written values from files of this format.

    Args:
        format_: the format of the files.
        fields: the columns.
        options: the options of the table.
        table: the location of the table, for the message.

    Raises:
        UnsupportedFeature: files of this format may return other values of a column. The first such
            column is named.
    """
    for column in fields:
        for name, type_ in _types_inside(column.name, column.type):
            problem = None
            if format_ is FileFormat.AVRO:
                problem = _avro_problem(name, type_)
            elif format_ is FileFormat.ORC and type_.root is TypeRoot.TIMESTAMP_LTZ:
                problem = _ORC_LTZ_PROBLEM if options.value(ORC_LTZ_LEGACY) else None
            if problem:
                raise UnsupportedFeature(
                    f"Column {column.name!r} of {table or 'the table'} "
                    f"is {column.type}: {problem}.",
                    table=table,
                    column=column.name,
                    type=str(column.type),
                )


def waiting_format(fields: Sequence[DataField], options: Options) -> FileFormat:
    """The format of files in bucket -2. It is Avro, or the table's format if Avro cannot hold these
    columns.
    """
    if all(_fits_avro(column) for column in fields):
        return FileFormat.AVRO
    return file_format(options)


def _fits_avro(column: DataField) -> bool:
    inside = _types_inside(column.name, column.type)
    return not any(_avro_problem(name, type_) for name, type_ in inside)


def _types_inside(name: str, type_: DataType) -> Iterator[tuple[str, DataType]]:
    """The type itself, and all types inside it. The types of members of ROWs come with the names of
    the members.
    """
    yield name, type_
    for inner in (type_.key, type_.element):
        if inner is not None:
            yield from _types_inside(name, inner)
    for member in type_.fields:
        yield from _types_inside(member.name, member.type)


def _avro_problem(name: str, type_: DataType) -> str | None:
    """The reason why Avro files cannot hold a type, with what to do; None if they can."""
    if not _AVRO_NAME.fullmatch(name):
        return (
            f"Avro allows only letters, digits and _ in names, not {name!r}. "
            "Set file.format to parquet or orc"
        )
    if type_.root is TypeRoot.TIME and type_.precision > 3:
        return "Avro files hold TIME up to precision 3. Set file.format to parquet or orc"
    if type_.is_timestamp and type_.precision > 6:
        return "Avro files hold timestamps up to precision 6. Set file.format to parquet or orc"
    if (
        type_.root is TypeRoot.MULTISET
        and type_.element is not None
        and not type_.element.is_string
    ):
        return (
            "Java can neither write nor read a MULTISET of anything but strings in Avro. "
            "Set file.format to parquet or orc"
        )
    return None


def warn_of_ignored(options: Mapping[str, str], format_: FileFormat) -> None:
    """Warns once of all options of the format's own library (`parquet.*`, `orc.*`) that have no
    effect in this package. If there are no such options, nothing is logged.
    """
    prefix = f"{format_.value}."
    honoured = {prefix + name for name in _HONOURED[format_]}
    # In an option's key, a `#` precedes the name of the column to which the option applies.
    of_format = (key for key in options if key.startswith(prefix))
    ignored = sorted(key for key in of_format if key.partition("#")[0] not in honoured)
    if format_ is FileFormat.ORC and ZSTD_LEVEL.key in options:
        ignored.append(ZSTD_LEVEL.key)
    if ignored:
        warnings.warn(
            f"Options without effect on {format_.value} files here: {', '.join(ignored)}.",
            stacklevel=3,
        )
