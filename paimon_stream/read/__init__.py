"""Reading rows: which files, how each becomes batches of the wanted columns, and merging rows of one key."""
