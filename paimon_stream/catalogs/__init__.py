"""Finds tables by the names of databases and tables. Also creates and drops databases and tables
(docs/catalogs.md).
"""
