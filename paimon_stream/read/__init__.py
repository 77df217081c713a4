"""Reading rows: choosing the files, turning each into batches of the wanted columns, merging rows
of one key.
"""
