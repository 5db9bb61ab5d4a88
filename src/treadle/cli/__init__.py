"""The command line. This file is all that `--version` and `--help` load: the names of the commands, their lines of
help, and where each one lives. Parsing is the business of `group`, the work that of each command's module."""

import sys
from gc import freeze, set_threshold  # by name: a command of this package is called gc, too

from treadle._version import __version__

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("treadle.cli.commands.run", "Give a model a task in a project and watch it work."),
    "resume": ("treadle.cli.commands.resume", "Go on with a chat that was cut off or waits for someone."),
    "try": ("treadle.cli.commands.try_", "See what a command would do to the project, and change nothing."),
    "pending": ("treadle.cli.commands.pending", "List what chats ask of a person."),
    "approve": ("treadle.cli.commands.approve", "Allow or refuse what a chat asks for, and go on with it."),
    "rules": ("treadle.cli.commands.rules", "List, make and take back standing answers."),
    "trust": ("treadle.cli.commands.trust", "Let Treadle honour a file of a repository, such as its hooks."),
    "untrust": ("treadle.cli.commands.untrust", "Take back the trust in a file of a repository."),
    "chats": ("treadle.cli.commands.chats", "List the chats, newest first."),
    "show": ("treadle.cli.commands.show", "Show a chat from its log."),
    "diff": ("treadle.cli.commands.diff", "Show what a run changed in the project, hunk by hunk."),
    "review": ("treadle.cli.commands.review", "Show a run's work in one piece: task, commands, changes."),
    "undo": ("treadle.cli.commands.undo", "Take back what a run did to the project: all of it, files or hunks."),
    "redo": ("treadle.cli.commands.redo", "Take an undo back."),
    "keep": ("treadle.cli.commands.keep", "Accept changes: an undo leaves them alone from then on."),
    "replay": ("treadle.cli.commands.replay", "Drive a recorded chat again, offline, and compare."),
    "fork": ("treadle.cli.commands.fork", "Begin a new chat as a copy of another up to a point."),
    "diff-runs": ("treadle.cli.commands.diff_runs", "Find the first difference between two chats."),
    "export": ("treadle.cli.commands.export", "Write a chat to standard output as JSON lines."),
    "import": ("treadle.cli.commands.import_", "Read a chat from JSON lines."),
    "fsck": ("treadle.cli.commands.fsck", "Look for damage in what is stored, and mend it."),
    "gc": ("treadle.cli.commands.gc", "Remove what is kept for undoing changes and needed no more."),
    "serve": ("treadle.cli.commands.serve", "Serve the HTTP API, and drive chats."),
    "tokens": ("treadle.cli.commands.tokens", "List, make and take back tokens of the server."),
    "worker": ("treadle.cli.commands.worker", "Drive the chats that need a worker, until it is told to stop."),
    "models": (
        "treadle.cli.commands.models",
        "List the models that can be used, or get one that runs on this machine.",
    ),
    "config": ("treadle.cli.commands.config", "Show every setting and where its value comes from."),
    "doctor": ("treadle.cli.commands.doctor", "See whether all is well here, and try to get out of the sandbox."),
    "demo": ("treadle.cli.commands.demo", "See a run killed in the middle and resumed; needs no key."),
}

YOUNG_OBJECTS = 50_000
"""How many more objects than before there must be for the garbage collector to look at them; Python's own 700 are
reached a hundred times before a command begins."""


def version_text() -> str:
    return f"treadle {__version__}"


def help_text() -> str:
    """The help of the whole program, made without loading anything."""
    width = max(map(len, COMMANDS))
    lines = [
        "Usage: treadle COMMAND [OPTIONS]",
        "",
        "  An agent that works in your project and that you can kill at any moment:",
        "  it goes on from its log without doing anything twice.",
        "",
        "Commands:",
        *(f"  {name:{width}}  {line}" for name, (_, line) in COMMANDS.items()),
        "",
        "Options:",
        "  --version  Print the version.",
        "  --help     Print this text, or a command's own with treadle COMMAND --help.",
    ]
    return "\n".join(lines)


def main() -> int:
    """The entry point of the program; returns its exit code."""
    match sys.argv[1:]:
        case ["--version" | "-V"]:
            print(version_text())
            return 0
        case ["--help" | "-h"]:
            print(help_text())
            return 0
        case arguments:
            # What is loaded stays: looking through it for garbage, time and again while it grows, finds none.
            set_threshold(YOUNG_OBJECTS)
            from treadle.cli.group import invoke

            code = invoke(arguments)
            freeze()  # nor is there any use in looking through it once more at the end of the process
            return code
