"""The streaming writer. A stream writes each of its batches into a table exactly once, also if it
is killed in between.
"""
