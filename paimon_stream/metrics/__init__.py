"""Who hears of each batch: reporters."""
