"""Sums up the table of orders in a few numbers, with an independent reader.

python debezium_check.py pypaimon|java TABLE     prints the numbers as JSON
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from debezium_data import ARROW_SCHEMA, SUMMED
from flights_check import READERS

if __name__ == "__main__":
    print(json.dumps(asdict(READERS[sys.argv[1]](sys.argv[2], ARROW_SCHEMA, SUMMED, "placed"))))
