"""Finds the kind of catalog that options describe, and reads the locations that servers give."""

from collections.abc import Mapping

from paimon_stream.storage.location import scheme_of


def metastore_of(options: Mapping[str, str]) -> str:
    """The kind of the catalog that these options describe, in lower case: `filesystem` if the
    options do not name a kind. Keys and values may be typed in any case.
    """
    kind = "filesystem"
    for key, value in options.items():
        if str(key).strip().lower() == "metastore":
            kind = str(value).strip().lower()
    return kind


def location_of_server(location: str) -> str:
    """The location that a catalog's server gives, as this package spells it. Some servers write
    `file:/path`, and others `file:///path`. Nothing in it is percent-encoded.
    """
    if scheme_of(location) == "file":
        return "/" + location.partition(":")[2].lstrip("/")
    return location
