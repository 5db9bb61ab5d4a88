"""A conversation that one provider would refuse is told, with its words; a sound one passes at all of them (L-20, M-09,
M-10)."""

import msgspec
import pytest
from msgspec.structs import replace

from treadle.base.types import CallKey
from treadle.ports.model import ModelRequest
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, Thinking, ToolRequest, ToolResult, UserEntry
from treadle.testing import fake_anthropic, fake_responses, histories

USER = UserEntry("Go.")
CALLS = (
    ToolRequest(CallKey("1.0"), "look", '{"path":"a"}', "call_1"),
    ToolRequest(CallKey("1.1"), "list", "{}", "call_2"),
)
ASKED = AssistantEntry(1, "Let me look.", (), CALLS)
GIVEN = ResultsEntry(1, (ToolResult(CallKey("1.0"), "a"), ToolResult(CallKey("1.1"), "no such file", False)))
AGAIN = replace(ASKED, turn=2, calls=tuple(replace(call, call=CallKey(f"2.{n}")) for n, call in enumerate(CALLS)))
GIVEN_AGAIN = ResultsEntry(2, tuple(replace(result, call=CallKey(f"2.{n}")) for n, result in enumerate(GIVEN.results)))
SOUND: list[Entry] = [USER, ASKED, GIVEN, AGAIN, GIVEN_AGAIN, AssistantEntry(3, "Done.")]


def providers(problems: list[str]) -> set[str]:
    return {problem.partition(":")[0] for problem in problems}


ALL = {"openai", "mistral", "openai-responses", "anthropic", "gemini", "ollama"}


def test_a_sound_conversation_is_taken_by_all() -> None:
    assert {wire.provider for wire in histories.WIRES} == ALL
    assert histories.check_requests(SOUND) == []
    assert histories.check_requests([]) == []


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param([USER, ASKED], id="calls without results"),
        pytest.param([USER, ASKED, replace(GIVEN, results=GIVEN.results[:1])], id="one result is missing"),
        pytest.param([USER, ASKED, replace(GIVEN, results=(*GIVEN.results, GIVEN.results[0]))], id="one result twice"),
    ],
)
def test_what_no_provider_takes_is_told_for_each(broken: list[Entry]) -> None:
    assert providers(histories.check_requests(broken)) == ALL


def test_what_stands_between_a_call_and_its_result_is_told_where_it_is_refused() -> None:
    refusing = providers(histories.check_requests([USER, ASKED, UserEntry("And?"), GIVEN]))
    # One pairs by ids alone, the other has text and results in one turn of the user.
    assert refusing == ALL - {"openai-responses", "gemini"}


@pytest.mark.parametrize("wire", histories.WIRES, ids=lambda wire: f"{wire.provider} {wire.native}")
def test_an_encoder_that_loses_an_entry_is_noticed(wire: histories.Wire) -> None:
    """Of every wire: one entry less, and its provider or the count of calls says so."""

    class Forgetful:
        def __init__(self, ref: str) -> None:
            self.inner = wire.encoder(ref)

        def encode_body(self, parameters: dict[str, object], request: ModelRequest, /) -> bytes:
            return self.inner.encode_body(
                parameters, replace(request, entries=[*request.entries[:1], *request.entries[2:]])
            )

    problems = histories.check_requests(SOUND, [wire._replace(encoder=Forgetful)])
    # Without native calls, an encoder that merges what one speaker says leaves nothing to notice.
    assert bool(problems) is wire.native


def test_thinking_goes_to_the_model_that_sealed_it_and_to_no_other() -> None:
    thought_text = "It is in a."
    block = {"type": "thinking", "thinking": thought_text, "signature": fake_anthropic.make_signature(thought_text)}
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": fake_responses.seal("")}
    sealed = (
        Thinking(thought_text, msgspec.json.encode(block).decode(), "anthropic:claude"),
        Thinking("", msgspec.json.encode(item).decode(), "openai-responses:gpt"),
    )
    history = [USER, replace(ASKED, thinking=sealed), GIVEN]
    assert histories.check_requests(history) == []
    mistaken = tuple(replace(block, model="anthropic:claude") for block in sealed)
    native, in_text = histories.check_requests([USER, replace(ASKED, thinking=mistaken), GIVEN])
    assert native.startswith("anthropic:claude: messages.1.content.1: Input tag 'reasoning'")
    assert in_text.startswith("anthropic:claude (tools in text): ")

    class Careless:
        """Sends what another model sealed."""

        def __init__(self, ref: str) -> None:
            self.inner = wire.encoder("anthropic:claude")

        def encode_body(self, parameters: dict[str, object], request: ModelRequest, /) -> bytes:
            return self.inner.encode_body(parameters, request)

    (wire,) = [one for one in histories.WIRES if one.provider == "anthropic" and one.native]
    (problem,) = histories.check_requests(history, [wire._replace(encoder=Careless)])
    assert problem.startswith("anthropic:stranger: the seal 'sig-")


def test_a_history_that_no_provider_would_take() -> None:
    user = UserEntry("Go.")
    call_entry = AssistantEntry(1, "", (), (ToolRequest(CallKey("1.0"), "a"), ToolRequest(CallKey("1.1"), "b")))
    first, second = ToolResult(CallKey("1.0"), "a"), ToolResult(CallKey("1.1"), "b")
    results_entry = ResultsEntry(1, (first, second))
    assert histories.check_history([user, call_entry, results_entry, AssistantEntry(2, "Done.")]) == []
    assert histories.check_history([user, call_entry])
    assert histories.check_history([user, call_entry, user, results_entry])
    assert histories.check_history([user, call_entry, ResultsEntry(1, (second, first))])
    assert histories.check_history([user, call_entry, ResultsEntry(1, (first,))])
    assert histories.check_history([user, results_entry])


def test_messages_that_no_provider_would_take() -> None:
    system, user = {"role": "system", "content": "Be good."}, {"role": "user", "content": "Go."}
    call_message = {"role": "assistant", "content": None, "tool_calls": [{"id": "x"}, {"id": "y"}]}
    x, y = {"role": "tool", "tool_call_id": "x"}, {"role": "tool", "tool_call_id": "y"}
    assert histories.check_messages([system, user, call_message, x, y, {"role": "assistant", "content": "Done."}]) == []
    assert histories.check_messages([user, system])
    assert histories.check_messages([user, call_message, x])
    assert histories.check_messages([user, call_message, y, x])
    assert histories.check_messages([user, call_message, x, user, y])
    assert histories.check_messages([user, x])
    assert histories.check_messages([user, call_message, x, y, call_message, x, y])
    assert histories.check_messages([user, {"role": "assistant", "content": ""}])
    assert histories.check_messages([user, {"role": "critic", "content": "Boo."}])
