"""What `benchmarks/streams.py` measures, and how: data, loads, systems and their processes."""
