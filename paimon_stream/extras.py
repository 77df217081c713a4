"""Imports optional dependencies. If one is missing, the error names the extra that installs it."""

import importlib
from typing import Any

from paimon_stream.errors import MissingExtra


def require(module: str, extra: str | None, needed_for: str) -> Any:
    """Imports the module now and returns it. Type checkers see `Any`.

    Args:
        module: the name of the module.
        extra: the extra of this package that installs the module; None if no extra does.
        needed_for: what needs the module, for the message.

    Raises:
        MissingExtra: the module is missing. The message says what to install.
    """
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        if extra:
            advice = (
                f"Install paimon-stream with its extra {extra!r}: "
                f"in a checkout of it, run pip install '.[{extra}]'"
            )
        else:
            advice = f"Install it: run pip install {module}"
        raise MissingExtra(
            f"{needed_for} needs {missing.name or module}, which is not installed. {advice}",
            module=module,
            extra=extra,
        ) from None
