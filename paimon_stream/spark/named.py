"""Refers to a column by its name, with any characters in the name."""

from pyspark.sql import Column, functions


def named(name: str) -> Column:
    """The DataFrame's column with exactly that name."""
    return functions.col("`" + name.replace("`", "``") + "`")
