"""Where tables are stored: the storage protocol, its implementations and test doubles."""
