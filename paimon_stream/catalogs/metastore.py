"""Finds the kind of catalog that options describe."""

from collections.abc import Mapping


def metastore_of(options: Mapping[str, str]) -> str:
    """The kind of the catalog that these options describe, in lower case: `filesystem` if the
    options do not name a kind. Keys and values may be typed in any case.
    """
    kind = "filesystem"
    for key, value in options.items():
        if str(key).strip().lower() == "metastore":
            kind = str(value).strip().lower()
    return kind
