"""Prints the dependencies of pyproject.toml, with those of stores, pinned to their lower bounds,
for pip.
"""

import re
from pathlib import Path

text = (Path(__file__).parent.parent / "pyproject.toml").read_text()
found = re.findall(r"^(?:dependencies|store) = \[(.*?)\]", text, re.MULTILINE | re.DOTALL)
assert len(found) == 2, "pyproject.toml names no dependencies"
print(*(name.replace(">=", "==") for names in found for name in re.findall(r'"([^"]+)"', names)))
