"""One supervised command as a worker sees it: everything is read from its folder, so it does not matter who started
it. Waiting stops nothing; only `stop` does."""

import asyncio
import marshal
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from treadle.adapters.sandbox.supervisor import folder as names
from treadle.base.file_system import create_file, replace_file
from treadle.errors import ToolError
from treadle.ports.commands import CommandExit, Output
from treadle.protocol.content import Shell

_SETTLE_S = 0.01
_LOOK_S = 1.0
"""A waiter is woken at the end; that it looks now and then as well is for a supervisor that dies at a bad moment."""
_FRAME = 1_500  # Bytes of input in one line of the control FIFO: written as hexadecimal, it stays below PIPE_BUF
_INPUT_S = 5.0
_SWEEPS = 50
_DYING_S = 2.0
_STEP_S = 0.002
MARK = "TREADLE_CALL"  # In the environment of every command: finds what a killed supervisor left
_decoder = msgspec.json.Decoder(CommandExit)


class SupervisedCommand:
    """Implements `treadle.ports.commands.Command`."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    @property
    def line(self) -> str:
        job = self._read_job()
        return str(job.get("line") or job.get("title") or "")

    @property
    def begins_in(self) -> Shell | None:
        shell = self._read_job().get("shell")
        return None if shell is None else msgspec.convert(shell, Shell)

    @property
    def present(self) -> bool:
        here = names.read_boot_id()
        return bool(
            self._read_job().get("boot", here) == here
        )  # a forgotten command has ended, and not with the machine

    @property
    def durable(self) -> bool:
        return os.path.exists(f"{self.folder}/{names.SYNCED}")

    async def wait(self, timeout_s: float | None = None) -> CommandExit | None:
        if (command_exit := await self._find_exit()) is not None:
            return command_exit
        try:
            alive = os.open(f"{self.folder}/{names.ALIVE}", os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return await self._find_exit()
        loop = asyncio.get_running_loop()
        hangup_event = asyncio.Event()

        def handle_hangup() -> None:
            loop.remove_reader(alive)  # from now on it can always be read, and would be, all the time
            hangup_event.set()

        try:
            until = None if timeout_s is None else loop.time() + timeout_s
            while (command_exit := await self._find_exit()) is None:
                remaining_s = _LOOK_S if until is None else min(_LOOK_S, until - loop.time())
                if remaining_s <= 0:
                    return None
                loop.add_reader(alive, handle_hangup)
                with suppress(TimeoutError):
                    async with asyncio.timeout(remaining_s):
                        await hangup_event.wait()
                        hangup_event.clear()
                        if (
                            names.read_state(self.folder) != names.ENDED
                        ):  # it died, and the last of it may not be gone yet
                            await asyncio.sleep(_SETTLE_S)
            return command_exit
        finally:
            loop.remove_reader(alive)
            os.close(alive)

    def read(self, offset: int, limit: int) -> Output:
        pieces: list[tuple[int, int]] = []  # where each piece of the output begins, and how long it is by now
        for name in os.listdir(self.folder):
            if name.startswith(names.OUTPUT):
                with suppress(FileNotFoundError):
                    pieces.append((int(name.removeprefix(names.OUTPUT)), os.stat(f"{self.folder}/{name}").st_size))
        size = max((start + length for start, length in pieces), default=0)
        if offset < 0:
            offset = max(0, size + offset)
        for start, length in sorted(pieces):
            if offset < start + length:
                begin = max(offset, start)
                with suppress(FileNotFoundError), open(f"{self.folder}/{names.OUTPUT}{start}", "rb") as file:
                    file.seek(begin - start)
                    return Output(file.read(limit), begin, size)
        return Output(b"", max(offset, size), size)

    def touch(self) -> None:
        with suppress(FileNotFoundError):  # it is being forgotten
            Path(f"{self.folder}/{names.TOUCHED}").touch(0o600)

    def locate_new_output(self, token: str, end: int | None = None) -> tuple[int, int]:
        self.touch()
        file = f"{self.folder}/{names.CURSOR}"
        last, begin, seen_size = "", 0, 0
        with suppress(FileNotFoundError):
            last, *numbers = Path(file).read_text().split()
            begin, seen_size = (int(number) for number in numbers)
        start = begin if last == token else seen_size
        size = self.read(0, 0).size if end is None else end
        with suppress(FileNotFoundError):  # it is being forgotten
            replace_file(file, f"{token} {start} {size}".encode())
        return start, size

    def is_first_token(self, token: str) -> bool:
        file = f"{self.folder}/{names.FIRST}"
        try:
            create_file(file, token.encode())
            return Path(file).read_text() == token
        except FileNotFoundError:  # it is being forgotten
            return False

    def read_shell_state(self) -> bytes:
        with suppress(FileNotFoundError):
            return Path(f"{self.folder}/{names.SHELL}").read_bytes()
        return b""

    async def write(self, data: bytes, *, token: str, end: bool = False) -> None:
        if names.read_state(self.folder) != names.RUNNING:
            raise ToolError("The command has ended; it takes no more input.")
        self.touch()
        job = self._read_job()
        if not job.get("input") and not job.get("pty"):
            raise ToolError("The command takes no input: only background commands and those with pty do.")
        frames = [f"{token}/{at} i {data[at : at + _FRAME].hex()}\n" for at in range(0, len(data), _FRAME)]
        frames += [f"{token}/end e\n"] if end else []
        until = asyncio.get_running_loop().time() + _INPUT_S
        for frame in frames:
            while not self._send(frame.encode()):
                if asyncio.get_running_loop().time() > until:
                    raise ToolError("The command does not read its input, and no more of it can be kept for later.")
                await asyncio.sleep(0.02)

    async def stop(self) -> CommandExit:
        while (command_exit := await self._find_exit()) is None:
            with suppress(OSError):  # the file system may take no file: the frame below stops a running command, too
                names.ask_to_stop(self.folder)
            with suppress(ToolError):
                self._send(b"stop s\n")
            await self.wait(_LOOK_S)
        return command_exit

    def _send(self, frame: bytes) -> bool:
        """Write a frame to the control FIFO; False if there is no room for it."""
        try:
            control = os.open(f"{self.folder}/{names.CONTROL}", os.O_WRONLY | os.O_NONBLOCK)
            with open(control, "wb", buffering=0) as fifo:
                return fifo.write(frame) is not None
        except OSError as error:  # also if the supervisor ends in between
            raise ToolError("The command has ended; it takes no more input.") from error

    async def _find_exit(self) -> CommandExit | None:
        state = names.read_state(self.folder)
        if state == names.UNSTARTED and names.is_removed(self.folder):
            return CommandExit("lost")  # all that was known of it was removed
        if state == names.LOST:
            await asyncio.to_thread(self.sweep)
            return CommandExit("lost")
        return self._exit() if state == names.ENDED else None

    def _exit(self) -> CommandExit:
        return _decoder.decode(Path(f"{self.folder}/{names.EXIT}").read_bytes())

    def _read_job(self) -> dict[str, Any]:
        with suppress(FileNotFoundError, ValueError, EOFError):
            job: dict[str, Any] = marshal.loads(Path(f"{self.folder}/{names.JOB}").read_bytes())
            return job
        return {}

    def sweep(self) -> None:
        """End the processes of a command whose supervisor is gone. Find them by their mark, repeatedly, because a
        process that is found may just have forked."""
        mark = self._read_job().get("env", {}).get(MARK)
        if mark is None or not os.path.exists("/proc/self/environ"):
            return
        killed: set[str] = set()
        for _ in range(_SWEEPS):
            count = 0
            for pid in filter(str.isdigit, os.listdir("/proc")):
                with suppress(OSError):
                    if f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                        count += 1
                        killed.add(pid)
                        os.kill(int(pid), signal.SIGKILL)
            if not count:
                break
        until = time.monotonic() + _DYING_S
        while any(_is_dying(pid) for pid in killed) and time.monotonic() < until:
            time.sleep(_STEP_S)


def _is_dying(pid: str) -> bool:
    """True if a killed process is not quite dead: its environment is gone before its locks and files are."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    return False
