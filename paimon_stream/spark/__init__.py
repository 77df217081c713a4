"""The only package that imports pyspark."""
