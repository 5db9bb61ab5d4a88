"""Becomes the command, cut off from abstract sockets outside: they belong to the network, and a command that has the
machine's network would reach them. Landlock refuses them (Linux 6.12)."""

import os

from treadle.adapters.sandbox.launch.system import Ruleset

ABSTRACT_SOCKETS = 1
_SIZE = 24


def main(words: list[str]) -> None:
    Ruleset(0, 0, ABSTRACT_SOCKETS, _SIZE).enforce()
    os.execvp(words[1], words[1:])
