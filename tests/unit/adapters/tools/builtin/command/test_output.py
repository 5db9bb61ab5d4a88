"""read_output: the rest of an output that was cut, by range (T-11)."""

import re

import pytest

from tests.unit.adapters.tools.builtin.command.commanding import CHAT, Bench
from treadle.adapters.tools.builtin.command import output
from treadle.adapters.tools.builtin.command.output import redact_secrets
from treadle.base.types import CallKey
from treadle.errors import ToolError


async def keep(bench: Bench, data: bytes, handle: str = "9.9") -> str:
    bench.outputs[handle] = await bench.context.blobs.put_blob(data)
    return handle


async def test_lines_of_a_command(bench: Bench) -> None:
    await bench("seq 1 5000")
    outcome = await bench.use("read_output", handle="1.0", start_line=16, end_line=18)
    assert outcome.text == "[lines 16 to 18 of 5,000]\n16\n17\n18\n[23,848 bytes follow: start_line=19]"
    last = await bench.use("read_output", handle="1.0", start_line=4999)
    assert last.text == "[lines 4,999 to 5,000 of 5,000]\n4999\n5000"
    first = await bench.use("read_output", handle="1.0")
    assert first.text.startswith("[lines 1 to 500 of 5,000]\n1\n2\n")
    with pytest.raises(ToolError, match="has 5,000 lines; there is no line 5,001"):
        await bench.use("read_output", handle="1.0", start_line=5001)


async def test_all_of_it_can_be_read_step_by_step(bench: Bench) -> None:
    lines = [f"line {number} " + "ü" * (number % 300) for number in range(3_000)]
    handle = await keep(bench, "\n".join(lines).encode())
    read_lines: list[str] = []
    at = 1
    while at <= len(lines):
        text = (await bench.use("read_output", handle=handle, start_line=at, end_line=at + 10_000)).text
        assert len(text.encode()) <= 50_000
        body = text.split("\n")[1:]
        read_lines += body[:-1] if body[-1].startswith("[") else body
        at = len(read_lines) + 1
    assert read_lines == lines


async def test_a_very_long_line_by_bytes(bench: Bench) -> None:
    handle = await keep(bench, b"x" * 200_000 + b"end\nsecond\n")
    outcome = await bench.use("read_output", handle=handle)
    assert "[152,011 bytes follow: offset=48000]" in outcome.text
    outcome = await bench.use("read_output", handle=handle, offset=199_999)
    assert outcome.text == "[bytes 199,999 to 200,011 of 200,011]\nxend\nsecond"
    with pytest.raises(ToolError, match="has 200,011 bytes"):
        await bench.use("read_output", handle=handle, offset=200_011)


async def test_what_is_not_text_fits_and_is_not_lost(bench: Bench) -> None:
    handle = await keep(bench, b"\x1b[31m\xff\0\x01" * 20_000)
    outcome = await bench.use("read_output", handle=handle)
    assert len(outcome.text.encode()) <= 50_000
    assert outcome.text.split("\n")[1].startswith("\\xff␀␁\\xff␀␁")
    assert "bytes follow: offset=" in outcome.text


async def test_millions_of_lines(bench: Bench) -> None:
    handle = await keep(bench, b"y\n" * 5_000_000 + b"last")
    outcome = await bench.use("read_output", handle=handle, start_line=5_000_001)
    assert outcome.text == "[lines 5,000,001 to 5,000,001 of 5,000,001]\nlast"


async def test_unknown_handles(bench: Bench) -> None:
    await keep(bench, b"x", "3.1")
    with pytest.raises(ToolError, match=r"no output with the handle '4.0'.*: 3\.1\."):
        await bench.use("read_output", handle="4.0")
    bench.outputs["5.0"] = "0" * 64
    with pytest.raises(ToolError, match="no longer there"):
        await bench.use("read_output", handle="5.0")
    assert (await bench.use("read_output", handle='"3.1"')).text == "[lines 1 to 1 of 1]\nx"


async def test_the_output_of_a_background_command(bench: Bench) -> None:
    call = bench.call(command="seq 1000; sleep 1000", background=True)
    await bench.run(call)
    command = await bench.commands.find(CHAT, CallKey(call.call))
    assert command is not None
    while command.read(-5, 5).data != b"1000\n":
        await command.wait(0.02)
    outcome = await bench.use("read_output", handle=call.call, start_line=500, end_line=501)
    assert outcome.text.startswith("[lines 500 to 501 of 1,000]\n500\n501\n")


async def test_what_was_dropped_is_said_in_its_place(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:  # fault 11
    monkeypatch.setattr(output, "CAP", 1 << 16)
    outcome = await bench("seq -f %07.0f 1 100000")
    assert "of 800,000 bytes the beginning and the end were kept]" in outcome.text
    blob = await bench.context.blobs.get_blob(outcome.output)
    head, _, tail = blob.partition(b"[")
    assert head == b"".join(b"%07d\n" % number for number in range(1, 4097))
    dropped, _, tail = tail.partition(b" bytes dropped]\n")
    assert int(dropped.replace(b",", b"")) + len(head) + len(tail) == 800_000
    assert tail.endswith(b"0100000\n")


KEY = b"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize("size", [1, 7, 30, 1_000_000])
def test_what_is_kept_has_no_secrets_however_it_comes(size: int) -> None:  # S-11
    def redact(text: str) -> str:
        return re.sub("-----BEGIN.*?END PRIVATE KEY-----", "[key]", text.replace("hunter22", "[secret]"), flags=re.S)

    data = b"one hunter22 \xff\xfe two\n" + KEY + "drei ü\n".encode() + b"last hunter22"
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    clean_data = b"".join(redact_secrets(pieces, redact))
    assert clean_data == b"one [secret] \xff\xfe two\n[key]\n" + "drei ü\n".encode() + b"last [secret]"


def test_a_key_that_never_ends_costs_bounded_memory() -> None:
    pieces = [b"-----BEGIN \n", *([b"x" * (1 << 20)] * 12)]
    longest = max(len(piece) for piece in redact_secrets(pieces, lambda text: text.upper()))
    assert longest < 6 << 20


@pytest.mark.parametrize(
    ("command", "renames"),
    [
        ("git branch -m new", True),
        ("cd x && git -C y -c a=b --no-pager branch -M old new; true", True),
        ("git branch --move old new", True),
        ("/usr/bin/git branch -fc old new", True),
        ("git " + "-c " * 10_000, False),
        ("git branch -d old", False),
        ("git branch feature-m", False),
        ("git branch --merged", False),
        ("git commit -m 'the branch -m'", False),
        ("git commit -am branch", False),
        ("git log --oneline | grep branch -m 1", False),
    ],
)
def test_renames_of_branches_are_known_by_their_words(command: str, renames: bool) -> None:
    assert output.is_branch_rename(command) is renames
