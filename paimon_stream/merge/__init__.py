"""Merges the rows of a key into one row: the merge engines of primary-key tables, in memory,
without storage.
"""
