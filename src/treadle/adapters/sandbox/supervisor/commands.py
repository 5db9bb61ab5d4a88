"""The worker's side of supervised commands: claims folders, starts supervisors, and reads what they wrote (D-02).

Why a command starts once. A folder gets its name by a rename, complete with the job to run, so a call has one folder.
Any number of workers may start a supervisor for it; the one that takes the lock first writes `owner`, and none starts
the command after that. A forgotten command leaves its `exit` behind, so that a worker that was suspended meanwhile
finds an end and not an empty place."""

import asyncio
import errno
import hashlib
import marshal
import os
import re
import stat
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from treadle.adapters.sandbox.supervisor import folder as names
from treadle.adapters.sandbox.supervisor.command import MARK, SupervisedCommand
from treadle.adapters.sandbox.supervisor.removal import remove_tree
from treadle.base.file_system import create_file, list_path_steps, reach_faultpoint, replace_file
from treadle.base.types import CallKey, ChatId, make_id
from treadle.errors import ToolError
from treadle.ports.commands import CommandExit, CommandSpec, KnownCommand
from treadle.protocol.files import encode_path

START = Path(__file__).with_name("start.py")
_START_S = 60.0
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.~-]{0,99}")


class SupervisedCommands:
    """Implements `treadle.ports.commands.Commands` in a folder that belongs to Treadle's home."""

    def __init__(self, folder: Path | str, python: str = sys.executable) -> None:
        self.folder = os.path.abspath(folder)
        self._python = python
        self._children: set[int] = set()

    @property
    def place(self) -> str:
        """Of this machine since its start, and of this folder, by a name that is made when it is first used."""
        file = f"{self.folder}/id"
        if not os.path.exists(file):
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            create_file(file, make_id("h").encode())
        return f"{names.read_boot_id()}:{Path(file).read_text()}"

    def locate_network_log(self, chat: ChatId, call: CallKey) -> str:
        return f"{self._make_path(chat, call)}/{names.NETWORK}"

    def locate_view(self, chat: ChatId, call: CallKey) -> str:
        return f"{self._make_path(chat, call)}/{names.VIEW}"

    async def start(self, chat: ChatId, call: CallKey, job: CommandSpec) -> SupervisedCommand:
        folder = self._make_path(chat, call)
        try:
            await asyncio.to_thread(self._claim, folder, job)
            reach_faultpoint("command.before_start")
            if names.read_state(folder) == names.UNSTARTED:
                await self._launch(folder)
        except OSError as error:
            raise ToolError(f"The command could not be started: {error.strerror or error}.") from error
        return SupervisedCommand(folder)

    async def find(self, chat: ChatId, call: CallKey) -> SupervisedCommand | None:
        self._reap()
        folder = self._make_path(chat, call)
        return None if names.read_state(folder) == names.UNSTARTED else SupervisedCommand(folder)

    def is_key_used(self, chat: ChatId, call: CallKey) -> bool:
        return os.path.exists(self._make_path(chat, call))

    async def prevent(self, chat: ChatId, call: CallKey) -> None:
        folder = self._make_path(chat, call)
        await asyncio.to_thread(_bury_unborn, folder)
        if names.read_state(folder) in (names.RUNNING, names.LOST):
            await SupervisedCommand(folder).stop()
        self._reap()

    async def list_commands(self, chat: ChatId) -> Sequence[KnownCommand]:
        self._reap()
        folder = self._make_chat_path(chat)  # called at each message of a chat, so one look without a thread
        return () if names.is_removed(folder) else await asyncio.to_thread(_list_commands, folder)

    async def list_running(self, chat: ChatId) -> Sequence[CallKey]:
        return [command.call for command in await self.list_commands(chat) if command.running]

    async def forget(self, chat: ChatId, call: CallKey) -> None:
        folder = self._make_path(chat, call)
        if names.read_state(folder) in (names.ENDED, names.LOST):
            await asyncio.to_thread(_empty_folder, folder)

    def list_chats(self) -> list[ChatId]:
        """The chats that have ever run a command here. Blocks for a moment."""
        return [ChatId(name) for name in sorted(_list_children(self.folder)) if os.path.isdir(f"{self.folder}/{name}")]

    def list_known_keys(self, chat: ChatId) -> list[CallKey]:
        """Every key under which something is kept, or was. Blocks for a moment."""
        return [CallKey(name) for name in sorted(_list_children(self._make_chat_path(chat)))]

    def set_aside(self, chat: ChatId, call: CallKey) -> bool:
        """Hide the folder of this key from lookups without removing it; not while the command runs. Blocks briefly."""
        folder = self._make_path(chat, call)
        if names.read_state(folder) == names.RUNNING:
            return False
        os.rename(folder, f"{os.path.dirname(folder)}/.{make_id('aside')}.{call}")
        return True

    async def tidy(self, chat: ChatId, open_calls: Collection[CallKey]) -> None:
        """End what the calls of a chat left behind, except background processes and calls that are still open: what
        runs, and what a supervisor that has not begun yet would run."""
        self._reap()
        folder = self._make_chat_path(chat)
        if names.is_removed(folder):
            return
        for key in await asyncio.to_thread(_find_unfinished, folder):
            # Behind a tilde stands what tells the attempts of a call from each other, behind a dash what tells calls of
            # the same key from each other, all but one of which are in logs that were lost.
            if key.partition("~")[0].partition("-")[0] not in open_calls:
                await self.prevent(chat, key)

    async def close(self) -> None:
        """End everything and remove the folder: for commands of chats that are gone for good."""
        for chat in map(ChatId, await asyncio.to_thread(_list_children, self.folder)):
            for call in map(CallKey, await asyncio.to_thread(_list_children, f"{self.folder}/{chat}")):
                await self.prevent(chat, call)
                folder = self._make_path(chat, call)
                with suppress(FileNotFoundError):  # it goes before `stop` does: who comes late starts nothing
                    os.unlink(f"{folder}/{names.JOB}")
                for _ in range(500):  # until the supervisor has written all it will ever write
                    if not names.is_locked(folder):
                        break
                    await asyncio.sleep(0.01)
        await asyncio.to_thread(remove_tree, self.folder)

    def _make_path(self, chat: ChatId, call: CallKey) -> str:
        return f"{self._make_chat_path(chat)}/{_make_safe_name(call)}"

    def _make_chat_path(self, chat: ChatId) -> str:
        return f"{self.folder}/{_make_safe_name(chat)}"

    def _claim(self, folder: str, job: CommandSpec) -> None:
        if os.path.exists(folder):
            return
        new_folder = _make(os.path.dirname(folder))
        try:
            fields = msgspec.structs.asdict(job) | {"argv": list(job.argv), "env": {**job.env, MARK: make_id("k")}}
            fields |= {"boot": names.read_boot_id(), "limits": msgspec.structs.asdict(job.limits)}
            Path(f"{new_folder}/{names.JOB}").write_bytes(marshal.dumps(fields, 2))
            if job.view:
                _make_view(new_folder, job.view, job.layers)
            for fifo in (names.ALIVE, names.CONTROL):
                os.mkfifo(f"{new_folder}/{fifo}", 0o600)
            if job.background:
                Path(f"{new_folder}/{names.BACKGROUND}").touch()
            reach_faultpoint("command.before_claim")
            _settle(new_folder, folder)
        except BaseException:
            remove_tree(new_folder)
            raise

    async def _launch(self, folder: str) -> None:
        """Start a supervisor and wait until it says that the command runs, or that there is nothing for it to do."""
        self._reap()
        ready, ready_writer = os.pipe()
        try:
            os.set_blocking(ready, False)
            try:
                self._children.add(self._spawn(folder, ready_writer))
            finally:
                os.close(ready_writer)
            try:
                output = await _read_messages(ready)
            except TimeoutError:  # it may come to life yet
                output = "it said nothing for a minute"
                await asyncio.to_thread(_bury_unborn, folder)
        finally:
            os.close(ready)
        if names.read_state(folder) == names.UNSTARTED:
            reason = output.strip().rpartition("\n")[2]
            raise ToolError(f"The command's supervisor could not be started{': ' if reason else ''}{reason}.")

    def _spawn(self, folder: str, ready_writer: int) -> int:
        null = os.open(os.devnull, os.O_RDWR)
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate((null, ready_writer, ready_writer))]
        argv = [self._python, "-I", "-S", str(START), folder]
        try:
            return os.posix_spawn(self._python, argv, {}, file_actions=actions, setsid=True)
        finally:
            os.close(null)

    def _reap(self) -> None:
        """Supervisors are children until their worker dies; the dead among them are buried here."""
        for pid in list(self._children):
            try:
                if not os.waitpid(pid, os.WNOHANG)[0]:
                    continue
            except ChildProcessError:
                pass
            self._children.discard(pid)


