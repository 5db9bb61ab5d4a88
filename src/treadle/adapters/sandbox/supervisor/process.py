"""The process of a supervisor: claims the command, starts it, and sees it through with a `SupervisorSession`. The
command waits for what is loaded here, so that is little."""

import _signal as signal  # type: ignore[import-not-found]
import fcntl
import marshal
import os
import time

from treadle.adapters.sandbox.launch.libc import adopt_orphans
from treadle.adapters.sandbox.launch.processes import close_descriptors, detach_streams, try_to
from treadle.adapters.sandbox.supervisor.child import Ends, Recorder, reserve_exit, start_child, sync_exit, write_exit
from treadle.adapters.sandbox.supervisor.folder import ALIVE, BEGAN, CONTROL, EXIT, JOB, LOCK, OWNER, STOP
from treadle.adapters.sandbox.supervisor.limits import get_limits
from treadle.adapters.sandbox.supervisor.tree import make_group
from treadle.base.file_system import replace_file


def main(folder: str) -> None:
    os.chdir(folder)
    umask = os.umask(0o077)
    close_descriptors(0, 1, 2)  # which were inherited
    alive = os.open(ALIVE, os.O_RDWR)
    control = os.open(CONTROL, os.O_RDWR | os.O_NONBLOCK)  # before `stop` is looked for: a nudge is never too early
    woken = _hear_signals()
    if not _claim():
        return
    with open(JOB, "rb") as file:
        job = marshal.load(file)
    reserve_exit()
    try_to(adopt_orphans)
    recorder = Recorder(job["output_cap"])
    if os.path.exists(STOP):
        write_exit("stopped", -15, False, recorder, "")
    elif not os.path.exists(JOB):  # the folder is being removed, and a `stop` may have gone with it
        return
    else:
        error = ""
        if job["view"]:  # record when it begins: changes in the project from now on are not its own
            try:
                with open(BEGAN, "wb") as file:
                    file.write(b"%d %d" % (time.time_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)))
            except OSError as failure:
                error = failure.strerror or "its beginning cannot be noted"
        group = make_group(get_limits(job))
        ends = Ends() if error else start_child(job, umask, group)
        try_to(os.write, 1, b"started\n")  # the worker may be dead; that is what this process is for
        detach_streams()
        if error or ends.error:
            write_exit("failed", 127, False, recorder, error or ends.error)
        else:
            from treadle.adapters.sandbox.supervisor.session import SupervisorSession  # while the command starts

            SupervisorSession(job, ends, (woken, control), recorder, group).see_through()
        group.remove()
    os.close(alive)
    sync_exit(layer=bool(job["view"] and job["background"]))


def _hear_signals() -> int:
    """A descriptor that becomes readable when a child ended or someone wants an end."""
    woken, wake = os.pipe()
    for descriptor in (woken, wake):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for name in ("SIGCHLD", "SIGTERM"):
        signal.signal(getattr(signal, name), lambda *_: None)
    for name in ("SIGHUP", "SIGINT"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    return woken


def _claim() -> bool:
    """True for one supervisor of this folder, ever. The lock stays open until the end of the process."""
    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:  # another supervisor has it, or a worker is looking
            if os.path.exists(OWNER) or os.path.exists(EXIT):
                return False
            time.sleep(0.002)
    if os.path.exists(OWNER) or os.path.exists(EXIT):
        return False
    replace_file(OWNER, f"{os.getpid()}\n".encode())
    return True
