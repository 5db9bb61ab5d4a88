"""The processes below this one, by what Linux tells of them in /proc."""

import os


def descendants() -> "dict[int, bytes]":
    """The living below this process, with their names."""
    children: dict[int, list[int]] = {}
    names: dict[int, bytes] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := _stat(entry)) is not None:
            name, state, parent = stat
            children.setdefault(parent, []).append(int(entry))
            if state not in b"ZX":
                names[int(entry)] = name
    pids: list[int] = []
    todo = [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        pids += below
        todo += below
    return {pid: names[pid] for pid in pids if pid in names}


def _stat(pid: str) -> "tuple[bytes, bytes, int] | None":
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            head, _, fields = file.read().rpartition(b")")
    except OSError:  # it is gone
        return None
    state, parent = fields.split()[:2]
    return head.partition(b"(")[2], state, int(parent)
