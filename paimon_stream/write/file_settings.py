"""From the options of a table to the writer of its file format."""

from __future__ import annotations

from paimon_stream.format.file_format import FileFormat, check_columns, file_format
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.options import Options
from paimon_stream.write.avro_data import AvroSettings
from paimon_stream.write.orc_file import OrcSettings
from paimon_stream.write.output import FileSettings
from paimon_stream.write.parquet_file import ParquetSettings

__all__ = ["file_settings"]


def file_settings(
    schema: TableSchema, options: Options, wanted: tuple[bool, ...], table: str = ""
) -> FileSettings:
    """How the data files of a table are written; `wanted` says which columns get statistics.

    Raises `InvalidOption` and `UnsupportedFeature` for what the format cannot do; `table` is for messages.
    """
    format_ = file_format(options)
    check_columns(format_, schema.fields, options, table)
    match format_:
        case FileFormat.PARQUET:
            return ParquetSettings.of(schema, options)
        case FileFormat.ORC:
            return OrcSettings.of(schema, options, wanted)
        case FileFormat.AVRO:
            return AvroSettings.of(schema, options, wanted)
