"""Starts a sandbox whose command may reach some hosts, and stays beside it until it ends.

The command has a network namespace of its own with nothing in it. Before it begins, a listening socket is made in that
network and handed to a proxy process in the network of the machine, which accepts the connections. So the command can
talk only to the proxy. When the proxy dies, connections are refused."""

import _signal as signal  # type: ignore[import-not-found]  # see `processes`
import _socket
import fcntl
import marshal
import os
import select
import sys
import time

from treadle.adapters.sandbox.launch import processes, system

INFO_FD, GO_FD = 4, 5
"""Of the sandbox: where it says which process it started, and for what it waits before the command begins."""
_ABOVE = 20  # Descriptors of this process lie above those that have a meaning for the sandbox
ENDED = "[the network proxy has died: from here on the command reaches no host]"
_BACKLOG = 128
_ENDING_S = 2.0
_STEP_S = 0.005


def main(words: list[str]) -> None:
    spec = marshal.loads(bytes.fromhex(words[0]))
    sandbox, info, go = _start_sandbox(words[1:], processes.block_signals())
    processes.pass_signals_to(sandbox)
    proxy = 0
    try:
        if (inside := _read_first_process(info)) > 0:
            proxy = _start_proxy(_make_listener(inside, spec["port"]), spec)
    except OSError as error:
        os.kill(sandbox, signal.SIGKILL)
        processes.wait_for_command(sandbox)
        print(f"treadle: the command could not be given a network and did not run: {error}", file=sys.stderr)
        processes.end_as(system.CANNOT)
    os.close(go)
    # The number of a child that has ended stays its own until it is waited for.
    while (child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)) and child.si_pid != sandbox:
        _, status = os.waitpid(child.si_pid, 0)
        if child.si_pid == proxy:
            proxy = 0
            if status:
                print(ENDED, file=sys.stderr, flush=True)
    code = processes.wait_for_command(sandbox)
    _end_proxy(proxy)
    processes.end_as(code)


def _start_sandbox(line: list[str], mask: "set[int]") -> tuple[int, int, int]:
    """(the sandbox, what it says, what lets it go on when it is closed)"""
    info, info_writer = _pipe()
    go_reader, go = _pipe()
    actions = [(os.POSIX_SPAWN_DUP2, info_writer, INFO_FD), (os.POSIX_SPAWN_DUP2, go_reader, GO_FD)]
    defaults = [processes.BROKEN_PIPE]
    pid = os.posix_spawnp(line[0], line, os.environ, file_actions=actions, setsigmask=mask, setsigdef=defaults)
    os.close(info_writer)
    os.close(go_reader)
    return pid, info, go


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    reader, writer = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for end in ends)
    for end in ends:
        os.close(end)
    return reader, writer


def _read_first_process(info: int) -> int:
    """The first process in the sandbox; 0 if it did not come so far, which it has said itself."""
    output = b""
    while b"}" not in output and (data := os.read(info, 4096)):
        output += data
    os.close(info)
    _, marker, remainder = output.partition(b'"child-pid":')
    return int(remainder.split(b",")[0].strip(b" \n}")) if marker else 0


def _make_listener(inside: int, port: int) -> int:
    """A socket that listens in the network of that process. A child makes it: no process can leave a joined network."""
    here, there = _socket.socketpair()
    pid = processes.fork_ordinary()
    if pid == 0:
        try:
            system.join_network(inside)
            listener = _socket.socket()
            listener.bind(("127.0.0.1", port))
            listener.listen(_BACKLOG)
            rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, listener.fileno().to_bytes(4, sys.byteorder))
            there.sendmsg([b"0"], [rights])
        except OSError as error:
            there.send(str(error.errno or 5).encode())
        finally:
            os._exit(0)
    there.close()
    reply, handed, _, _ = here.recvmsg(16, _socket.CMSG_SPACE(4))
    os.waitpid(pid, 0)
    here.close()
    if not handed:
        raise OSError(int(reply or b"5"), os.strerror(int(reply or b"5")))
    return int.from_bytes(handed[0][2][:4], sys.byteorder)


def _start_proxy(listener: int, spec: "dict[str, object]") -> int:
    """The proxy loads when the first connection comes: many a command makes none."""
    parent = os.getpid()
    pid = processes.fork_ordinary()
    if pid:
        os.close(listener)
        return pid
    try:
        system.die_with_parent(parent)
        os.dup2(listener, _ABOVE)
        processes.detach_streams()
        processes.close_descriptors(0, 1, 2, _ABOVE)
        poll = select.poll()
        poll.register(_ABOVE, select.POLLIN)
        poll.poll()
        from treadle.adapters.sandbox.proxy import run_proxy

        run_proxy(_ABOVE, spec)
        os._exit(0)
    finally:
        os._exit(1)


def _end_proxy(proxy: int) -> None:
    """Let the proxy write its log, and see that it is gone."""
    until = time.monotonic() + _ENDING_S
    number = signal.SIGTERM
    while proxy:
        try:
            os.kill(proxy, number)
            if os.waitpid(proxy, os.WNOHANG)[0]:
                return
        except (ProcessLookupError, ChildProcessError):  # it was killed before
            return
        time.sleep(_STEP_S)
        number = signal.SIGKILL if time.monotonic() > until else 0
