"""Programs as models: real programs, real pipes, real deaths (M-06, M-13, L-07, faults 7, 8, 11 and 12)."""

import asyncio
import os
import select
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from treadle.adapters.models import command_line
from treadle.adapters.models.capability_ladder import Ladder
from treadle.adapters.models.command_line import CommandLineModel, flatten
from treadle.adapters.models.registry import ModelRegistry
from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.errors import ConfigError, ModelError
from treadle.ports.model import Memo, ModelRequest
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, ToolRequest, ToolResult, UserEntry
from treadle.protocol.deltas import NoticeDelta, TextDelta
from treadle.protocol.tools import ToolSpec

KEY = "sk-very-secret-key"
ASKED = ModelRequest("Be brief.", [UserEntry("What is up?")])

Write = Callable[..., str]


@pytest.fixture
def program(tmp_path: Path) -> Write:
    """Makes a program of a piece of Python, and tells its path."""

    def write(code: str, name: str = "model") -> str:
        path = tmp_path / name
        path.write_text(f"#!{sys.executable}\nimport os, sys, time\n{code}\n")
        path.chmod(0o755)
        return str(path)

    return write


def get(ref: str, **env: str) -> CommandLineModel:
    """The model itself, without the ladder that it stands on."""
    ladder = ModelRegistry({"PATH": os.environ["PATH"], **env}).get(ref)
    assert isinstance(ladder, Ladder)
    assert isinstance(ladder.inner, CommandLineModel)
    return ladder.inner


async def ask(model: CommandLineModel, request: ModelRequest = ASKED) -> tuple[ModelAnswer, list[NoticeDelta]]:
    assembler = Assembler(1)
    async for deltas in model.stream(request):
        assembler.feed(deltas)
    return assembler.finish(model.info.ref), assembler.notices


async def failing(model: CommandLineModel, request: ModelRequest = ASKED) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(model, request)
    return caught.value


def has_exited(pid: int) -> bool:
    """Return if a process ends within ten seconds, or has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    is_over = bool(poll.poll(10_000))
    os.close(descriptor)
    return is_over


def rewrite(path: str, text: str) -> None:
    Path(path).write_text(text)


async def test_the_prompt_comes_in_and_the_text_goes_out(program: Write) -> None:
    model = get(f"command:{program('print(sys.stdin.read().upper())')}")
    answer, notices = await ask(model)
    assert answer.text == flatten(ASKED).decode().upper().strip()
    assert (answer.finish_reason, answer.usage, answer.requests, notices) == ("stop", None, (), [])
    assert (model.info.native_tools, model.info.temperature) == (False, None)
    await model.close()


async def test_a_named_command_line_and_a_prompt_in_its_arguments(program: Write) -> None:
    path = program("print(sys.argv[1:], sys.stdin.read() == '')")
    model = get("command:my-model", TREADLE_COMMAND_MY_MODEL=f"{path} --ask 'a b' ={{prompt}}= '$HOME; ls'")
    answer, _ = await ask(model)
    prompt = flatten(ASKED).decode()
    assert answer.text == f"{['--ask', 'a b', f'={prompt}=', '$HOME; ls']} True"  # no shell


def conversation() -> list[Entry]:
    calls = (ToolRequest("1.0", "read_file", '{"path":"a"}'), ToolRequest("1.1", "run", "{}"))
    results = (ToolResult("1.0", "one\ntwo"), ToolResult("1.1", "no such program", success=False))
    return [
        UserEntry("Read a."),
        AssistantEntry(1, "I look.", calls=calls),
        ResultsEntry(1, results),
        AssistantEntry(2, "It has two lines."),
        UserEntry("Thanks \ud800"),
    ]


def test_the_conversation_as_one_text() -> None:
    assert flatten(ModelRequest("Be brief.\n", conversation())).decode() == (
        "Be brief.\n\n"
        "What follows is a conversation between a user and an assistant. You are the assistant: write its next "
        "message, and nothing else.\n\n"
        "### User\nRead a.\n\n"
        '### Assistant\nI look.\n[calls read_file with {"path":"a"}]\n[calls run with {}]\n\n'
        "### Results\n[read_file gave]\none\ntwo\n[run failed]\nno such program\n\n"
        "### Assistant\nIt has two lines.\n\n"
        "### User\nThanks ?\n\n"
        "### Assistant\n"
    )


def test_the_text_grows_at_its_end() -> None:  # L-21
    memo, entries, prefix = Memo(), conversation(), b""
    for upto in range(1, len(entries) + 1):
        request = ModelRequest("s", entries[:upto], memo=memo)
        flat_text = flatten(request)
        assert flat_text == flatten(ModelRequest("s", entries[:upto]))
        assert flat_text.startswith(prefix)
        prefix = flat_text.removesuffix(b"### Assistant\n")


async def test_text_is_shown_as_it_comes_however_it_is_cut(program: Write, tmp_path: Path) -> None:  # fault 7
    os.mkfifo(tmp_path / "go")
    path = program(
        f"""
