"""Modules that take long to import, in each process of the test run: imported by the tests that use them, not by
whoever collects tests."""

from importlib import import_module
from importlib.machinery import PathFinder
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
    if not is_installed(name):
        pytest.skip(reason or f"there is no {name}", allow_module_level=True)
    return Lazy(name)


def is_installed(name: str) -> bool:
    """True if a module can be found. `importlib.util.find_spec` would import the packages that it lies in: half of what
    takes long."""
    path = None
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:count]), path)
        if spec is None:
            return False
        path = spec.submodule_search_locations
    return True
