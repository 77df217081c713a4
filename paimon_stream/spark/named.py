"""The column of a name, whatever characters the name has."""

from __future__ import annotations

from pyspark.sql import Column, functions

__all__ = ["named"]


def named(name: str) -> Column:
    """The DataFrame's column of exactly that name."""
    return functions.col("`" + name.replace("`", "``") + "`")
