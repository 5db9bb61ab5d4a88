"""The project of the demos: a small one with a failing test, whose repair would do harm if it were made twice; and the
script of a model that repairs it, with an answer in Markdown, a plan, tools, an approval and a question. Every chat
plays the script from the beginning."""

import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from treadle.base.process_folders import make_folder_prefix

SOURCE = "stats.py"
WRONG = "    return total\n"
RIGHT = "    return total / len(numbers)\n"

_FILES = Path(__file__).with_name("demo")
_REPEATED = 12  # how often the scripted model answers when its play is over


def test_command() -> str:
    python = "python3" if shutil.which("python3") else shlex.quote(sys.executable)
    return f"{python} -m unittest"


def make_project(folder: Path) -> None:
    folder.mkdir()
    for name in (SOURCE, "test_stats.py"):
        shutil.copyfile((_FILES / name).with_suffix(".txt"), folder / name)
    (folder / ".gitignore").write_text("__pycache__/\n", encoding="utf-8")


def write_script(path: Path, name: str = "repair.toml", **values: str) -> None:
    """Write the script of a model, with values for its words in capitals. The last turn is repeated at its end."""
    script = (_FILES / name).read_text(encoding="utf-8")
    if name == "repair.toml":
        script += "\n[[turn]]".join(["", *[script.rpartition("\n[[turn]]")[2]] * (_REPEATED - 1)])
    for word, value in {"COMMAND": json.dumps(test_command()), "FIXED": json.dumps(RIGHT), **values}.items():
        script = script.replace(word, value)
    path.write_text(script, encoding="utf-8")


def make_demo(folder: Path) -> tuple[str, str]:
    make_project(folder / "project")
    write_script(folder / "demo.toml")
    return str(folder / "project"), f"scripted:{folder / 'demo.toml'}"


@contextmanager
def open_demo_folder(kind: str) -> Iterator[Path]:
    """A temporary folder, removed with the folder without access rights that a command's view leaves in it. After a
    kill, a later run removes it."""
    from treadle.adapters.sandbox.supervisor.removal import remove_tree

    folder = Path(tempfile.mkdtemp(prefix=f"{make_folder_prefix()}{kind}-")).resolve()
    try:
        yield folder
    finally:
        os.chdir("/")
        remove_tree(str(folder))
