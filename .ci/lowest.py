"""Prints the core dependencies of pyproject.toml pinned to their lower bounds, for pip."""

import re
from pathlib import Path

text = (Path(__file__).parent.parent / "pyproject.toml").read_text()
core = re.search(r"^dependencies = \[(.*?)\]", text, re.MULTILINE | re.DOTALL)
assert core, "pyproject.toml names no dependencies"
print(*(name.replace(">=", "==") for name in re.findall(r'"([^"]+)"', core[1])))
