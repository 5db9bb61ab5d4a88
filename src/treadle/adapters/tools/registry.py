"""The tools of a chat: built-ins, functions, and a client's own, by the chat's options. Decides which tools are offered
and what a name means; the policy decides if a call is allowed."""

from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from treadle.adapters.tools import validate
from treadle.adapters.tools.builtin.interaction import ASK_USER, SKILL_TOOL
from treadle.base.types import ChatId
from treadle.errors import InvalidInput
from treadle.ports.toolset import Tool, ToolSource
from treadle.protocol.content import ToolRequest
from treadle.protocol.options import ChatOptions
from treadle.protocol.tools import ANY_OBJECT, DELEGATE_TOOL, RACE_TOOL, WORLD_TOOL, DynamicTool, ToolSpec, require_name

_OTHER_NAMES = {
    "read_file": "read view view_file open_file",
    "list_directory": "ls list_dir list_files list_folder",
    "find_files": "find find_by_name file_search glob glob_files",
    "grep_search": (
        "grep ripgrep rg search search_workspace search_codebase search_code search_file_content "
        "codebase_search find_in_files"
    ),
    "write_file": "create create_file save_file",
    "edit_file": "edit str_replace replace_in_file replace_string_in_file",
    "apply_patch": "applyPatch",
    "get_diagnostics": "get_errors get_problems diagnostics",
    "run_command": "bash shell execute_command run_terminal_command run_in_terminal",
    "check_command": "check bash_output command_status get_terminal_output",
    "send_input": "input write_stdin",
    "stop_command": "stop kill_shell kill_command kill_process",
    "read_output": "get_output",
    "update_plan": "todo_write",
    "task_complete": "attempt_completion",
    "ask_user": "ask_followup_question",
}
ALIASES: Mapping[str, str] = {alias: name for name, aliases in _OTHER_NAMES.items() for alias in aliases.split()}
"""Names used elsewhere (T-09). They are understood, never listed, and never shadow a tool of that name."""

SERVER_MARK = "__"  # Between the name of a server and that of its tool
MAX_DYNAMIC_TOOLS = 250
_KEPT = 1_024
_COMPLETE = "task_complete"
_OF_PEOPLE = (WORLD_TOOL, RACE_TOOL)


class _Table(msgspec.Struct, frozen=True):
    """The tools and warnings of one set of options. Holds the options, so that their identity cannot be reused."""

    options: ChatOptions
    specs: tuple[ToolSpec, ...]
    tools_by_name: dict[str, Tool | ToolSpec]
    warnings: tuple[str, ...]


