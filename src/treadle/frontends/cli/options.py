"""Declarations that several commands share: options, options gathered into one value, exit codes. Loads little more
than click, so that `treadle COMMAND --help` is there at once."""

import math
import os
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from treadle.base.inert import make_inert_line
from treadle.base.types import get_home
from treadle.errors import InvalidInput
from treadle.protocol.choices import EFFORTS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_TURN_CAP = 53
EXIT_INCOMPLETE = 54
EXIT_BUDGET = 55
EXIT_WAITING = 56
EXIT_REFUSED = 57
EXIT_INTERRUPTED = 130

ALL_HOSTS = "all"
LAST = "last"  # the name of the newest chat
MOST_DIGITS = 16  # a longer number is none: Python reads no more than a few thousand digits

Body = Callable[..., Any]
Decorator = Callable[[Body], Body]


class CompletedText(click.types.StringParamType):
    """A text for which a shell offers chats, files or folders; help names it by the kind."""

    def __init__(self, kind: Literal["id", "file", "dir"]) -> None:
        self.name = kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        if self.name != "id":
            return [CompletionItem(incomplete, type=self.name)]
        chats = {LAST: "the newest chat", **read_newest_chats()}
        return [CompletionItem(chat, help=title) for chat, title in chats.items() if chat.startswith(incomplete)]


MOST_CHATS = 100
_NEWEST = "SELECT id, title FROM chats WHERE archived = 0 ORDER BY updated_ms DESC, id DESC LIMIT ?"


def read_newest_chats() -> dict[str, str]:
    """The titles of chats by their ids, newest first. So that a user who types notices no delay, nothing of Treadle is
    loaded, and the file of the SQLite store is read directly; a test ensures that this agrees with the store. Without
    such a file there are none."""
    import sqlite3

    file = _find_database()
    if file is None or not file.is_file():
        return {}
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=1)) as connection:
            rows = connection.execute(_NEWEST, (MOST_CHATS,)).fetchall()
    except sqlite3.Error:
        return {}
    return {make_inert_line(str(chat)): make_inert_line(str(title or ""), 60) for chat, title in rows}


