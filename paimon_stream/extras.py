"""The only helper that imports optional dependencies. It names the extra when one is missing."""

import importlib
from typing import Any

from paimon_stream.errors import MissingExtra


def require(module: str, extra: str | None, needed_for: str) -> Any:
    """Imports the module now and returns it. Raises `MissingExtra`, which says what to install, if
    the module is missing: an extra of this package, or the module itself (None). Type checkers see
    `Any`.
    """
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        cure = f"paimon-stream with its extra {extra!r}: in a checkout of it, run pip install '.[{extra}]'"
        cure = f"Install {cure if extra else f'it: run pip install {module}'}"
        text = f"{needed_for} needs {missing.name or module}, which is not installed. {cure}"
        raise MissingExtra(text, module=module, extra=extra) from None