class Tools:
    """Implements `treadle.ports.toolset.Toolset`. Built once; answers for any number of chats."""

    def __init__(
        self,
        builtins: Sequence[Tool],
        functions: Sequence[Tool] = (),
        source_of: Callable[[ChatOptions], ToolSource | None] = lambda _options: None,
    ) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in (*builtins, *functions):
            name = tool.spec.name
            if name in self._tools or name == ASK_USER.name:
                raise InvalidInput(f"Two tools are called {name!r}; give one of them another name.")
            self._tools[name] = tool
        self._tables: dict[int, _Table] = {}
        self._source_of = source_of
        self._source: ToolSource | None = None

    async def prepare_tools(self, chat: ChatId, options: ChatOptions) -> Sequence[str]:
        self._source = self._source or self._source_of(options)
        return () if self._source is None else await self._source.prepare_tools(chat, options)

    def list_specs(self, options: ChatOptions) -> Sequence[ToolSpec]:
        table, source = self._get_table(options), self._source
        if source is None:
            return table.specs
        more = (tool.spec for tool in source.list_tools(options) if tool.spec.name not in table.tools_by_name)
        return (*table.specs, *(spec for spec in more if can_call(spec.name, options)))

    def find(self, name: str, options: ChatOptions) -> Tool | ToolSpec | None:
        tools_by_name, source = self._get_table(options).tools_by_name, self._source
        tool = tools_by_name.get(name) or tools_by_name.get(ALIASES.get(name, ""))
        if tool is not None or source is None or not can_call(name, options):
            return tool
        return source.find(name, options)

    async def await_tool(self, request: ToolRequest, options: ChatOptions) -> str:
        if self._source is None or request.name in self._get_table(options).tools_by_name:
            return ""
        return await self._source.await_tool(request, options)

    def resolve_call(self, request: ToolRequest, options: ChatOptions) -> ToolRequest:
        if self._source is None or request.name in self._get_table(options).tools_by_name:
            return request
        return self._source.resolve_call(request, options)

    def parse_arguments(self, spec: ToolSpec, text: str) -> dict[str, Any] | str:
        if isinstance(read := validate.parse(text), str):
            return read
        mended = validate.coerce(spec, read)
        return validate.find_problem(spec.parameters, mended) or mended

    def list_warnings(self, options: ChatOptions) -> tuple[str, ...]:
        """Warnings about a caller's options; InvalidInput if they cannot be accepted at all (A-01)."""
        return self._get_table(options).warnings

    def _get_table(self, options: ChatOptions) -> _Table:
        """Looked up by identity, for options are frozen and a chat keeps one object from turn to turn."""
        if (table := self._tables.get(id(options))) is not None:
            return table
        if len(self._tables) >= _KEPT:
            self._tables.pop(next(iter(self._tables)))
        tools_by_name: dict[str, Tool | ToolSpec] = {
            n: tool for n, tool in self._tools.items() if _is_enabled(n, options)
        }
        specs = [self._tools[name].spec for name in tools_by_name]
        if options.interactive and _is_enabled(ASK_USER.name, options):
            tools_by_name[ASK_USER.name] = ASK_USER
            specs.append(ASK_USER)
        dynamic, warnings = declare(options.dynamic_tools, tools_by_name.keys())
        tools_by_name |= {spec.name: spec for spec in dynamic}
        known_names = {*self._tools, *tools_by_name, *ALIASES, ASK_USER.name}
        requested_names = (name for name in options.tools or () if SERVER_MARK not in name)  # theirs come later
        warnings += [f"There is no tool {name!r} to enable." for name in requested_names if name not in known_names]
        table = self._tables[id(options)] = _Table(options, (*specs, *dynamic), tools_by_name, tuple(warnings))
        return table


def can_call(name: str, options: ChatOptions) -> bool:
    """True if enabled by patterns such as `git__*`, less `!git__push`; names without a server by any of them."""
    if options.tools is None:
        return True
    if SERVER_MARK not in name:
        return any(SERVER_MARK in pattern for pattern in options.tools)
    if any(pattern[:1] == "!" and fnmatchcase(name, pattern[1:]) for pattern in options.tools):
        return False
    return any(fnmatchcase(name, pattern) for pattern in options.tools)


def _is_enabled(name: str, options: ChatOptions) -> bool:
    """Autopilot can always end the task (L-14); people commit worlds and begin races; sub-agents have a depth."""
    if name == SKILL_TOOL and not options.skills:
        return False
    if name in _OF_PEOPLE and name not in (options.tools or ()):
        return False
    if name == DELEGATE_TOOL and not (options.root and options.subagents > 0 and options.subagent_depth > 0):
        return False
    if options.tools is None or (name == _COMPLETE and options.mode == "autopilot"):
        return True
    return any(ALIASES.get(enabled, enabled) == name or enabled == name for enabled in options.tools)


def declare(tools: Sequence[DynamicTool], builtin_names: Collection[str]) -> tuple[list[ToolSpec], list[str]]:
    """The specs of a client's tools in their order, and warnings. InvalidInput for what cannot be accepted."""
    if len(tools) > MAX_DYNAMIC_TOOLS:
        raise InvalidInput(f"{len(tools)} dynamic tools are declared; at most {MAX_DYNAMIC_TOOLS} are allowed.")
    names: set[str] = set()
    specs: list[ToolSpec] = []
    warnings: list[str] = []
    for tool in tools:
        require_name(tool.name)
        if tool.name in names:
            raise InvalidInput(f"The dynamic tool {tool.name!r} is declared twice; names must be unique.")
        names.add(tool.name)
        if tool.name in builtin_names:
            warnings.append(f"The dynamic tool {tool.name!r} is ignored: a built-in tool has that name.")
            continue
        schema = tool.input_schema
        if wrong := validate.find_schema_problem(schema):
            warnings.append(f"The input_schema of {tool.name!r} is ignored, its arguments are not checked: {wrong}")
            schema = dict(ANY_OBJECT)
        specs.append(ToolSpec(tool.name, tool.description, {"type": "object"} | schema, kind="client"))
    return specs, warnings
