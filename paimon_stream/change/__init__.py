"""Changes of rows that are in the table: deletions and updates, computed on one snapshot and published
on the newest one.
"""
