"""The files in a command's folder, and the state of the command that they tell. Both sides read this; only the
supervisor's process imports it in a hurry.

job       the command to run (marshal), there before the folder has its name
lock      held by the supervisor as long as it lives: pids may be used again, a lock dies with its holder
owner     pid of the supervisor, for people; once it is there, no other will ever start the command
alive     a FIFO that the supervisor holds open until the end is known, so that waiting processes learn of it at once
control   a FIFO for input and for a nudge; one line a frame, each below PIPE_BUF
stop      asks for the end; a command that has not begun never will
output.N  the output from byte N on
shell     the folder in which the shell ended, and the variables that it exported
exit      how it ended (JSON)
synced    the output and the end would survive a power cut
background, cursor  marks a background process; the last reader of its output, and the place that it has reached
first     the token of the first caller that asked
touched   its modification time is the time of the last question about the command
network   the hosts that the command reached through its proxy, a line of JSON each
view/     of a command on a copy-on-write view: `upper` and `work` for the kernel, and `began`: the time of day and the
          time since the machine was switched on, written when the command starts; `skeleton`: the folders of
          `upper` that were there before the command, with their permissions (JSON)"""

import fcntl
import os

JOB, LOCK, OWNER, ALIVE, CONTROL, STOP, OUTPUT = "job", "lock", "owner", "alive", "control", "stop", "output."
SHELL, EXIT, SYNCED, BACKGROUND, CURSOR, FIRST = "shell", "exit", "synced", "background", "cursor", "first"
TOUCHED, NETWORK, VIEW, BEGAN, SKELETON = "touched", "network", "view", "view/began", "view/skeleton"

UNSTARTED, RUNNING, ENDED, LOST = "unstarted", "running", "ended", "lost"

_boot = ""


def read_boot_id() -> str:
    """A name for the time since this machine was switched on."""
    global _boot
    if not _boot:
        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                _boot = file.read().strip()
        except OSError:
            _boot = "unknown"
    return _boot


def read_state(folder: str) -> str:
    """Return the state of the command: one of the four words above. The order of the tests is such that a supervisor
    may take any of its steps between two of them: it has the lock before it writes `owner`, and releases it only after
    the end was written. As long as there is no owner, nothing was started: a request to stop still takes effect, and a
    supervisor that dies has lost nothing."""
    if os.path.exists(f"{folder}/{EXIT}"):
        return ENDED
    if not os.path.exists(f"{folder}/{OWNER}"):
        return ENDED if os.path.exists(f"{folder}/{EXIT}") else UNSTARTED  # a forgotten command loses its owner
    if is_locked(folder):
        return RUNNING
    return ENDED if os.path.exists(f"{folder}/{EXIT}") else LOST


def is_removed(folder: str) -> bool:
    return not os.path.isdir(folder)


def is_locked(folder: str) -> bool:
    """True if a supervisor lives. To find out, the lock is taken for a moment; supervisors know this and try again. If
    it cannot be found out (no descriptor is free), that is an error: a running command must not be taken for lost."""
    try:
        lock = os.open(f"{folder}/{LOCK}", os.O_RDWR)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def has_live_supervisor(commands: str) -> bool:
    """True if a supervisor lives for any command below this folder. Links, which commands may make, do not count."""
    folders = (folder for chat in _list_folders(commands) for folder in _list_folders(chat))
    plain = (each for each in folders if not os.path.islink(f"{each}/{LOCK}") and os.path.isfile(f"{each}/{LOCK}"))
    return any(map(is_locked, plain))


def _list_folders(parent: str) -> list[str]:
    try:
        with os.scandir(parent) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def ask_to_stop(folder: str) -> None:
    os.close(os.open(f"{folder}/{STOP}", os.O_WRONLY | os.O_CREAT, 0o600))
