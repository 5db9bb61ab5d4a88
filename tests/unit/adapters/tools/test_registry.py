"""Which tools a chat has, in which order, and what a name means."""

import msgspec
import pytest

from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.tools.builtin import make_builtin_tools
from treadle.adapters.tools.builtin.base import ToolContext
from treadle.adapters.tools.function import tool
from treadle.adapters.tools.registry import ALIASES, Tools
from treadle.adapters.workspace.root import Root
from treadle.errors import InvalidInput
from treadle.ports.toolset import Toolset
from treadle.protocol.options import MODES, ChatOptions
from treadle.protocol.tools import COMMAND_TOOL, EDIT_TOOLS, INPUT_TOOL, DynamicTool, ToolSpec

BUILTIN = [
    "read_file",
    "list_directory",
    "find_files",
    "grep_search",
    "edit_file",
    "write_file",
    "apply_patch",
    "get_diagnostics",
    "run_command",
    "check_command",
    "send_input",
    "stop_command",
    "read_output",
    "update_plan",
    "task_complete",
]


@tool(read_only=True)
def weather(city: str, days: int = 1) -> str:
    return city


@pytest.fixture
def tools() -> Tools:
    return Tools(make_builtin_tools(ToolContext(Root, MemoryStore())), [weather])


def names(tools: Tools, options: ChatOptions) -> list[str]:
    return [spec.name for spec in tools.list_specs(options)]


def test_the_order_is_stable_and_dynamic_tools_come_last(tools: Tools) -> None:  # L-21
    checked: Toolset = tools
    options = ChatOptions(interactive=True, dynamic_tools=(DynamicTool("zeta"), DynamicTool("alpha")))
    expected_names = [*BUILTIN, "weather", "ask_user", "zeta", "alpha"]
    assert [spec.name for spec in checked.list_specs(options)] == expected_names
    again = msgspec.convert(msgspec.to_builtins(options), ChatOptions)
    assert msgspec.json.encode(tools.list_specs(again)) == msgspec.json.encode(tools.list_specs(options))


def test_what_rules_take_a_tool_for_is_what_its_spec_says(tools: Tools) -> None:
    specs = {spec.name: spec for spec in tools.list_specs(ChatOptions(interactive=True))}
    assert {name for name, spec in specs.items() if spec.effect == "edit"} == EDIT_TOOLS
    assert [name for name, spec in specs.items() if spec.command_argument] == [COMMAND_TOOL]
    assert [name for name, spec in specs.items() if spec.input_argument] == [INPUT_TOOL]
    assert [name for name, spec in specs.items() if spec.effect == "none"] == ["check_command", "stop_command"]
    assert specs["weather"].effect == specs["ask_user"].effect == "read"


def test_a_spec_that_reads_says_so_in_both_ways() -> None:
    assert ToolSpec("look", effect="read") == ToolSpec("look", read_only=True)
    assert msgspec.json.decode(b'{"name": "look", "read_only": true}', type=ToolSpec).effect == "read"
    assert not ToolSpec("act").read_only


def test_the_same_options_cost_nothing(tools: Tools) -> None:
    options = ChatOptions()
    assert tools.list_specs(options) is tools.list_specs(options)


def test_the_cache_is_bounded_and_never_mixes_options_up(tools: Tools) -> None:
    for number in range(3_000):
        assert len(tools.list_specs(ChatOptions(interactive=number % 2 == 0))) == len(BUILTIN) + 1 + (number % 2 == 0)
    assert len(tools._tables) <= 1_024


def test_the_filter(tools: Tools) -> None:
    options = ChatOptions(tools=("run_command", "read_file", "weather", "nonsense"))
    assert names(tools, options) == ["read_file", "run_command", "weather"]
    assert tools.find("write_file", options) is None
    assert tools.find("create_file", options) is None
    assert tools.list_warnings(options) == ("There is no tool 'nonsense' to enable.",)
    assert names(tools, ChatOptions(tools=())) == []
    assert names(tools, ChatOptions(tools=("list_files",))) == ["list_directory"]


