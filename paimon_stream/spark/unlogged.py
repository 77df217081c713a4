"""Keeps py4j, which logs all that it sends and gets at level DEBUG, from logging secrets."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_PY4J: Final = ("py4j", "py4j.java_gateway", "py4j.clientserver")


@contextmanager
def unlogged() -> Iterator[None]:
    """Drops what py4j logs in this thread: answers hold Spark's credentials, and pickled tasks hold those of
    their storage."""
    here = threading.get_ident()

    def is_of_another_thread(record: logging.LogRecord) -> bool:
        return record.thread != here

    loggers = [logging.getLogger(name) for name in _PY4J]
    for logger in loggers:
        logger.addFilter(is_of_another_thread)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_of_another_thread)
