"""Treadle: an agentic tool-calling loop that you can kill at any moment."""

from treadle._version import __version__

__all__ = ["__version__"]
