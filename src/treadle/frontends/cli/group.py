"""Parsing the command line: a group that loads a command's module only when it is used, an agent for the length of a
command, and the one place where an error becomes a line on standard error and an exit code."""

import errno
import io
import os
import sys
from functools import wraps
from importlib import import_module
from typing import Any, NamedTuple

import click

from treadle.base.inert import print_line, print_note
from treadle.errors import InvalidInput, TreadleError
from treadle.frontends.cli import COMMANDS, MODULES, help_text, version_text
from treadle.frontends.cli.options import EXIT_ERROR, EXIT_INTERRUPTED, EXIT_USAGE, LAST, Body, Decorator

PROMPT = "prompt"
_UNSAID = (None, "", False)
_SHOWN = 80
"""Characters of a word that an error message repeats."""


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
                return PROMPT, click.Command(PROMPT, callback=lambda: _app(ctx.params)), []
            from treadle.errors import did_you_mean

            message = f'treadle "{" ".join(args)}"' if len(args) > 1 else f"treadle run {name}"
            suggestion = (
                did_you_mean(name, COMMANDS) or f"; see them with: treadle --help. If it is a message: {message}"
            )
            raise click.UsageError(f"No such command {name!r}{suggestion}")
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: click.Context) -> str:
        return help_text()


def _print_version(ctx: click.Context, _option: click.Parameter, is_requested: bool) -> None:
    if is_requested:
        print_line(version_text())
        ctx.exit()


@click.command(
    "treadle", cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["--help", "-h"]}
)
@click.option("--version", "-V", is_flag=True, expose_value=False, is_eager=True, callback=_print_version)
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
        return _app(ctx.params)
    if ctx.invoked_subcommand != PROMPT and (
        used_flags := [name for name, value in flags.items() if value not in _UNSAID]
    ):
        name = "--continue" if used_flags[0] == "go_on" else f"--{used_flags[0].replace('_', '-')}"
        raise click.UsageError(f"{name} opens the app; behind a command's name it is that command's own.")
    return None


def _app(params: dict[str, Any]) -> Any:
    from treadle.frontends.cli.open_app import AppArguments, on_a_terminal, open_app

    if not on_a_terminal():
        return _run_piped(params)
    arguments = dict(params)
    if arguments.pop("go_on", False):
        arguments["resume"] = LAST
    return open_app(AppArguments(**arguments))


def _run_piped(options: dict[str, Any]) -> Any:
    """Without a terminal there is no app. A text that is piped in, or given as a message, is a task as for `run`."""
    from treadle.frontends.cli.piped import is_piped

    flags = {name: value for name, value in options.items() if value not in _UNSAID}
    prompt = flags.pop("prompt", "")
    if not (prompt or is_piped()) or not flags.keys() <= {"model", "mode", "root", "force_root"}:
        print_line(help_text())
        return EXIT_USAGE
    words = [f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}") for name, value in flags.items()]
    return cli.main(["run", *words, *(["--", prompt] if prompt else [])], prog_name="treadle", standalone_mode=False)


def in_loop(body: Body) -> Body:
    """Make a coroutine function a command."""

    @wraps(body)
    def command(**arguments: Any) -> Any:
        import asyncio

        return asyncio.run(body(**arguments))

    return command


def in_agent(*, works: bool = False) -> Decorator:
    """Make a coroutine function a command: its first argument is an agent on the user's store, closed at its end."""

    def wrap(body: Body) -> Body:
        @wraps(body)
        def command(**arguments: Any) -> Any:
            from treadle.frontends.cli.session import with_agent

            return with_agent(lambda agent: body(agent, **arguments), works=works)

        return command

    return wrap


def invoke(arguments: list[str]) -> int:
    """Run a command and return an exit code of the table in docs/reference/command-line.md, also after any exception. A
    command that returns None succeeded."""
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
    except TreadleError as error:
        if os.environ.get("TREADLE_DEBUG"):
            return _print_traceback(error)
        print_note(f"treadle: {error}")
        return EXIT_USAGE if isinstance(error, InvalidInput) else EXIT_ERROR
    except BrokenPipeError:
        _say_no_more()
        return EXIT_ERROR
    except Exception as error:
        if os.environ.get("TREADLE_DEBUG"):
            return _print_traceback(error)
        if (refusal := _explain(error, arguments)) is not None:
            print_note(f"treadle: {refusal.text}")
            return refusal.exit_code
        print_note(f"treadle: internal error, {type(error).__name__}: {error} (TREADLE_DEBUG=1 shows where)")
        return EXIT_ERROR
    return result if isinstance(result, int) else 0


class _Refusal(NamedTuple):
    text: str
    exit_code: int


def _explain(error: Exception, arguments: list[str]) -> _Refusal | None:
    """An error of the system that the words of the command line or the machine caused; None if it is a fault here."""
    if isinstance(error, UnicodeEncodeError) and (odd := [word for word in arguments if not _is_text(word)]):
        text = f"{odd[0][:_SHOWN]!r} is no valid UTF-8 and cannot be stored; write it in UTF-8"
        return _Refusal(text, EXIT_USAGE)
    if not isinstance(error, OSError):
        return None
    place = str(error.filename or "a file")
    if error.errno == errno.EROFS:
        return _Refusal(f"{place} cannot be written: the file system is read-only; allow writing", EXIT_ERROR)
    if error.errno == errno.ENAMETOOLONG:
        return _Refusal(f"{place[:_SHOWN]}… is too long for a path ({len(place)} characters)", EXIT_USAGE)
    return None


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _print_traceback(error: Exception) -> int:
    from traceback import format_exception

    print_note("".join(format_exception(error)))
    return EXIT_ERROR


def _say_no_more() -> None:
    """Discard all further output, also at exit, because the reader of our output has closed the pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
