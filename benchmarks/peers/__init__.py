"""What `benchmarks/streams.py` measures and by what: data, loads, systems, their processes."""
