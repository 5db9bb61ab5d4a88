"""A running command in its supervisor: store its output, pass input on, end it when it is time, and write down how it
ended. Knows nothing of chats, and of a sandbox only which processes must outlive the command: the job was decided
before.

The order at the end is the point: everything the command started is gone, then the end is written, then the waiting
processes are notified, and only then are the files synced against a power cut, which delays no one."""

import _signal as signal  # type: ignore[import-not-found]
import os
import select
import time

from treadle.adapters.sandbox.supervisor import tree
from treadle.adapters.sandbox.supervisor.child import Ends, Fields, Recorder, write_exit
from treadle.adapters.sandbox.supervisor.folder import SHELL, STOP
from treadle.adapters.sandbox.supervisor.limits import Idle, Watch, describe_memory_excess, get_limits
from treadle.adapters.sandbox.supervisor.tree import ControlGroup
from treadle.base.file_system import replace_file

_READ = 1 << 18
_PENDING = 1 << 20  # How much input may wait for a command that does not read
_GRACE_S = 1.0  # How long everything may take to end after SIGTERM
_LINGER_S = 2.0  # As `treadle.ports.sandbox.LINGER_S`, which takes too long to load here
_KILL_S = 30.0
_LAUNCHER_S = 8.0  # How long the launchers of a sandbox may take to end after the command was killed
_DRAIN_S = 1.0
_STEP_S = 0.02
_TICK_S = 0.1


