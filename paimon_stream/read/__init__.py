"""Reading the rows of append tables: which files, and how each becomes batches of the wanted columns."""
