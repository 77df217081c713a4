"""The only helper that imports optional dependencies. It names the extra when one is missing."""

import importlib
from typing import Any

from paimon_stream.errors import MissingExtra


def require(module: str, extra: str, needed_for: str) -> Any:
    """Imports the module now and returns it. Raises `MissingExtra`, which says what to install, if the module is
    missing. Type checkers see `Any`."""
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        raise MissingExtra(
            f"{needed_for} needs {missing.name or module}, which is not installed. Install paimon-stream "
            f"with its extra {extra!r}: in a checkout of it, run pip install '.[{extra}]'",
            module=module,
            extra=extra,
        ) from None
