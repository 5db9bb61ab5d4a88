"""Declarations that several commands share: options, options gathered into one value, exit codes. Loads little more
than click, so that `treadle COMMAND --help` is there at once."""

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import click

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
LAST = "last"
"""The name of the newest chat."""
ONCE = "once"
SCOPES = ("chat", "project", "user")
"""The same as in `treadle.protocol.permissions`, which a test sees to; written out so that help costs no import."""

Body = Callable[..., Any]
Decorator = Callable[[Body], Body]


class FiniteFloat(click.FloatRange):
    """A number in a range. `inf` and `nan` are numbers for click, and `nan` lies in every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if isinstance(number, float) and not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class NetworkCommand(click.Command):
    """A command whose --network may stand without a value. The word behind it is its value only if it says which hosts:
    it may as well be the command's own argument."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed = args[: args.index("--")] if "--" in args else args
        expanded = [
            f"{word}={ALL_HOSTS}" if word == "--network" and not _names_hosts(typed[at + 1 : at + 2]) else word
            for at, word in enumerate(typed)
        ]
        return super().parse_args(ctx, expanded + args[len(typed) :])


def _names_hosts(words: list[str]) -> bool:
    from treadle.base.host_patterns import read
    from treadle.errors import InvalidInput

    try:
        return bool(words) and words[0] != "" and read(words[0]) is not None
    except InvalidInput:
        return False


EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The same as in `treadle.protocol.options`, which a test sees to."""
effort_option = click.option(
    "--reasoning-effort", type=click.Choice(EFFORTS), help="How much the model thinks; by default its server decides."
)
network_option = click.option(
    "--network",
    metavar="[HOSTS]",
    help="Hosts that commands may reach: registries, git-hosts, github.com, *.crates.io …; without HOSTS all.",
)


def json_option(help: str) -> Decorator:
    return click.option("--json", "as_json", is_flag=True, help=help)


def root_options(body: Body) -> Body:
    body = click.option("--force-root", is_flag=True, help="Allow the whole disk or the home folder as the project.")(
        body
    )
    return click.option(
        "--root", metavar="DIR", help="The project; by default the git root, or the working directory."
    )(body)


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
words_argument = click.argument("words", metavar="[ID] [PATH]...", nargs=-1)


def run_options(body: Body) -> Body:
    body = click.option("--all", "everything", is_flag=True, help="All runs of the chat together.")(body)
    number = click.IntRange(min=1)
    return click.option("--run", type=number, metavar="N", help="This run instead of the last; counted from 1.")(body)


class SelectionArguments(NamedTuple):
    """The arguments that select changes: at most a chat, paths or hunks, and a run."""

    words: tuple[str, ...] = ()
    """At most a chat, and then paths."""
    hunks: tuple[str, ...] = ()
    run: int | None = None
    everything: bool = False
    even_kept: bool = False
    caches: bool = False
    only_chat: str = ""
    """A chat that was named by itself."""

    @property
    def chat(self) -> str:
        """The first word may be a chat: `last`, or what begins with c_. A file of such a name is written ./c_…"""
        first = self.words[0] if self.words else ""
        return self.only_chat or (first if first == LAST or first.startswith("c_") else "")

    @property
    def paths(self) -> tuple[str, ...]:
        return self.words[1:] if self.words and self.chat == self.words[0] else self.words


def gathered(struct: Any, name: str) -> Decorator:
    """Hand the options that are fields of `struct`, a NamedTuple, to the command as one value. A method `check` of it
    may refuse what does not go together, before anything is loaded."""

    def wrap(body: Body) -> Body:
        @wraps(body)
        def command(**flags: Any) -> Any:
            value = struct(**{field: flags.pop(field) for field in struct._fields if field in flags})
            if hasattr(value, "check"):
                value.check()
            return body(**flags, **{name: value})

        return command

    return wrap
