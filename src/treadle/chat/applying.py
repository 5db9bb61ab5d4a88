"""Builds the turn for an `Apply` command (L-18): a person applies a text or a fenced block of an answer to a file, a
patch, or a command. Selects the block and the events that stand for it in the log. No model is called."""

import re
from typing import Any

import msgspec
from msgspec.structs import replace

from treadle.base.types import make_call_key
from treadle.chat.fold_calls import make_title
from treadle.chat.state import ChatState
from treadle.errors import InvalidInput, Refused
from treadle.protocol.commands import Apply
from treadle.protocol.content import AssistantEntry, ToolRequest, Usage
from treadle.protocol.events import AssistantMessage, Event, TitleChanged, TurnStart, UserMessage
from treadle.protocol.options import ChatOptions
from treadle.protocol.tools import COMMAND_TOOL, JOB_TOOL, PATCH_TOOL, RACE_TOOL, WORLD_TOOL, WRITE_TOOL

_OPENING = re.compile(r"([ \t]*)(`{3,}|~{3,})([^\n]*)")
_CLOSING_INDENT = 3  # a closing fence may be indented so many columns further than the opening one; further in is text


def build_apply_events(state: ChatState, command: Apply) -> tuple[Event, ...]:
    """The person's word and a turn of one call, which a worker carries out like any other."""
    message, tool, values = _build_call(state, command)
    try:
        arguments = msgspec.json.encode(values).decode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"The path or the content is no valid Unicode: {error}.") from error
    title_events = () if state.title or command.race is None else (TitleChanged(make_title(message), by="treadle"),)
    turn = state.turn + 1
    request = ToolRequest(make_call_key(turn, 0), tool, arguments)
    answer = AssistantMessage(turn, tool_requests=(request,), usage=Usage(), finish_reason="tool_calls")
    return (*title_events, UserMessage(message, source="apply"), TurnStart(turn), answer)


def get_tool_options(state: ChatState) -> ChatOptions:
    """The options that decide which tools open calls can use. A person may apply with one that the model lacks."""
    if state.run is None or not state.run.applies:
        return state.options
    tool_names = (WRITE_TOOL, PATCH_TOOL, WORLD_TOOL, COMMAND_TOOL, RACE_TOOL, JOB_TOOL)
    return replace(state.options, tools=tool_names, dynamic_tools=())


def _build_call(state: ChatState, command: Apply) -> tuple[str, str, dict[str, Any]]:
    """Return the user message, the name of the tool and its arguments."""
    if command.race is not None:
        if command != Apply(race=command.race):
            raise InvalidInput("A race is run by itself; give no path, content, block, patch or world with it.")
        return f"Race: {command.race.task}", RACE_TOOL, msgspec.to_builtins(command.race)
    if command.world:
        if command != Apply(world=command.world):
            raise InvalidInput("A world is committed as it is; give nothing else with it.")
        return f"Commit the world {command.world}.", WORLD_TOOL, {"world": command.world}
    if command.job:
        if command != Apply(job=command.job):
            text = "The changes of a background command are committed as they are; give nothing else with them."
            raise InvalidInput(text)
        message = f"Commit what the background command {command.job} changed."
        return message, JOB_TOOL, {"handle": command.job, "commit": True}
    if command.command is not None:
        if command != Apply(command=command.command):
            raise InvalidInput("A command is run as it is; give nothing else with it.")
        if not command.command.strip():
            raise InvalidInput("The command is empty.")
        return "I run a command in the project.", COMMAND_TOOL, {"command": command.command}
    if command.patch is not None:
        if command.path or command.content is not None or command.block:
            raise InvalidInput("A patch names its files itself; give no path, content or block with it.")
        if not command.patch.strip():
            raise InvalidInput("The patch is empty.")
        return "Apply this patch.", PATCH_TOOL, {"patch": command.patch}
    if not command.path.strip():
        raise InvalidInput("Name the file for the text (path).")
    description, content = _select_content(state, command)
    return f"Write {description} to {command.path}.", WRITE_TOOL, {"path": command.path, "content": content}


def _select_content(state: ChatState, command: Apply) -> tuple[str, str]:
    """Return a description of the content to apply, and the content."""
    if command.content is not None:
        if command.block:
            raise InvalidInput("Give either a content or the number of a block, not both.")
        return "this text", command.content
    if command.block < 0:
        raise InvalidInput(f"Blocks are counted from 1; got {command.block}.")
    blocks = parse_fenced_blocks(find_last_answer(state))
    count, number = len(blocks), command.block or 1
    if count > 1 and not command.block:
        raise InvalidInput(f"The last answer has {count} fenced blocks; say which one (block=1 to {count}).")
    if number > count:
        has = {0: "no fenced block", 1: "one fenced block"}.get(count, f"{count} fenced blocks")
        raise Refused("no_such_block", f"The last answer of chat {state.chat} has {has} that is closed by its fence.")
    return f"block {number} of your last answer", blocks[number - 1]


def find_last_answer(state: ChatState) -> str:
    """The last words of the model; turns that only make calls are no answers."""
    answers = (entry.text for entry in reversed(state.history) if isinstance(entry, AssistantEntry))
    return next(filter(str.strip, answers), "")


def parse_fenced_blocks(text: str) -> list[str]:
    """The content of every fenced code block (CommonMark), each line ended. One that is never closed is none: the
    answer was cut off. A block may be indented, as in a list: its content is taken out by as much."""
    blocks: list[str] = []
    fence, indent, lines = "", 0, list[str]()
    for line in text.split("\n"):
        if not fence:
            opening = _OPENING.fullmatch(line.rstrip("\r"))
            if opening is not None and not (opening[2][0] == "`" and "`" in opening[3]):
                fence, indent, lines = opening[2], len(opening[1]), []
            continue
        stripped, own_indent = line.strip(), len(line) - len(line.lstrip(" \t"))
        is_fence = len(stripped) >= len(fence) and not stripped.strip(fence[0])
        if is_fence and own_indent <= indent + _CLOSING_INDENT:
            blocks.append("".join(f"{each}\n" for each in lines))
            fence = ""
        else:
            lines.append(line[min(indent, own_indent) :])
    return blocks
