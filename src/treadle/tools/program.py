"""Running a small program to its end: input in, output out, bounded in time and size, gone with all its group when the
caller leaves. For helpers of tools and for hooks; the model's own commands have a supervisor instead."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence

import msgspec

CAP = 2_000_000
_CHUNK = 1 << 16


class Ran(msgspec.Struct, frozen=True):
    code: int
    """The exit code; -N if signal N ended it."""
    output: str
    errors: str
    timed_out: bool = False


async def run_program(
    argv: Sequence[str], *, cwd: str, env: Mapping[str, str], given: bytes = b"", timeout_s: float = 30.0
) -> Ran:
    """Run a program in a session of its own. OSError if it cannot be started."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=cwd,
        env=dict(env),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = bytearray(), bytearray()
    timed_out = False
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.gather(
                _feed(process.stdin, given),
                _drain(process.stdout, output),
                _drain(process.stderr, errors),
                process.wait(),
            )
    except TimeoutError:
        timed_out = True
    finally:
        await end(process)
    shown = [bytes(part).decode(errors="replace") for part in (output, errors)]
    return Ran(process.returncode if process.returncode is not None else -9, shown[0], shown[1], timed_out)


async def end(process: asyncio.subprocess.Process) -> None:
    """Whatever is left of its group dies, and is buried."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()  # pipes that a survivor outside of the group may hold open are not waited for
    await asyncio.shield(process.wait())


async def _feed(pipe: asyncio.StreamWriter | None, data: bytes) -> None:
    if pipe is None:
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        if data:
            pipe.write(data)
            await pipe.drain()
        pipe.close()
        await pipe.wait_closed()


async def _drain(pipe: asyncio.StreamReader, kept: bytearray) -> None:
    while chunk := await pipe.read(_CHUNK):
        kept += chunk[: max(0, CAP - len(kept))]