class SupervisorSession:
    def __init__(
        self, job: Fields, ends: Ends, wakers: "tuple[int, int]", recorder: Recorder, group: ControlGroup
    ) -> None:
        self._group, self._job, self._ends, self._recorder = group, job, ends, recorder
        self._woken, self._control = wakers
        self._known: set[bytes] = set()
        self._frame = self._input = self._shell = b""
        self._input_ends = self._stop = False
        self._state_cap = int(str(job["state_cap"]))
        self._code: int | None = None
        self._idle = Idle(float(str(job.get("idle_s", 0))))
        self._looked = 0.0  # When it was last found out what happened
        self._watch = Watch(get_limits(job), "." if job["view"] else str(job["cwd"]))
        self._exceeded = ""
        self._sandbox = str(job.get("sandbox", "none"))
        self._alone = False  # True if nothing of the command is left

    def see_through(self) -> None:
        timeout_s = float(str(self._job["timeout_s"]))
        ending = self._follow(time.monotonic() + timeout_s if timeout_s else None)
        if ending == "exited" and self._group.is_out_of_memory():
            ending, self._exceeded = "exceeded", describe_memory_excess(get_limits(self._job))
        left_behind = self._clear(ending)
        if self._shell and ending == "exited":
            self._write_shell_state()
        write_exit(ending, -9 if self._code is None else self._code, left_behind, self._recorder, self._exceeded)

    def _write_shell_state(self) -> None:
        try:
            replace_file(SHELL, self._shell)
        except OSError as error:  # a full disk: without a record of its end, the command's changes would be discarded
            reason = f"the shell's directory and variables: {error.strerror or error}"
            self._recorder.trouble = "; ".join(filter(None, (self._recorder.trouble, reason)))

    def _follow(self, deadline: "float | None") -> str:
        while self._code is None:
            self._poll_once(self._watch.choose_earlier(self._idle.choose_earlier(deadline)))
            if self._code is not None:
                break
            self._exceeded = self._watch.look()
            if self._exceeded:
                return "exceeded"
            if self._stop:
                return "stopped"
            if deadline is not None and time.monotonic() >= deadline:
                return "timed_out"
            if self._idle.is_too_long(self._looked):
                return "idle"
        return "exited"

    def _clear(self, ending: str) -> bool:
        """Let the rest end, kill what does not, take the last output. True if a finished command left something."""
        if ending == "exited":
            self._run_for(_LINGER_S)
        elif ending != "exceeded":  # a command that uses the machine up gets no time
            tree.terminate(self._ends.pid, self._sandbox)
            self._run_for(_GRACE_S)
        leftovers = tree.list_working() if ending == "exited" and not self._alone else []
        self._kill()
        drained = time.monotonic() + _DRAIN_S
        while self._ends.output >= 0 and time.monotonic() < drained:
            self._poll_once(min(drained, time.monotonic() + _STEP_S))
        self._shell += b"".join(b"left=%b\0" % name for name in leftovers or ())
        return leftovers is None or bool(leftovers)

    def _kill(self) -> None:
        """End everything: first the command, so that the launchers of its sandbox can tidy up, then those as well."""
        launchers = tree.find_launchers(self._ends.pid, self._sandbox) if self._code is None else set()
        start = time.monotonic()
        while not (self._alone and self._code is not None) and time.monotonic() < start + _KILL_S:
            if self._code is not None or time.monotonic() > start + _LAUNCHER_S:
                launchers.clear()
            if not launchers:
                self._group.kill()
            tree.kill(self._ends.pid, launchers)
            self._poll_once(time.monotonic() + _STEP_S)

    def _run_for(self, most_s: float) -> None:
        """Go on until nothing is left, or for so long."""
        until = time.monotonic() + most_s
        while not (self._alone and self._code is not None and self._ends.output < 0) and time.monotonic() < until:
            if self._stop and self._code is not None:
                return
            self._poll_once(min(until, time.monotonic() + _STEP_S))

    def _poll_once(self, until: "float | None") -> None:
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        full = len(self._input) > _PENDING
        if not full:
            poll.register(self._control, select.POLLIN)
        for descriptor in {self._ends.output, self._ends.shell} - {-1}:
            poll.register(descriptor, select.POLLIN)
        if self._ends.input >= 0 and self._input:
            both = select.POLLIN | select.POLLOUT if self._ends.input == self._ends.output else select.POLLOUT
            poll.register(self._ends.input, both)
        self._looked = time.monotonic()
        wait = None if until is None else max(0.0, until - self._looked) * 1000
        if full:
            wait = _TICK_S * 1000 if wait is None else min(wait, _TICK_S * 1000)
        ready = dict(poll.poll(wait))
        if self._ends.output in ready and ready[self._ends.output] & ~select.POLLOUT:
            self._take_output()
        if self._ends.shell in ready:
            if data := os.read(self._ends.shell, _READ):
                self._shell += data[: max(0, self._state_cap - len(self._shell))]
            else:
                os.close(self._ends.shell)
                self._ends.shell = -1
        if self._control in ready:
            self._take_frames()
        if self._input or self._input_ends:
            self._give_input()
        if self._woken in ready and signal.SIGTERM in os.read(self._woken, 4096):
            self._stop = True
        self._reap()
        if full or self._control in ready:
            self._stop = self._stop or os.path.exists(STOP)

    def _take_output(self) -> None:
        try:
            data = os.read(self._ends.output, _READ)
        except BlockingIOError:
            return
        except OSError:  # a terminal that no process has open any more
            data = b""
        if data:
            self._idle.note_output()
            self._recorder.feed(data)
            return
        if self._ends.input == self._ends.output:
            self._ends.input = -1
        os.close(self._ends.output)
        self._ends.output = -1

    def _take_frames(self) -> None:
        """`ID OP HEX`: input (i), its end (e), or a stop (s). Each id counts once, so that a worker may send again
        what a dead one may have sent."""
        *frames, self._frame = (self._frame + os.read(self._control, 1 << 16)).split(b"\n")
        for frame in frames:
            name, operation, *data = frame.split(b" ")
            if name in self._known:
                continue
            self._known.add(name)
            if operation == b"s":
                self._stop = True
            elif operation == b"i":
                self._input += bytes.fromhex(data[0].decode())
            else:
                self._input_ends = True

    def _give_input(self) -> None:
        if self._ends.input < 0:
            self._input, self._input_ends = b"", False
            return
        try:
            while self._input:
                self._input = self._input[os.write(self._ends.input, self._input[:4096]) :]
        except BlockingIOError:
            return
        except OSError:  # the command has closed its input
            self._input, self._input_ends = b"", self._ends.input != self._ends.output
        if self._input_ends:
            self._input_ends = False
            if self._ends.input == self._ends.output:
                self._input += b"\x04"
            else:
                os.close(self._ends.input)
                self._ends.input = -1

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._alone = tree.is_group_gone(self._ends.pid)
                return
            if pid == 0:
                self._alone = False
                return
            if pid == self._ends.pid:
                self._code = os.waitstatus_to_exitcode(status)
