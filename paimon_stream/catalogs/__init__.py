"""Finds tables by the names of databases and tables, and makes and drops them
(docs/catalogs.md).
"""
