"""Prints what an extra of pyproject.toml asks for, for pip, without the package itself: python
.ci/extra.py docs
"""

import re
import sys
from pathlib import Path

text = (Path(__file__).parent.parent / "pyproject.toml").read_text()
found = re.search(rf"^{re.escape(sys.argv[1])} = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
assert found, f"pyproject.toml has no extra {sys.argv[1]}"
print(*re.findall(r'"([^"]+)"', found[1]))
