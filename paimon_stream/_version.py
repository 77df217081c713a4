"""The version of this package. It is defined only here."""

__version__ = "0.1.0"
