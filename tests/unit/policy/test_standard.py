"""What each mode lets pass (S-07), and what a person is shown."""

import pytest
from treadle.policy.basic import BasicPolicy, shown

from treadle.ports.policy import Policy
from treadle.ports.toolset import Invocation
from treadle.protocol.options import ChatOptions, Mode
from treadle.protocol.tools import ToolSpec
from treadle.types import CallKey, ChatId

READ = ToolSpec("read_file", read_only=True)
WRITE = ToolSpec("write_file")
ALWAYS = ToolSpec("deploy", needs_approval=True)
CLIENT = ToolSpec("theirs", kind="client")
QUESTION = ToolSpec("ask_user", kind="question", read_only=True)


def invocation(name: str = "t", **arguments: object) -> Invocation:
    return Invocation(ChatId("c"), CallKey("1.0"), name, arguments, "/nowhere")


@pytest.mark.parametrize(
    ("mode", "write", "always"),
    [
        ("read-only", "deny", "deny"),
        ("ask", "ask", "ask"),
        ("review", "allow", "ask"),
        ("auto-edit", "allow", "ask"),
        ("autopilot", "allow", "ask"),
    ],
)
async def test_modes(mode: Mode, write: str, always: str) -> None:
    policy: Policy = BasicPolicy()
    options = ChatOptions(mode=mode, interactive=True)
    for spec, wanted in ((READ, "allow"), (WRITE, write), (ALWAYS, always), (CLIENT, "allow"), (QUESTION, "allow")):
        assert (await policy.review(spec, invocation(), options)).decision == wanted, spec.name


async def test_what_would_ask_is_denied_when_nobody_is_there() -> None:  # S-05
    for spec, mode in ((WRITE, "ask"), (ALWAYS, "auto-edit")):
        verdict = await BasicPolicy().review(spec, invocation(), ChatOptions(mode=mode, interactive=False))
        assert verdict.decision == "deny"
        assert "approval" in verdict.reason
        assert spec.name in verdict.reason
    assert (await BasicPolicy().review(WRITE, invocation(), ChatOptions())).decision == "allow"


async def test_a_read_only_chat_says_what_to_do_instead() -> None:
    verdict = await BasicPolicy().review(WRITE, invocation(), ChatOptions(mode="read-only"))
    assert "read-only" in verdict.reason


async def test_a_person_sees_the_name_and_every_argument() -> None:  # S-08
    verdict = await BasicPolicy().review(
        WRITE, invocation("write_file", path="a", content="x\n  y\n", n=[1]), ChatOptions(mode="ask", interactive=True)
    )
    assert verdict.shown == "write_file\n  path: a\n  content:\n    x\n      y\n    \n  n: [1]"
    assert verdict.reason


async def test_what_is_shown_is_inert_and_bounded() -> None:  # S-12
    text = shown(invocation("run_command", command="ls \x1b[2K\r\u202egnp", long="x" * 30_000))
    assert "\x1b" not in text
    assert "\r" not in text
    assert "\u202e" not in text
    assert "10,000 more characters" in text
    assert shown(invocation(long="x" * 30_000)) != shown(invocation(long="x" * 29_999 + "y"))
