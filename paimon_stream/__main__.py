"""`python -m paimon_stream`: the command line."""

from __future__ import annotations

from paimon_stream.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