async def _read_messages(pipe: int) -> str:
    """Return the supervisor's messages until it says `started`, or is gone. TimeoutError if it does neither."""
    loop = asyncio.get_running_loop()
    output = bytearray()
    ready = loop.create_future()

    def take() -> None:
        try:
            data = os.read(pipe, 4096)
        except BlockingIOError:
            return
        output.extend(data)
        if (not data or b"started\n" in output) and not ready.done():
            ready.set_result(None)

    loop.add_reader(pipe, take)
    try:
        async with asyncio.timeout(_START_S):
            await ready
    finally:
        loop.remove_reader(pipe)
    return output.decode(errors="replace")


def _make_safe_name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else hashlib.sha256(name.encode()).hexdigest()


def _make(parent: str) -> str:
    new_folder = f"{parent}/.{make_id('new')}"
    for folder in (os.path.dirname(parent), parent, new_folder):
        os.makedirs(folder, mode=0o700, exist_ok=True)
    return new_folder


def _settle(new_folder: str, folder: str) -> None:
    """Give a finished folder its name, unless another has it."""
    try:
        os.rename(new_folder, folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        remove_tree(new_folder)


def _make_view(command_folder: str, root: str, layers: Sequence[str]) -> None:
    """Make the folders that the kernel needs for a view: `upper` and `work`, or one of each for every layer, in `upper`
    at the path of its folder. Folders have the permissions that they have in the root: the command sees them."""
    view = f"{command_folder}/{names.VIEW}"
    for folder in (view, f"{view}/upper", f"{view}/work"):
        os.mkdir(folder, 0o700)
    steps = list(dict.fromkeys(step for layer in layers for step in list_path_steps(layer)))
    for step in steps:
        os.mkdir(f"{view}/upper/{step}", 0o700)
    modes = {step: stat.S_IMODE(os.stat(f"{root}/{step}").st_mode) for step in steps}
    for step in reversed(steps):  # one may close what lies in it
        os.chmod(f"{view}/upper/{step}", modes[step])
    if steps:
        skeleton = {encode_path(step): mode for step, mode in modes.items()}
        Path(f"{command_folder}/{names.SKELETON}").write_bytes(msgspec.json.encode(skeleton))
    for number in range(len(layers)):
        os.mkdir(f"{view}/work/{number}", 0o700)
    os.chmod(f"{view}/upper", stat.S_IMODE(os.stat(root).st_mode))


def _bury_unborn(folder: str) -> None:
    """A call that was never started never will be."""
    if not os.path.exists(folder):
        new_folder = _make(os.path.dirname(folder))
        Path(f"{new_folder}/{names.EXIT}").write_bytes(msgspec.json.encode(CommandExit("stopped", -15)))
        reach_faultpoint("command.before_burial")
        _settle(new_folder, folder)
    if (
        names.read_state(folder) == names.UNSTARTED
    ):  # claimed before, or just now, by a start that was quicker than this
        names.ask_to_stop(folder)


def _empty_folder(folder: str) -> None:
    if names.read_state(folder) == names.LOST:
        SupervisedCommand(folder).sweep()
        with suppress(FileNotFoundError):  # another one forgets it, too, and has written this
            replace_file(f"{folder}/{names.EXIT}", msgspec.json.encode(CommandExit("lost")))
    for name in os.listdir(folder):
        if name == names.VIEW:
            remove_tree(f"{folder}/{name}")
        elif name != names.EXIT:
            with suppress(FileNotFoundError):
                os.unlink(f"{folder}/{name}")


def _list_children(parent: str) -> list[str]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return [name for name in os.listdir(parent) if not name.startswith(".")]
    return []


def _find_unfinished(parent: str) -> list[CallKey]:
    """Commands that run or may still begin, without those in the background."""
    jobs = (name for name in _list_children(parent) if os.path.exists(f"{parent}/{name}/{names.JOB}"))
    foreground = (name for name in jobs if not os.path.exists(f"{parent}/{name}/{names.BACKGROUND}"))
    states = (names.UNSTARTED, names.RUNNING)
    return [CallKey(name) for name in foreground if names.read_state(f"{parent}/{name}") in states]


def _list_commands(parent: str) -> list[KnownCommand]:
    dated_commands: list[tuple[int, KnownCommand]] = []
    for call in _list_children(parent):
        folder = f"{parent}/{call}"
        with suppress(FileNotFoundError, EOFError, ValueError):
            began = os.stat(f"{folder}/{names.JOB}").st_mtime_ns
            state = names.read_state(folder)
            if state == names.UNSTARTED:
                continue
            background = os.path.exists(f"{folder}/{names.BACKGROUND}")
            title = str(marshal.loads(Path(f"{folder}/{names.JOB}").read_bytes())["title"])
            running, times = state == names.RUNNING, (began // 1_000_000, _read_end_ms(folder))
            dated_commands.append((began, KnownCommand(CallKey(call), running, background, title, *times)))
    return [known_command for _, known_command in sorted(dated_commands, key=lambda pair: pair[0])]


def _read_end_ms(folder: str) -> int:
    """When a command ended; of one whose supervisor was killed, when it last wrote anything."""
    with suppress(FileNotFoundError):
        return os.stat(f"{folder}/{names.EXIT}").st_mtime_ns // 1_000_000
    if names.read_state(folder) != names.LOST:
        return 0
    return max((os.stat(f"{folder}/{name}").st_mtime_ns // 1_000_000 for name in os.listdir(folder)), default=0)
