"""The command line. This file is all that `--version` and `--help` load: the names of the commands and
their lines of help. `group` parses; each command is declared and carried out in its own module of `commands`."""

import sys
from gc import freeze, set_threshold  # by name: a command of this package is called gc, too

from treadle._version import __version__

COMMANDS = {
    "run": "Give a model a task in a project and watch it work.",
    "race": "Let several attempts at one task run at once, and keep the best.",
    "resume": "Continue a chat that was interrupted or waits for an answer.",
    "stop": "Stop the run of a chat, wherever it works.",
    "apply": "Apply a patch or a fenced block of an answer to the project.",
    "try": "Show what a command would change in the project, without changing it.",
    "world": "List, look into, commit and drop worlds: copies of a project in which chats work.",
    "pending": "List the approvals and questions that wait for you.",
    "approve": "Approve or refuse what a chat asks for, and continue it.",
    "rules": "List, add and revoke rules: approvals that last.",
    "trust": "Trust a file of a repository, such as its hooks, skills and agents.",
    "skills": "List the skills, commands and custom agents of this project and yours.",
    "untrust": "Withdraw the trust in a file of a repository.",
    "mcp": "List, add and test MCP servers, whose tools models may call; or run as one.",
    "chats": "List the chats, newest first.",
    "jobs": "List background commands; read their output, write to them, stop them.",
    "show": "Show a chat from its log.",
    "diff": "Show what a run changed in the project, hunk by hunk.",
    "review": "Show a run's work in one piece: task, commands, changes.",
    "undo": "Undo what a run did to the project: everything, files or hunks.",
    "redo": "Reverse an undo.",
    "keep": "Accept changes, so that an undo leaves them alone.",
    "replay": "Replay a recorded chat offline and compare.",
    "fork": "Start a new chat as a copy of another up to a point.",
    "diff-runs": "Find the first difference between two chats.",
    "export": "Write a chat to standard output as JSON lines.",
    "import": "Read a chat from JSON lines.",
    "delete": "Delete a chat and its sub-agents for good.",
    "fsck": "Check the stored data for damage, and repair it.",
    "gc": "Remove undo data that is no longer needed.",
    "web": "Open the web app in a browser: the same chats, live.",
    "serve": "Serve the web app and the HTTP API, and drive chats.",
    "copilot": "Serve programs that use a Copilot SDK.",
    "acp": "Serve an editor that speaks the Agent Client Protocol.",
    "tokens": "List, create and revoke tokens of the server.",
    "worker": "Drive the chats that need a worker, until stopped.",
    "eval": "Measure how well models do a suite of tasks.",
    "models": "List the models that can be used, or get one that runs on this machine.",
    "config": "Show every setting and where its value comes from.",
    "doctor": "Check this installation, and try to escape from the sandbox.",
    "completion": "Print a script that completes commands, options and chats in a shell.",
    "demo": "See a run killed in the middle and resumed; needs no key.",
}
"""Their names and their lines of help, in the order in which they are listed."""

MODULES = {
    command: module
    for module, commands in {
        "approve": "pending rules",
        "chats": "delete diff-runs export fork import jobs replay show stop",
        "config": "completion",
        "diff": "apply keep redo review undo",
        "doctor": "fsck gc",
        "run": "resume",
        "serve": "acp copilot tokens web worker",
        "trust": "skills untrust",
        "world": "try",
    }.items()
    for command in commands.split()
}
"""Where in `commands` a command is declared, if not in the module of its name."""

YOUNG_OBJECTS = 50_000
"""How many more objects than before there must be for the garbage collector to look at them; Python's own 700 are
reached a hundred times before a command begins."""


def format_help() -> str:
    """The help of the whole program, made without loading anything."""
    width = max(map(len, COMMANDS))
    lines = [
        "Usage: treadle [PROMPT]             open the terminal app",
        "       treadle COMMAND [OPTIONS]",
        "",
        "  An agent that works in your project and that you can kill at any moment:",
        "  it goes on from its log without doing anything twice.",
        "",
        "Commands:",
        *(f"  {name:{width}}  {line}" for name, line in COMMANDS.items()),
        "",
        "Options:",
        "  --continue     Open the app with the newest chat.",
        "  --resume [ID]  Open the app with this chat, or choose one.",
        "  --server URL   Open the app on the chats of a server; its token is in TREADLE_TOKEN.",
        "  --model, --mode, --root  As for treadle run.",
        "  --plain        Plain text line by line, for screen readers.",
        "  --inline       The app below the prompt, with the terminal's own scrollback.",
        "  --version      Print the version.",
        "  --help         Print this text, or a command's own with treadle COMMAND --help.",
    ]
    return "\n".join(lines)


def copilot_main() -> int:
    """`treadle-copilot`: the same as `treadle copilot`, for what takes one path and no arguments."""
    sys.argv.insert(1, "copilot")
    return main()


def main() -> int:
    """The entry point of the program; returns its exit code."""
    match sys.argv[1:]:
        case ["--version" | "-V"]:
            print(f"treadle {__version__}")
            return 0
        case ["--help" | "-h"]:
            print(format_help())
            return 0
        case arguments:
            # Loaded modules stay in use: collecting garbage again and again while they load finds none.
            set_threshold(YOUNG_OBJECTS)
            from treadle.frontends.cli.group import invoke

            code = invoke(arguments)
            freeze()  # nor is there any use in looking through it once more at the end of the process
            return code
