"""What lies in a command's folder, and what it tells about the command. Both sides read this; only the supervisor's
process imports it in a hurry.

job       what to run (marshal), there before the folder has its name
lock      held by the supervisor as long as it lives: pids may be used again, a lock dies with its holder
owner     pid and start time of the supervisor; once it is there, no other will ever start the command
alive     a FIFO that the supervisor holds open until the end is known, so that whoever waits learns of it at once
control   a FIFO for input and for a nudge; one line a frame, each below PIPE_BUF
stop      asks for the end; a command that has not begun never will
output.N  the output from byte N on
shell     where the shell ended and what it exported
exit      how it ended (JSON)
synced    the output and the end would survive a power cut
background, cursor  marks a background process; how far its output was looked at, by whom
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

UNSTARTED = "unstarted"
RUNNING = "running"
ENDED = "ended"
LOST = "lost"


def look(folder: str) -> str:
    """What became of the command: one of the four words above. The end is looked for before and after the lock,
    because the lock is given back only after the end was written."""
    if os.path.exists(f"{folder}/{EXIT}"):
        return ENDED
    if locked(folder):
        return RUNNING
    if os.path.exists(f"{folder}/{EXIT}"):
        return ENDED
    return LOST if os.path.exists(f"{folder}/{OWNER}") else UNSTARTED


def locked(folder: str) -> bool:
    """Whether a supervisor lives. To find out, the lock is taken for a moment; supervisors know and try again."""
    try:
        lock = os.open(f"{folder}/{LOCK}", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def write_atomic(path: str, data: bytes) -> None:
    """All of it or nothing, as far as other processes can see."""
    with open(f"{path}.new", "wb") as file:
        file.write(data)
    os.replace(f"{path}.new", path)