def _find_database() -> Path | None:
    import tomllib

    home, store = get_home(os.environ), os.environ.get("TREADLE_STORE", "")
    if not store:
        with suppress(OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
            store = str(tomllib.loads((home / "config.toml").read_text(encoding="utf-8")).get("store", ""))
    if "://" in store:
        return None
    return Path(store).expanduser() if store else home / "treadle.db"


CHAT, FILE, FOLDER = CompletedText("id"), CompletedText("file"), CompletedText("dir")


class FiniteFloat(click.FloatRange):
    """A number in a range. `inf` and `nan` are numbers for click, and `nan` lies in every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if isinstance(number, float) and not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


COUNT, POSITIVE, PORT = click.IntRange(min=0), click.IntRange(min=1), click.IntRange(0, 65535)
AMOUNT, SECONDS = FiniteFloat(min=0), FiniteFloat(min=0, min_open=True)


class NetworkCommand(click.Command):
    """A command whose --network may stand without a value. The word behind it is its value only if it says which hosts:
    it may as well be the command's own argument."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed = args[: args.index("--")] if "--" in args else args
        expanded = [
            f"{word}={ALL_HOSTS}" if word == "--network" and not _has_host_pattern(typed[at + 1 : at + 2]) else word
            for at, word in enumerate(typed)
        ]
        return super().parse_args(ctx, expanded + args[len(typed) :])


def _has_host_pattern(words: list[str]) -> bool:
    from treadle.base.host_patterns import read

    with suppress(InvalidInput):
        return bool(words) and words[0] != "" and read(words[0]) is not None
    return False


effort_option = click.option(
    "--reasoning-effort", type=click.Choice(EFFORTS), help="How much the model thinks; by default its server decides."
)
network_option = click.option(
    "--network",
    metavar="[HOSTS]",
    help="Hosts that commands may reach: registries, git-hosts, github.com, *.crates.io …; without HOSTS all.",
)


def add_json_option(help: str) -> Decorator:
    return click.option("--json", "as_json", is_flag=True, help=help)


def add_optional_value(name: str, value: str, metavar: str, help: str, type: Any = None) -> Decorator:
    """An option that may stand alone, and then has this value."""
    return click.option(name, is_flag=False, flag_value=value, metavar=metavar, help=help, type=type)


def add_root_options(body: Body) -> Body:
    forced, place = "Allow the whole disk or the home folder as the project.", "the git root, or the working directory."
    body = click.option("--force-root", is_flag=True, help=forced)(body)
    return click.option("--root", type=FOLDER, help=f"The project; by default {place}")(body)


store_option = click.option(
    "--store", metavar="PLACE", help="Where chats are kept: a file, or postgresql://USER@HOST/NAME."
)
merge_option = click.option(
    "--merge", is_flag=True, help="Merge files that were changed since, instead of leaving them alone."
)
hunk_option = click.option(
    "--hunk", "hunks", multiple=True, metavar="PATH:N", help="Only this hunk, as treadle diff counts them."
)
caches_option = click.option("--caches", is_flag=True, help="Include caches and ignored files, file by file.")
even_kept_option = click.option("--even-kept", is_flag=True, help="Include kept changes.")
words_argument = click.argument("words", metavar="[ID] [PATH]...", nargs=-1, type=CHAT)


def add_run_options(body: Body) -> Body:
    body = click.option("--all", "everything", is_flag=True, help="All runs of the chat together.")(body)
    return click.option("--run", type=POSITIVE, metavar="N", help="This run instead of the last; counted from 1.")(body)


class SelectionArguments(NamedTuple):
    """The arguments that select changes: at most a chat, paths or hunks, and a run."""

    words: tuple[str, ...] = ()  # at most a chat, and then paths
    hunks: tuple[str, ...] = ()
    run: int | None = None
    everything: bool = False
    even_kept: bool = False
    caches: bool = False
    only_chat: str = ""  # a chat that was named by itself

    @property
    def chat(self) -> str:
        """The first word may be a chat: `last`, or what begins with c_. A file of such a name is written ./c_…"""
        first = self.words[0] if self.words else ""
        return self.only_chat or (first if first == LAST or first.startswith("c_") else "")

    @property
    def paths(self) -> tuple[str, ...]:
        return self.words[1:] if self.words and self.chat == self.words[0] else self.words


def split_names(words: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in words.split(",") if name.strip())


def refuse(problems: Mapping[str, object]) -> None:
    """Raise a UsageError with the first text whose condition holds."""
    for text, holds in problems.items():
        if holds:
            raise click.UsageError(text)


def gather_options(struct: Any, name: str) -> Decorator:
    """Hand the options that are fields of `struct`, a NamedTuple, to the command as one value. A method `check` of it
    may refuse what does not go together, before anything is loaded."""

    def wrap(body: Body) -> Body:
        @wraps(body)
        def run_body(**flags: Any) -> Any:
            value = struct(**{field: flags.pop(field) for field in struct._fields if field in flags})
            if hasattr(value, "check"):
                value.check()
            return body(**flags, **{name: value})

        return run_body

    return wrap


def resolve_project_root(folder: str | None, *, force: bool = False) -> Path:
    """Return the folder that a run works in: `folder`, else the git root, else the working directory. The whole disk
    and a whole home folder are refused unless forced (S-02)."""
    here = Path(folder or ".").expanduser().resolve()
    root = here if folder else next((each for each in (here, *here.parents) if (each / ".git").exists()), here)
    if not root.is_dir():
        raise InvalidInput(f"the project root {root} is no folder; name one with --root")
    try:
        str(root).encode()
    except UnicodeEncodeError:
        raise InvalidInput(
            f"the path of the project, {make_inert_line(str(root))}, is not valid UTF-8 and cannot be recorded; "
            "rename the folder, or name another one with --root"
        ) from None
    home = os.path.expanduser("~")
    is_home = home != "~" and root == Path(home).resolve()
    description = "the whole disk" if root.parent == root else "your home folder" if is_home else ""
    if description and not force:
        raise InvalidInput(
            f"{root} is {description}, and a model would be let loose on all of it; "
            "name a project with --root, or insist with --force-root"
        )
    return root


def find_present_root() -> str:
    with suppress(InvalidInput):
        return str(resolve_project_root(None))
    return ""
