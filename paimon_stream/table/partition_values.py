"""The values of a partition, as people use them in Python."""

from collections.abc import Mapping
from datetime import date, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from paimon_stream.format.types import DataType, TypeRoot
from paimon_stream.table.layout import Layout

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - TIMESTAMP has no zone
_EPOCH_UTC: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NANOS_OF_MICRO: Final = 1000


def partition_by_column(layout: Layout, partition: bytes) -> Mapping[str, Any]:
    """The values of a serialized partition row by column, as Python objects. Raises `FormatError`."""
    values = layout.partition_values(partition)
    columns = zip(layout.partition_keys, layout.partition_types, values, strict=True)
    return MappingProxyType({name: _python_value(type_, value) for name, type_, value in columns})


def _python_value(type_: DataType, value: Any) -> Any:
    """The value as a Python object. A date or time out of Python's range stays a number (of days or
    milliseconds). A timestamp with nanoseconds becomes a `numpy.datetime64`."""
    if value is None:
        return None
    try:
        match type_.root:
            case TypeRoot.DATE:
                return date(1970, 1, 1) + timedelta(days=value)
            case TypeRoot.TIME:
                return (_EPOCH + timedelta(milliseconds=value)).time()
            case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
                if value % _NANOS_OF_MICRO:
                    return np.datetime64(value, "ns")
                start = _EPOCH_UTC if type_.root is TypeRoot.TIMESTAMP_LTZ else _EPOCH
                return start + timedelta(microseconds=value // _NANOS_OF_MICRO)
    except OverflowError:
        return value
    return value
