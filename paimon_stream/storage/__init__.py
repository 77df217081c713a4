"""Where tables live: the storage protocol, its implementations and doubles."""
