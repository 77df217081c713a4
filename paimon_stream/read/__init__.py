"""Reads rows: chooses the files, turns each file into batches of the wanted columns, and merges the
rows of one key.
"""
