"""A small process beside each Treadle process that starts programs: it ends those programs when its starter is gone,
also after SIGKILL, which the starter cannot answer. It is told the process groups by lines on its standard input
(`+123` begins, `-123` has ended) and acts when that input ends. Run as a program; `subprocesses` starts it.

Why not a parent-death signal. It must be set in the new process between fork and exec, where Python may not run code
in a process with threads; and it reaches the program alone, not what the program started."""

import os

_KILL = 9  # without `signal`, which loads more than all the others


def read_start_time(pid: int) -> bytes:
    """When a process started, in ticks since boot: with it, a number that was used again is told apart. Empty: there is
    no such process, or the system does not say."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19]
    except OSError:
        return b""


def main() -> None:
    groups: dict[int, bytes] = {}
    partial_line = b""
    while data := os.read(0, 1 << 16):
        *lines, partial_line = (partial_line + data).split(b"\n")
        for line in lines:
            group = int(line[1:])
            if line.startswith(b"+"):
                groups[group] = read_start_time(group)
            else:
                groups.pop(group, None)
    for group, began in groups.items():
        # A group outlives its leader: without a leader the number is still that of the group, or of none.
        if read_start_time(group) in (began, b""):
            try:
                os.killpg(group, _KILL)
            except OSError:
                continue


if __name__ == "__main__":
    main()
