"""Content in the protocol's shape, made inert (S-12): tool calls, errors with a code that editors know and our
sentence."""

import os
from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import msgspec
from acp import RequestError
from acp import schema as a
from acp.helpers import ToolCallContentVariant as Content

from treadle.adapters.tools.registry import ALIASES
from treadle.base.inert import fence_block, make_inert, make_inert_line
from treadle.diff.diff import parse_sides
from treadle.errors import ConfigError, InvalidInput, NotFound, Refused, TreadleError
from treadle.protocol.events import SessionError
from treadle.protocol.tools import COMMAND_TOOL, EDIT_TOOLS
from treadle.protocol.views import summarize_arguments

_KINDS: Mapping[str, a.ToolKind] = {
    "read_file": "read", "read_output": "read", "list_directory": "search", "find_files": "search",
    "grep_search": "search", "get_diagnostics": "read", COMMAND_TOOL: "execute", "check_command": "execute",
    "send_input": "execute", "stop_command": "execute", **dict.fromkeys(EDIT_TOOLS, "edit"),
}  # fmt: skip
_VERBS = {
    "read_file": "Read", "list_directory": "List", "find_files": "Find", "grep_search": "Search for",
    "get_diagnostics": "Diagnose", "write_file": "Write", "edit_file": "Edit", "apply_patch": "Apply a patch",
}  # fmt: skip
_PATHS = ("path", "file_path", "file", "filePath")
_WIDTH = 200
MOST_SHOWN = 20_000


def make_text_block(text: str) -> a.TextContentBlock:
    return a.TextContentBlock(type="text", text=make_inert(text))


def make_chunk(text: str) -> a.AgentMessageChunk:
    return a.AgentMessageChunk(session_update="agent_message_chunk", content=make_text_block(text))


def make_remark(text: str) -> a.AgentMessageChunk:
    """Something that Treadle says, apart from what the model says."""
    return make_chunk(f"\n\n*{text[:1].upper()}{text[1:]}*\n\n")


def make_thought_chunk(text: str) -> a.AgentThoughtChunk:
    return a.AgentThoughtChunk(session_update="agent_thought_chunk", content=make_text_block(text))


def make_user_chunk(text: str) -> a.UserMessageChunk:
    return a.UserMessageChunk(session_update="user_message_chunk", content=make_text_block(text))


def make_text_content(text: str) -> Content:
    return a.ContentToolCallContent(type="content", content=make_text_block(text))


def fence_text(text: str) -> Content:
    """Text as it is, in a fence that it cannot close: editors read content as Markdown. Of a long one the end."""
    if len(text) > MOST_SHOWN:
        text = f"[{len(text) - MOST_SHOWN:,} characters are not shown]\n{text[-MOST_SHOWN:]}"
    return make_text_content(fence_block(text))


def make_diff(path: str, old: bytes | None, new: bytes) -> Content:
    old_text, new_text = (None if each is None else make_inert(each.decode(errors="replace")) for each in (old, new))
    return a.FileEditToolCallContent(type="diff", path=make_inert(path), old_text=old_text, new_text=new_text or "")


def find_diffs(text: str, root: str) -> list[Content]:
    """The hunks of the unified diffs in a text, each as what it goes from and to; none if there are none."""
    return [
        a.FileEditToolCallContent(type="diff", path=f"{root}/{hunk.path}", old_text=hunk.old, new_text=hunk.new)
        for hunk in parse_sides(text)
    ]


def get_tool_kind(name: str) -> a.ToolKind:
    return _KINDS.get(ALIASES.get(name, name), "other")


def format_title(name: str, arguments: str) -> str:
    """A command as it is; of anything else what is done to what."""
    name = ALIASES.get(name, name)
    about = make_inert_line(summarize_arguments(arguments), _WIDTH)
    if name == COMMAND_TOOL:
        return f"`{about}`" if "`" not in about else about
    if name == "apply_patch":
        return _VERBS[name]
    return f"{_VERBS.get(name, make_inert_line(name, 64))} {about}".strip()


def find_locations(root: str, arguments: str) -> list[a.ToolCallLocation]:
    """The file that a call names, and the line where it begins to read."""
    try:
        decoded = msgspec.json.decode(arguments)
    except msgspec.MsgspecError:
        return []
    path = next((decoded[name] for name in _PATHS if name in decoded), "") if isinstance(decoded, dict) else ""
    if not isinstance(path, str) or not path or not root:
        return []
    line = decoded.get("start_line")
    full_path = make_inert(os.path.normpath(os.path.join(root, path)))
    return [a.ToolCallLocation(path=full_path, line=line if isinstance(line, int) and line > 0 else None)]


P = ParamSpec("P")
R = TypeVar("R")

AUTH, INVALID_PARAMS, INVALID_REQUEST, NOT_FOUND, INTERNAL = -32000, -32602, -32600, -32002, -32603
_CODES: dict[type[TreadleError], int] = {
    ConfigError: AUTH,  # a key or a model is missing: editors then show how to authenticate
    InvalidInput: INVALID_PARAMS,
    NotFound: NOT_FOUND,
    Refused: INVALID_REQUEST,
}


def report_failures(body: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """A method of the agent whose failures the editor can show."""

    @wraps(body)
    async def call_body(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await body(*args, **kwargs)
        except TreadleError as error:
            number = next((number for kind, number in _CODES.items() if isinstance(error, kind)), INTERNAL)
            code = error.reason if isinstance(error, Refused) else error.code
            raise RequestError(number, make_inert(str(error)), {"code": code}) from error

    return call_body


def make_run_error(failure: SessionError | None, reason: str) -> RequestError:
    """Why the run of a prompt ended in an error. The same stands in the session."""
    if failure is None:
        return RequestError(INTERNAL, make_inert(reason) or "the run ended with an error")
    code = AUTH if failure.error_class == "auth" else INTERNAL
    return RequestError(code, make_inert(failure.message), {"class": failure.error_class})
