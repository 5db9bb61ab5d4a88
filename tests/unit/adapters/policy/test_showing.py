"""The text that shows a call to a person is whole, inert and bounded (S-08, S-12)."""

from treadle.adapters.policy.changes import Act, render_call
from treadle.base.types import CallKey, ChatId
from treadle.ports.toolset import Invocation
from treadle.protocol.options import ChatOptions


def call(name: str = "t", **arguments: object) -> Invocation:
    return Invocation(ChatId("c"), CallKey("1.0"), name, arguments, options=ChatOptions(root="/nowhere"))


def test_the_name_and_every_argument() -> None:
    text = render_call(call("write_file", path="a", content="x\n  y\n", n=[1]), Act("edit"))
    assert text == "write_file\n  path: a\n  content:\n    x\n      y\n    \n  n: [1]"


def test_it_is_inert_and_bounded() -> None:
    text = render_call(call("run_command", command="ls \x1b[2K\r\u202egnp", long="x" * 30_000), Act("command"))
    assert "\x1b" not in text
    assert "\r" not in text
    assert "\u202e" not in text
    assert "10,000 more characters" in text


def test_what_is_left_out_still_counts() -> None:
    assert render_call(call(long="x" * 30_000), Act("other")) != render_call(
        call(long="x" * 29_999 + "y"), Act("other")
    )


def test_a_command_is_shown_with_the_folder_and_the_variables_that_it_inherits() -> None:  # S-18
    act = Act("command", folder="deep/er", variables={"PATH": "/evil\x1b:/bin", "B": None})
    assert render_call(call("run_command", command="make"), act) == (
        "run_command\n  command: make\n  in the folder: deep/er\n"
        "  set by an earlier command: PATH=/evil\\x1b:/bin\n  set by an earlier command: B is unset"
    )
    rendered_call = render_call(call("run_command", command="make", cwd="x"), Act("command", folder="x"))
    assert rendered_call == "run_command\n  command: make\n  cwd: x"
