"""What lies in a command's folder, and what it tells about the command. Both sides read this; only the supervisor's
process imports it in a hurry.

job       what to run (marshal), there before the folder has its name
lock      held by the supervisor as long as it lives: pids may be used again, a lock dies with its holder
owner     pid of the supervisor, for people; once it is there, no other will ever start the command
alive     a FIFO that the supervisor holds open until the end is known, so that whoever waits learns of it at once
control   a FIFO for input and for a nudge; one line a frame, each below PIPE_BUF
stop      asks for the end; a command that has not begun never will
output.N  the output from byte N on
shell     where the shell ended and what it exported
exit      how it ended (JSON)
synced    the output and the end would survive a power cut
background, cursor  marks a background process; how far its output was looked at, by whom
first     who was the first to ask
touched   its time is when somebody last asked about it
network   what the command reached through its proxy, a line of JSON each
view/     of a command on a copy-on-write view: `upper` and `work` for the kernel, and `began`: the time of day and the
          time since the machine was switched on, written when the command starts; `skeleton`: the folders of
          `upper` that were there before the command, with their permissions (JSON)
"""

import fcntl
import os

JOB = "job"
LOCK = "lock"
OWNER = "owner"
ALIVE = "alive"
CONTROL = "control"
STOP = "stop"
OUTPUT = "output."
SHELL = "shell"
EXIT = "exit"
SYNCED = "synced"
BACKGROUND = "background"
CURSOR = "cursor"
FIRST = "first"
TOUCHED = "touched"
NETWORK = "network"
VIEW = "view"
BEGAN = "view/began"
SKELETON = "view/skeleton"

UNSTARTED = "unstarted"
RUNNING = "running"
ENDED = "ended"
LOST = "lost"


_boot = ""


def boot() -> str:
    """A name for the time since this machine was switched on."""
    global _boot
    if not _boot:
        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                _boot = file.read().strip()
        except OSError:
            _boot = "unknown"
    return _boot


def look(folder: str) -> str:
    """What became of the command: one of the four words above. The order of the questions is such that a supervisor may
    take any of its steps between two of them: it has the lock before it writes `owner`, and gives it back only after
    the end was written. As long as there is no owner, nothing was started: whoever asks for a stop by then is heard,
    and a supervisor that dies by then has lost nothing."""
    if os.path.exists(f"{folder}/{EXIT}"):
        return ENDED
    if not os.path.exists(f"{folder}/{OWNER}"):
        return ENDED if os.path.exists(f"{folder}/{EXIT}") else UNSTARTED  # what is forgotten loses its owner
    if locked(folder):
        return RUNNING
    return ENDED if os.path.exists(f"{folder}/{EXIT}") else LOST


def removed(folder: str) -> bool:
    return not os.path.isdir(folder)


def locked(folder: str) -> bool:
    """Whether a supervisor lives. To find out, the lock is taken for a moment; supervisors know and try again. Where it
    cannot be found out (no descriptor is free), that is an error: a running command must not be taken for lost."""
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
    """True if a supervisor lives for any command below the folder of all commands. Links are not followed: a command
    may have put them there."""
    for chat in _folders(commands):
        for folder in _folders(chat):
            if not os.path.islink(f"{folder}/{LOCK}") and os.path.isfile(f"{folder}/{LOCK}") and locked(folder):
                return True
    return False


def _folders(parent: str) -> list[str]:
    try:
        with os.scandir(parent) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def ask_to_stop(folder: str) -> None:
    os.close(os.open(f"{folder}/{STOP}", os.O_WRONLY | os.O_CREAT, 0o600))