for byte in "Grüße 🧵\\n".encode(): os.write(1, bytes([byte]))
open({str(tmp_path / "go")!r}).read()
os.write(1, "ende\\n \\n".encode())
"""
    )
    stream = get(f"command:{path}").stream(ASKED)
    text = ""
    while text != "Grüße 🧵":
        text += "".join(delta.text for delta in await anext(stream) if isinstance(delta, TextDelta))
    (tmp_path / "go").write_text("go")
    last_deltas = [delta async for deltas in stream for delta in deltas]
    assert "".join(delta.text for delta in last_deltas if isinstance(delta, TextDelta)) == "\nende"


async def test_half_a_character_at_the_end_is_marked(program: Write) -> None:
    path = program('os.write(1, b"ab\\xf0\\x9f")')
    assert (await ask(get(f"command:{path}")))[0].text == "ab\ufffd"


async def test_a_real_pipe_in_an_empty_folder_without_a_terminal(program: Write) -> None:
    path = program(
        """
import stat
print(stat.S_ISFIFO(os.fstat(0).st_mode), os.listdir("."), os.getsid(0) == os.getpid(), os.isatty(2), os.getcwd())
"""
    )
    text = (await ask(get(f"command:{path}")))[0].text
    assert text.startswith("True [] True False ")
    assert not os.access(text.rpartition(" ")[2], os.F_OK)


async def test_a_long_prompt_that_nobody_reads_or_that_is_echoed(program: Write) -> None:
    long = ModelRequest("", [UserEntry("x" * 3_000_000)])
    assert (await ask(get(f"command:{program('print(1)', 'deaf')}"), long))[0].text == "1"
    echo = program("while data := sys.stdin.buffer.read(1000): sys.stdout.buffer.write(data)", "echo")
    assert (await ask(get(f"command:{echo}"), long))[0].text == flatten(long).decode().strip()


async def test_what_is_too_long_for_an_argument_is_compacted(program: Write) -> None:
    long = ModelRequest("", [UserEntry("x" * 200_000)])
    error = await failing(get(f"command:{program('print(1)')} {{prompt}}"), long)
    assert (error.kind, "leave {prompt} out" in str(error)) == ("context_limit", True)
    nul = ModelRequest("", [UserEntry("a\0b")])
    assert "ab" in (await ask(get(f"command:{program('print(sys.argv[1])')} {{prompt}}"), nul))[0].text


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("sys.exit('no model gpt-9')", "bad_request", "ended with code 1: no model gpt-9"),
        ("print('half'); sys.exit('a\\nb\\nc\\n\\nd')", "bad_request", "code 1: b; c; d"),
        ("sys.exit('\\x1b[31mHTTP 503\\x1b[0m')", "overloaded", "code 1: HTTP 503"),
        ("sys.exit('rate limit reached')", "rate_limit", "rate limit"),
        ("sys.exit('error 429')", "rate_limit", "429"),
        ("sys.exit('connection refused')", "overloaded", "connection refused"),
        ("sys.exit('unauthorized')", "auth", "unauthorized"),
        ("sys.exit('You exceeded your current quota')", "quota", "quota"),
        ("sys.exit('Request body too large for gpt-4o. Max size: 8000 tokens.')", "context_limit", "8000"),
        ("sys.exit(3)", "bad_request", "ended with code 3"),
        ("os.kill(os.getpid(), 9)", "overloaded", "was killed by signal 9"),
        ("print('  ')", "bad_request", "said nothing"),
        ("sys.stderr.write('x' * 5_000_000 + 'the end'); sys.exit(1)", "bad_request", "xthe end"),
    ],
)
async def test_failures(program: Write, code: str, kind: str, words: str) -> None:  # fault 8
    error = await failing(get(f"command:{program(code)}"))
    assert error.kind == kind
    assert words in str(error)
    assert str(error).startswith("command:")


async def test_a_program_that_cannot_be_started(program: Write) -> None:
    path = program("print(1)")
    model = get(f"command:{path}")
    rewrite(path, "#!/no/such/interpreter\n")
    error = await failing(model)
    assert (error.kind, "cannot be started" in str(error)) == ("bad_request", True)


@pytest.mark.parametrize(
    ("ref", "env", "words"),
    [
        (
            "command:no-such-program",
            {},
            "no program 'no-such-program' on the PATH, and TREADLE_COMMAND_NO_SUCH_PROGRAM",
        ),
        ("command:no-such program", {}, "no program 'no-such' on the PATH"),
        ("command:x", {"TREADLE_COMMAND_X": "no-such"}, "no program 'no-such'"),
        ("command:x", {"TREADLE_COMMAND_X": "'"}, "TREADLE_COMMAND_X is no command line"),
        ("command: ", {}, "no program ''"),
        ("gh:openai/gpt-4.1", {"PATH": "/nowhere"}, "needs the program gh.*gh auth login"),
        ("gh:--org=mine", {"PATH": "/nowhere"}, "names no model of GitHub"),
    ],
)
def test_what_is_missing_is_said(ref: str, env: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        get(ref, **env)


async def test_a_relative_path_is_that_of_this_process(
    program: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program("print('here')")
    monkeypatch.chdir(tmp_path)
    assert (await ask(get("command:./model")))[0].text == "here"


async def test_only_what_is_needed_of_the_environment(program: Write) -> None:  # M-13
    path = program("print(*sorted(os.environ))")
    env = {
        "OPENAI_API_KEY": KEY,
        "DATABASE_URL": "postgres://u:p@h/d",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "GH_TOKEN": KEY,
        "LLM_A": "1",
        "LLM_B": "2",
    }
    usual = {"PATH", "LANG", "LC_ALL", "TERM", "NO_COLOR"}
    assert set((await ask(get(f"command:{path}", **env)))[0].text.split()) == usual
    allowed = get(f"command:{path}", **env, TREADLE_PROGRAM_VARIABLES="OPENAI_API_KEY, LLM_*")
    assert set((await ask(allowed))[0].text.split()) == usual | {"OPENAI_API_KEY", "LLM_A", "LLM_B"}


async def test_a_key_in_a_complaint_is_not_shown(program: Write) -> None:  # M-13
    path = program("sys.exit('bad key ' + os.environ['OPENAI_API_KEY'])")
    model = get(f"command:{path}", OPENAI_API_KEY=KEY, TREADLE_PROGRAM_VARIABLES="OPENAI_API_KEY")
    error = await failing(model)
    assert "bad key ***" in str(error)
    assert KEY not in f"{error} {model!r} {model.info!r}"


async def test_gh(program: Write, tmp_path: Path) -> None:  # M-06
    path = program("print(sys.argv[1:], os.environ['GH_TOKEN'], sys.stdin.read()[:9])", "gh")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GH_TOKEN": "mine", "OPENAI_API_KEY": KEY}
    model = get("gh:openai/gpt-4.1", **env)
    assert (await ask(model))[0].text == "['models', 'run', 'openai/gpt-4.1'] mine Be brief."
    assert (model.info.ref, model.info.window, model.info.native_tools) == ("gh:openai/gpt-4.1", 8_000, False)
    rewrite(path, '#!/bin/sh\necho \'unknown command "models" for "gh"\' >&2\nexit 1\n')
    assert "gh extension install github/gh-models" in str(await failing(model))


async def test_tools_are_left_out_with_a_notice_once(program: Write) -> None:  # M-07
    model = get(f"command:{program('print(1)')}")
    request = ModelRequest("", [UserEntry("x")], (ToolSpec("read_file"),))
    assert [notice.kind for notice in (await ask(model, request))[1]] == ["no_tools"]
    assert (await ask(model, request))[1] == []
    plain = ModelRequest("", [UserEntry("x")], (ToolSpec("read_file"),), rung="plain")
    assert (await ask(model, plain))[1] == []


ENDLESS = """
child = os.fork()
if not child:
    time.sleep(1000)
