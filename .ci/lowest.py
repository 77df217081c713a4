"""Prints the dependencies of pyproject.toml, with those of stores and HDFS, pinned to their lower bounds,
for pip.
"""

import re
from pathlib import Path

text = (Path(__file__).parent.parent / "pyproject.toml").read_text()
found = re.findall(r"^(?:dependencies|store|hdfs) = \[(.*?)\]", text, re.MULTILINE | re.DOTALL)
assert len(found) == 3, "pyproject.toml names no dependencies"
print(*(name.replace(">=", "==") for names in found for name in re.findall(r'"([^"]+)"', names)))
