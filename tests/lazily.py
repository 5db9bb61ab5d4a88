"""Modules that take long to import, in each process of the test run: imported by the tests that use them, not by
whoever collects tests."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest


class Lazy:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest looks whether it is a fixture
            raise AttributeError(name)
        return getattr(import_module(self._name), name)


def lazily(name: str, reason: str = "") -> Any:
    """A module; whoever asks for it at the top of a file is skipped where it is missing."""
    try:
        found = find_spec(name)
    except ModuleNotFoundError:
        found = None
    if found is None:
        pytest.skip(reason or f"there is no {name}", allow_module_level=True)
    return Lazy(name)
