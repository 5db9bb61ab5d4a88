"""A request for a small window: the same words for the same entries, and the task always stays (M-15, L-21)."""

import json

from treadle.adapters.models.local.prompt import LEFT_OUT, OLD_RESULT_CHARS, build
from treadle.base.types import make_call_key
from treadle.protocol.content import AssistantEntry, Entry, Image, ResultsEntry, ToolRequest, ToolResult, UserEntry
from treadle.protocol.tools import ToolSpec

READ = ToolSpec(
    "read",
    "Read a file. With much more to say about it.",
    {
        "type": "object",
        "properties": {"path": {"type": "string"}, "line": {"type": ["integer", "null"]}},
        "required": ["path"],
    },
)
ROOM = 4_000


def turn(number: int, result: str) -> list[Entry]:
    key = make_call_key(number, 0)
    call = ToolRequest(key, "read", json.dumps({"path": f"file{number}"}))
    return [AssistantEntry(number, calls=(call,)), ResultsEntry(number, (ToolResult(key, result),))]


def chat(turns: int, result: str) -> list[Entry]:
    return [UserEntry("The task."), *(entry for number in range(1, turns + 1) for entry in turn(number, result))]


def test_tools_are_told_in_a_line_each() -> None:
    head = build("Be good.", [UserEntry("Hi.")], [READ], ROOM).messages[0]
    assert head.role == "system"
    assert head.content.startswith("Be good.")
    assert head.content.splitlines()[-2:] == [
        "reply(text: string): Speak to the user.",
        "read(path: string, line?: integer|null): Read a file.",
    ]


def test_history_has_the_form_that_the_model_writes() -> None:
    entries: list[Entry] = [*chat(1, "line 1"), AssistantEntry(2, "It says line 1."), UserEntry("Thanks.")]
    turns = [(message.role, message.content) for message in build("", entries, [READ], ROOM).messages[1:]]
    assert turns == [
        ("user", "The task."),
        ("assistant", '{"name": "read", "arguments": {"path": "file1"}}'),
        ("user", "<tool_response>\nline 1\n</tool_response>"),
        ("assistant", '{"name": "reply", "arguments": {"text": "It says line 1."}}'),
        ("user", "Thanks."),
    ]


def test_without_tools_and_calls_everything_is_words() -> None:
    entries: list[Entry] = [
        UserEntry("Hi."),
        AssistantEntry(1, "Hello."),
        UserEntry("Bye.", images=(Image("image/png", "x"),)),
    ]
    turns = [(message.role, message.content) for message in build("", entries, (), ROOM).messages]
    assert turns == [
        ("user", "Hi."),
        ("assistant", "Hello."),
        ("user", "Bye.\n[A picture that this model cannot see.]"),
    ]


def test_a_last_answer_without_tools_keeps_the_form() -> None:
    prompt = build("", chat(1, "x"), (), ROOM)
    assert '{"name": "reply"' in prompt.messages[0].content
    assert "read(" not in prompt.messages[0].content


def test_arguments_that_are_no_json_do_not_break_it() -> None:
    broken = ToolRequest(make_call_key(1, 0), "read", '{"path": ')
    last_message = build("", [UserEntry("Hi."), AssistantEntry(1, calls=(broken,))], [READ], ROOM).messages[-1]
    assert last_message.content == '{"name": "read", "arguments": {}}'


def test_roles_alternate() -> None:
    entries: list[Entry] = [UserEntry("One."), UserEntry("Two."), *turn(1, "x"), UserEntry("Steer.", source="steering")]
    messages = build("S", entries, [READ], ROOM).messages
    assert [message.role for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[1].content == "One.\n\nTwo."


def test_what_fits_is_left_alone() -> None:
    prompt = build("S", chat(5, "short"), [READ], ROOM)
    assert not prompt.shortened
    assert sum("short" in message.content for message in prompt.messages) == 5


def test_long_old_results_are_cut_first() -> None:
    prompt = build("S", chat(3, "x" * 1_300), [READ], ROOM)
    assert prompt.shortened
    results = [message.content for message in prompt.messages if "tool_response" in message.content]
    assert [len(text) < OLD_RESULT_CHARS + 100 for text in results] == [True, True, False]
    assert LEFT_OUT not in prompt.messages[1].content


def test_then_the_oldest_entries_go_and_the_task_stays() -> None:
    entries = chat(60, "y" * 150)
    prompt = build("S", entries, [READ], ROOM)
    assert prompt.chars <= ROOM + 200
    assert prompt.messages[1].content == f"{LEFT_OUT}\n\nThe task."
    assert "file60" in prompt.messages[-2].content
    assert not any('file3"' in message.content for message in prompt.messages)
    roles = [message.role for message in prompt.messages[1:]]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"] * (len(roles) % 2)


def test_the_beginning_stays_the_same_for_some_turns() -> None:
    """The model does not read the same beginning twice."""
    starts = []
    for turns in range(40, 60):
        messages = build("S", chat(turns, "y" * 150), [READ], ROOM).messages
        starts.append(tuple(message.content for message in messages[:6]))
    assert len(set(starts)) <= 6


def test_a_single_entry_that_is_too_long_is_cut_in_its_middle() -> None:
    text = "begin " + "z" * 20_000 + " end"
    prompt = build("S" * 50_000, [UserEntry(text)], [READ], ROOM)
    assert prompt.chars < ROOM + 500
    assert prompt.messages[1].content.startswith(LEFT_OUT) or prompt.messages[1].content.startswith("begin")
    assert prompt.messages[-1].content.endswith(" end")


def test_no_entries_are_no_error() -> None:
    assert build("S", [], (), ROOM).messages[0].content == "S"


def test_files_are_shown_without_the_numbers_of_their_lines() -> None:
    """They would be written into the file."""

    def render_result(result: str) -> str:
        return build("", chat(1, result), (READ,), ROOM).messages[-1].content

    assert render_result("a.py (2 lines)\n1\tx = 1\n2\t") == "<tool_response>\nx = 1\n\n</tool_response>"
    assert "\nb (9 lines; CRLF line endings), lines 3 to 4\n7\t8\n" in render_result(
        "b (9 lines; CRLF line endings), lines 3 to 4\n3\t7\t8\n4\t"
    )
    part = "b (9 lines), lines 3 to 4\n"
    assert f"\n{part}c\nd\n" in render_result(f"{part}3\tc\n4\td"), "else a part is taken for the whole"
    for odd_result in ("1\tx", "a.py (1 line)\nx = 1", "a.py is empty (0 lines)."):
        assert odd_result in render_result(odd_result)


def test_required_and_properties_of_any_type_do_not_break_the_line_of_a_tool() -> None:  # fault 10
    for parameters in ({"properties": {"path": {"type": "string"}}, "required": True}, {"properties": ["path"]}):
        last = build("", [UserEntry("Hi.")], [ToolSpec("read", "Read.", parameters)], ROOM).messages[0]
        assert last.content.splitlines()[-1] in ("read(path?: string): Read.", "read(): Read.")
