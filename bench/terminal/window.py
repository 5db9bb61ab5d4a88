"""A pseudo-terminal for measurements: a program in it, keys in, bytes out, each with its time. It answers what programs
ask a terminal before they draw, as a plain terminal would; what is on the screen is looked for in the bytes."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.processes import Failed

PATIENCE_S = 60.0
_ESCAPES = re.compile(
    rb"\x1b\[[0-9;?<>=:]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1bP[^\x1b]*\x1b\\|\x1b[()#]."
)
_ANSWERS = {
    b"\x1b[c": b"\x1b[?62;22c",
    b"\x1b[0c": b"\x1b[?62;22c",
    b"\x1b[6n": b"\x1b[1;1R",
    b"\x1b]10;?": b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
    b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
}


class Window:
    def __init__(
        self, command: Sequence[str], cwd: Path, environment: Mapping[str, str], size: tuple[int, int] = (120, 40)
    ) -> None:
        self.began = time.perf_counter()
        self.pid, self._end = pty.fork()
        if not self.pid:
            os.chdir(cwd)
            os.execvpe(command[0], list(command), {**environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"})
        fcntl.ioctl(self._end, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.shown = b""
        """What was written since `forget`."""
        self.written = 0
        """Bytes, in all."""

    def forget(self) -> None:
        self.shown = b""

    def type(self, keys: str) -> None:
        os.write(self._end, keys.encode())

    def wait(self, word: str, patience_s: float = PATIENCE_S) -> float:
        """When this came to be written, by the clock of `began`."""
        deadline = time.perf_counter() + patience_s
        while word.encode() not in _ESCAPES.sub(b"", self.shown):
            if not self.read(deadline - time.perf_counter()):
                shown = _ESCAPES.sub(b" ", self.shown)[-300:].decode(errors="replace")
                raise Failed(f"{word!r} never came; there was: {' '.join(shown.split())!r}")
        return time.perf_counter()

    def read(self, patience_s: float) -> bool:
        """Take what comes next; False if nothing does."""
        ready, _, _ = select.select([self._end], [], [], max(0.0, patience_s))
        try:
            data = os.read(self._end, 1 << 16) if ready else b""
        except OSError:  # the program has ended
            return False
        for asked, answer in _ANSWERS.items():
            if asked in data:
                os.write(self._end, answer)
        self.shown += data
        self.written += len(data)
        return bool(data)

    def idle(self, seconds: float) -> None:
        """Let the program work for so long, and take what it writes."""
        deadline = time.perf_counter() + seconds
        while (left := deadline - time.perf_counter()) > 0:
            self.read(left)
            self.forget()

    def cpu_s(self) -> float:
        """Of all its processes."""
        ticks = 0
        for pid in _family(self.pid):
            fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        """The most that its process ever held."""
        status = (Path("/proc") / str(self.pid) / "status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    def close(self) -> None:
        for pid in reversed(_family(self.pid)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        os.waitpid(self.pid, 0)
        os.close(self._end)


def _family(pid: int) -> list[int]:
    """A process and all that it started."""
    found = [pid]
    for each in found:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            found += map(int, children.read_text().split())
    return found
