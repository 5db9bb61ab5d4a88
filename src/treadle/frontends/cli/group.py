"""Parsing the command line: a group that loads a command's module only when it is used, an agent for the length of a
command, and the one place where an error becomes a line on standard error and an exit code."""

import errno
import io
import os
import sys
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

from treadle._version import __version__
from treadle.base.inert import print_line, print_note
from treadle.errors import InvalidInput, TreadleError, suggest_name
from treadle.frontends.cli import COMMANDS, MODULES, format_help
from treadle.frontends.cli.lazy import asyncio, piped, session
from treadle.frontends.cli.options import CHAT, EXIT_ERROR, EXIT_INTERRUPTED, EXIT_USAGE, LAST, Body, Decorator

PROMPT = "prompt"
_UNSAID = (None, "", False)
_SHOWN = 80  # characters of a word that an error message repeats


class LazyGroup(click.Group):
    """Each command is the one of its name in its module."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"treadle.frontends.cli.commands.{MODULES.get(cmd_name, cmd_name)}")
        commands = (each for each in vars(module).values() if isinstance(each, click.Command))
        return next(each for each in commands if each.name == cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """A first word with spaces in it is a prompt, and opens the app."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            if len(args) == 1 and any(letter.isspace() for letter in name.strip()):
                ctx.params["prompt"] = name
                return PROMPT, click.Command(PROMPT, callback=lambda: _open_app(ctx.params)), []
            message = f'treadle "{" ".join(args)}"' if len(args) > 1 else f"treadle run {name}"
            hint = f"; see them with: treadle --help. If it is a message: {message}"
            raise click.UsageError(f"No such command {name!r}{suggest_name(name, COMMANDS) or hint}")
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: click.Context) -> str:
        return format_help()

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """The commands are named without loading them."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem

        return [CompletionItem(name, help=line) for name, line in COMMANDS.items() if name.startswith(incomplete)]


@click.command(
    "treadle", cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["--help", "-h"]}
)
@click.version_option(__version__, "--version", "-V", message="%(prog)s %(version)s")
@click.option("--continue", "go_on", is_flag=True, help="Go on with the newest chat.")
@click.option("--resume", is_flag=False, flag_value="", metavar="[ID]", help="Go on with a chat, or choose one.")
@click.option("--server", default="", metavar="URL", help="The chats of a server.")
@click.option("--model", metavar="PROVIDER:NAME")
@click.option("--mode", metavar="MODE")
@click.option("--root", metavar="DIR")
@click.option("--force-root", is_flag=True)
@click.option("--plain", is_flag=True, help="Text line by line, as for a screen reader.")
@click.option("--inline", is_flag=True, help="Below the prompt, with the terminal's own scrollback.")
@click.pass_context
def cli(ctx: click.Context, /, **flags: Any) -> Any:
    """An agent that works in your project and that you can kill at any moment."""
    if ctx.invoked_subcommand is None:
        return _open_app(ctx.params)
    used_flags = [name for name, value in flags.items() if value not in _UNSAID]
    if used_flags and ctx.invoked_subcommand != PROMPT:
        name = "--continue" if used_flags[0] == "go_on" else f"--{used_flags[0].replace('_', '-')}"
        raise click.UsageError(f"{name} opens the app; behind a command's name it is that command's own.")
    return None


def _open_app(params: dict[str, Any]) -> Any:
    """Open the app. Without a terminal, a text that is piped in, or given as a message, is a task as for `run`."""
    from treadle.frontends.cli.open_app import AppArguments, open_app
    from treadle.frontends.cli.terminal import is_terminal

    arguments = dict(params)
    if is_terminal(sys.stdin, sys.stdout):
        if arguments.pop("go_on", False):
            arguments["resume"] = LAST
        return open_app(AppArguments(**arguments))
    flags = {name: value for name, value in arguments.items() if value not in _UNSAID}
    prompt = flags.pop("prompt", "")
    if not (prompt or piped.is_piped()) or not flags.keys() <= {"model", "mode", "root", "force_root"}:
        print_line(format_help())
        return EXIT_USAGE
    words = [f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}") for name, value in flags.items()]
    return cli.main(["run", *words, *(["--", prompt] if prompt else [])], prog_name="treadle", standalone_mode=False)


def run_in_loop(body: Body) -> Body:
    @wraps(body)
    def run_body(**arguments: Any) -> Any:
        return asyncio.run(body(**arguments))

    return run_body


def pass_agent(*, works: bool = False) -> Decorator:
    """Make a coroutine function a command: its first argument is an agent on the user's store, closed at its end."""

    def wrap(body: Body) -> Body:
        @wraps(body)
        def run_body(**arguments: Any) -> Any:
            return session.run_with_agent(lambda agent: body(agent, **arguments), works=works)

        return run_body

    return wrap


def pass_chat(*, works: bool = False) -> Decorator:
    """The same for a command whose argument ID names a chat, which is the second argument of the function."""

    def wrap(body: Body) -> Body:
        async def run_body(agent: Any, chat_ref: str, **arguments: Any) -> Any:
            return await body(agent, await session.open_chat(agent, chat_ref), **arguments)

        return click.argument("chat_ref", metavar="ID", type=CHAT)(wraps(body)(pass_agent(works=works)(run_body)))

    return wrap


def invoke(arguments: list[str]) -> int:
    """Run a command and return an exit code (docs/reference/command-line.md), also after any exception; None is 0."""
    try:
        if os.environ.get("TREADLE_FAULTS"):
            import_module("treadle.testing.faults").install_from_environment()
        result: Any = cli.main(arguments, prog_name="treadle", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as nothing:
        print_line(nothing.format_message())
        return EXIT_USAGE
    except click.ClickException as error:
        message = io.StringIO()
        error.show(message)
        print_note(message.getvalue().removesuffix("\n"))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader has closed the pipe: discard all further output, also at exit
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())
        return EXIT_ERROR
    except Exception as error:
        text, exit_code = _explain(error, arguments)
        if os.environ.get("TREADLE_DEBUG"):
            from traceback import format_exception

            text, exit_code = "".join(format_exception(error)), EXIT_ERROR
        print_note(text)
        return exit_code
    return result if isinstance(result, int) else 0


def _explain(error: Exception, arguments: list[str]) -> tuple[str, int]:
    """The words about an error, and its exit code. Some errors of the system are no internal error."""
    place, number = (str(error.filename or "a file"), error.errno) if isinstance(error, OSError) else ("", 0)
    if isinstance(error, TreadleError):
        return f"treadle: {error}", EXIT_USAGE if isinstance(error, InvalidInput) else EXIT_ERROR
    if isinstance(error, UnicodeEncodeError):
        for word in arguments:
            if word.encode(errors="ignore").decode() != word:
                problem = "is no valid UTF-8 and cannot be stored; write it in UTF-8"
                return f"treadle: {word[:_SHOWN]!r} {problem}", EXIT_USAGE
    if number == errno.EROFS:
        return f"treadle: {place} cannot be written: the file system is read-only; allow writing", EXIT_ERROR
    if number == errno.ENAMETOOLONG:
        return f"treadle: {place[:_SHOWN]}… is too long for a path ({len(place)} characters)", EXIT_USAGE
    return f"treadle: internal error, {type(error).__name__}: {error} (TREADLE_DEBUG=1 shows where)", EXIT_ERROR
