"""`treadle completion`: a script that lets a shell complete commands, options and their values without starting
Treadle; only chats are asked for, in the quickest way there is (`chat_names`)."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import click

from treadle.base.inert import print_line

SHELLS = ("bash", "zsh", "fish")
_CHATS = ("ID", "[ID]", "ID[@SEQ]", "A", "B", "[ID] [PATH]...")
"""How arguments and options that take a chat are named in help."""
_FILES = ("FILE", "[FILE]", "DIR", "[DIR]", "PATH")


class Value(NamedTuple):
    """The values that an option accepts."""

    words: tuple[str, ...] = ()
    chats: bool = False
    files: bool = False


class Spelled(NamedTuple):
    """A command as a shell needs to know it."""

    name: str
    line: str
    options: dict[str, str]
    """With their lines of help."""
    values: dict[str, Value]
    """By option that takes one."""
    words: tuple[str, ...]
    """Names of its own commands, or the values of its argument."""
    chats: bool
    """True if the argument is a chat."""


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script that completes commands, options and chats in a shell.

    For bash: eval "$(treadle completion bash)" in ~/.bashrc. For zsh: the same with zsh in ~/.zshrc, below compinit.
    For fish: treadle completion fish > ~/.config/fish/completions/treadle.fish, once.
    """
    script = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](list(_commands()))
    print_line(script)


def _commands() -> Iterator[Spelled]:
    from treadle.frontends.cli import COMMANDS
    from treadle.frontends.cli.group import cli

    context = click.Context(cli)
    for name, line in COMMANDS.items():
        command = cli.get_command(context, name)
        assert command is not None
        yield _spelled(name, line, command)


def _spelled(name: str, line: str, command: click.Command) -> Spelled:
    options: dict[str, str] = {"--help": "Show the help of this command."}
    values: dict[str, Value] = {}
    words: tuple[str, ...] = tuple(command.commands) if isinstance(command, click.Group) else ()
    chats = False
    for each in command.params:
        if isinstance(each, click.Option):
            for flag in (*each.opts, *each.secondary_opts):
                options[flag] = each.help or ""
                if not each.is_flag:
                    values[flag] = _value(each)
        elif isinstance(each.type, click.Choice):
            words = tuple(map(str, each.type.choices))
        else:
            chats = chats or _value(each).chats
    return Spelled(name, line, options, values, words, chats)


def _value(parameter: click.Parameter) -> Value:
    if isinstance(parameter.type, click.Choice):
        return Value(tuple(map(str, parameter.type.choices)))
    metavar = parameter.metavar or ""
    return Value(chats=metavar in _CHATS, files=metavar in _FILES)


# -- bash -------------------------------------------------------------------------------------------------------------

_BASH = """\
# Completion of treadle for bash: eval "$(treadle completion bash)"
_treadle_chats() {{ command "${{COMP_WORDS[0]}}" completion --ids 2>/dev/null | cut -f 1; }}
_treadle() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" command="${{COMP_WORDS[1]}}"
    local words=
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{commands} --help --version"
    else
        case "$command:$prev" in
{values}
        *)
            case "$cur" in
            -*)
                case "$command" in
{options}
                esac ;;
            *)
                case "$command" in
{arguments}
                *) return ;;
                esac ;;
            esac ;;
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}}
complete -o default -F _treadle treadle"""


def _values(commands: list[Spelled], spell: Callable[[Value], str]) -> str:
    """The branches of a `case` over command:flag."""
    return "\n".join(
        f"    {each.name}:{flag}) {spell(value)}" for each in commands for flag, value in each.values.items()
    )


def _bash(commands: list[Spelled]) -> str:
    return _BASH.format(
        commands=" ".join(each.name for each in commands),
        values=_values(commands, lambda value: f"{_bash_value(value)} ;;"),
        options="\n".join(f'                {each.name}) words="{" ".join(each.options)}" ;;' for each in commands),
        arguments="\n".join(
            f"                {each.name}) words={_bash_words(each)} ;;"
            for each in commands
            if each.chats or each.words
        ),
    )


def _bash_value(value: Value) -> str:
    if value.chats:
        return 'words="last $(_treadle_chats)"'
    return f'words="{" ".join(value.words)}"' if value.words else "return"


def _bash_words(command: Spelled) -> str:
    chats = " last $(_treadle_chats)" if command.chats else ""
    return f'"{" ".join(command.words)}{chats}"'


# -- zsh --------------------------------------------------------------------------------------------------------------

_ZSH = """\
#compdef treadle
# Completion of treadle for zsh: eval "$(treadle completion zsh)" below compinit
_treadle_chats() {{
    local -a chats=(last:'the newest chat' ${{(f)"$(command treadle completion --ids 2>/dev/null | tr '\\t' ':')"}})
    _describe -V chat chats
}}
_treadle() {{
    local command=$words[2] prev=$words[CURRENT-1]
    if (( CURRENT == 2 )); then
        local -a commands=(
{commands}
        )
        _describe command commands
        return
    fi
    case "$command:$prev" in
{values}
    esac
    if [[ $PREFIX == -* ]]; then
        case "$command" in
{options}
        esac
        return
    fi
    case "$command" in
{arguments}
    *) _files ;;
    esac
}}
if [ "$funcstack[1]" = _treadle ]; then _treadle "$@"; else compdef _treadle treadle; fi"""


def _zsh(commands: list[Spelled]) -> str:
    return _ZSH.format(
        commands="\n".join(f"            {_quoted(f'{each.name}:{each.line}')}" for each in commands),
        values=_values(commands, lambda value: f"{_zsh_value(value)}; return ;;"),
        options="\n".join(f"        {each.name}) compadd -- {' '.join(each.options)} ;;" for each in commands),
        arguments="\n".join(
            f"    {each.name}) {'_treadle_chats' if each.chats else f'compadd -- {chr(32).join(each.words)}'} ;;"
            for each in commands
            if each.chats or each.words
        ),
    )


def _zsh_value(value: Value) -> str:
    if value.chats:
        return "_treadle_chats"
    return f"compadd -- {' '.join(value.words)}" if value.words else "_files" if value.files else "true"


# -- fish -------------------------------------------------------------------------------------------------------------


def _fish(commands: list[Spelled]) -> str:
    names = " ".join(each.name for each in commands)
    lines = [
        "# Completion of treadle for fish: treadle completion fish > ~/.config/fish/completions/treadle.fish",
        f"set -l commands {names}",
        "set -l none 'not __fish_seen_subcommand_from '\"$commands\"",
        "complete -c treadle -n $none -f -l help -d 'Print the help.'",
        "complete -c treadle -n $none -f -l version -d 'Print the version.'",
    ]
    for each in commands:
        lines.append(f"complete -c treadle -n $none -f -a {each.name} -d {_quoted(each.line)}")
        prefix = f"complete -c treadle -n '__fish_seen_subcommand_from {each.name}'"
        for flag, line in each.options.items():
            if flag.startswith("--"):
                lines.append(f"{prefix} -l {flag[2:]} -d {_quoted(line)}{_fish_value(each.values.get(flag))}")
        if each.words:
            lines.append(f"{prefix} -f -a {_quoted(' '.join(each.words))}")
        if each.chats:
            lines.append(f"{prefix} -f -a 'last (treadle completion --ids)'")
    return "\n".join(lines)


def _fish_value(value: Value | None) -> str:
    if value is None:
        return ""
    if value.chats:
        return " -x -a 'last (treadle completion --ids)'"
    return f" -x -a {_quoted(' '.join(value.words))}" if value.words else " -r" if value.files else " -x"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "'\\''") + "'"
