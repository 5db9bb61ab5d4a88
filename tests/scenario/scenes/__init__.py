"""Chats of every kind, as material for replay, fork and transfer: SCENES has them by name."""

from tests.scenario.scenes import (
    checks,
    compaction,
    crashes,
    elsewhere,
    failures,
    family,
    files,
    limits,
    midrun,
    people,
    plain,
)
from tests.scenario.scenes.world import SCENES, World, watch

__all__ = [
    "SCENES",
    "World",
    "checks",
    "compaction",
    "crashes",
    "elsewhere",
    "failures",
    "family",
    "files",
    "limits",
    "midrun",
    "people",
    "plain",
    "watch",
]