def test_in_every_mode_the_same_tools_are_listed(tools: Tools) -> None:
    for mode in MODES:
        assert names(tools, ChatOptions(mode=mode)) == [*BUILTIN, "weather"]


def test_autopilot_can_always_say_that_it_is_done(tools: Tools) -> None:  # L-14
    assert names(tools, ChatOptions(mode="autopilot", tools=("read_file",))) == ["read_file", "task_complete"]
    assert names(tools, ChatOptions(mode="auto-edit", tools=("read_file",))) == ["read_file"]


def test_questions_need_a_person(tools: Tools) -> None:  # T-07
    tool_spec = tools.find("ask_user", ChatOptions(interactive=True))
    assert isinstance(tool_spec, ToolSpec)
    assert tool_spec.kind == "question"
    assert tools.find("ask_user", ChatOptions()) is None


def test_aliases_are_understood_but_not_listed(tools: Tools) -> None:  # T-09
    options = ChatOptions(interactive=True)
    for alias, name in ALIASES.items():
        listed_tool = tools.find(alias, options)
        assert listed_tool is not None, alias
        assert (listed_tool if isinstance(listed_tool, ToolSpec) else listed_tool.spec).name == name
        assert alias not in names(tools, options)


def test_an_alias_never_shadows_a_clients_tool(tools: Tools) -> None:  # T-09
    tool_spec = tools.find("create_file", ChatOptions(dynamic_tools=(DynamicTool("create_file"),)))
    assert isinstance(tool_spec, ToolSpec)
    assert tool_spec.kind == "client"


def test_a_builtin_wins_a_collision_unless_it_is_disabled(tools: Tools) -> None:
    options = ChatOptions(dynamic_tools=(DynamicTool("read_file"),))
    assert not isinstance(tools.find("read_file", options), ToolSpec)
    assert "ignored" in tools.list_warnings(options)[0]
    options = ChatOptions(tools=(), dynamic_tools=(DynamicTool("read_file"),))
    assert isinstance(tools.find("read_file", options), ToolSpec)


def test_unknown_names_and_bad_declarations(tools: Tools) -> None:
    for name in ("", "nonsense", "Read_File"):
        assert tools.find(name, ChatOptions()) is None
    with pytest.raises(InvalidInput):
        tools.list_warnings(ChatOptions(dynamic_tools=(DynamicTool(""),)))


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidInput, match="read_file"):
        Tools(make_builtin_tools(ToolContext(Root, MemoryStore())), [tool(name="read_file")(lambda: None)])
    with pytest.raises(InvalidInput, match="ask_user"):
        Tools([], [tool(name="ask_user")(lambda: None)])


def test_arguments_are_read_mended_and_checked(tools: Tools) -> None:  # T-12
    spec = weather.spec
    assert tools.parse_arguments(spec, '{"city": "Rome", "days": "3"}') == {"city": "Rome", "days": 3}
    problem_text = tools.parse_arguments(spec, '{"city": 7.5}')
    assert isinstance(problem_text, str)
    assert "`city` must be a string" in problem_text
    assert isinstance(tools.parse_arguments(spec, '{"city"'), str)
    problem_text = tools.parse_arguments(spec, "{}")
    assert isinstance(problem_text, str)
    assert "`city` is missing" in problem_text


def test_every_spec_is_a_schema_that_providers_take(tools: Tools) -> None:
    import jsonschema_rs

    for spec in tools.list_specs(ChatOptions(interactive=True)):
        jsonschema_rs.validator_for(spec.parameters, offline=True)
        assert spec.parameters["additionalProperties"] is False
        assert "$ref" not in str(spec.parameters)
        assert spec.name == "weather" or 20 < len(spec.description) < 600
        assert not spec.summary_argument or spec.summary_argument in spec.parameters["properties"]