os.write(1, f"{os.getpid()} {child}".encode())
time.sleep(1000)
"""


async def test_closing_the_stream_kills_the_program_and_its_children(program: Write) -> None:  # L-07
    stream = get(f"command:{program(ENDLESS)}").stream(ASKED)
    pids = _text(await anext(stream)).split()
    await stream.aclose()  # type: ignore[attr-defined]
    assert [has_exited(int(pid)) for pid in pids] == [True, True]


async def test_cancelling_kills_the_program_and_its_children(program: Write) -> None:  # L-07
    texts: asyncio.Queue[str] = asyncio.Queue()

    async def listen() -> None:
        async for deltas in get(f"command:{program(ENDLESS)}").stream(ASKED):
            texts.put_nowait(_text(deltas))

    task = asyncio.create_task(listen())
    pids = (await texts.get()).split()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [has_exited(int(pid)) for pid in pids] == [True, True]


def _text(deltas: Any) -> str:
    return "".join(delta.text for delta in deltas)


async def test_what_a_program_leaves_behind_is_not_waited_for(program: Write) -> None:  # fault 12
    forking_program = program("if not os.fork(): time.sleep(1000)\nelse: print('done')", "left")
    escaped = program("if not os.fork():\n os.setsid()\n time.sleep(3)\nelse: print('done')", "escaped")
    async with asyncio.timeout(60):
        assert (await ask(get(f"command:{forking_program}")))[0].text == "done"
        assert (await ask(get(f"command:{escaped}")))[0].text == "done"


async def test_an_answer_without_end_is_cut(program: Write, monkeypatch: pytest.MonkeyPatch) -> None:  # fault 11
    monkeypatch.setattr(command_line, "OUTPUT_CAP", 100_000)
    answer, _ = await ask(get(f"command:{program('while True: print(chr(120) * 999)')}"))
    assert answer.finish_reason == "length"
    assert 100_000 < len(answer.text) < 200_000
    spaces, _ = await ask(get(f"command:{program('while True: print(chr(32) * 999)')}"))
    assert spaces.finish_reason == "length"


def test_quoting_is_that_of_a_shell() -> None:
    line = shlex.join(["sh", "-c", "cat | tr a-z A-Z"])
    assert get(f"command:{line}")._argv[1:] == ("-c", "cat | tr a-z A-Z")
