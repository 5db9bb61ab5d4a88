"""A real terminal for tests: a tmux server of its own, keys in, the screen out."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

PATIENCE_S = 60.0

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Terminal:
    """One window. `keys` are as tmux names them (Enter, Escape, C-c); `type` is text as it is."""

    def __init__(self, folder: Path, environment: Mapping[str, str], width: int = 100, height: int = 30) -> None:
        self._socket = ""
        self._starts = 0
        self._folder = folder
        self.environment = dict(environment)
        self._size = (width, height)

    def start(self, *arguments: str, cwd: Path) -> None:
        """Run `treadle` with these arguments."""
        self._starts += 1  # a server that was told to end may still hold its socket
        self._socket = str(self._folder / f"tmux-{self._starts}.sock")
        command = shlex.join([sys.executable, "-m", "treadle", *arguments])
        variables = {**self.environment, "TERM": "tmux-256color", "LANG": "C.UTF-8"}
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
        ending = "code=$?; echo; echo ended with $code; exec sleep 600"
        line = f"cd {shlex.quote(str(cwd))}; env -i {settings} {command}; {ending}"
        width, height = self._size
        self._tmux("new-session", "-d", "-x", str(width), "-y", str(height), "sh", "-c", line)

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", "--", text)

    def keys(self, *names: str) -> None:
        self._tmux("send-keys", *names)

    def paste(self, text: str) -> None:
        """As a terminal pastes it, between the marks of a bracketed paste if the program asked for them."""
        self._tmux("set-buffer", "--", text)
        self._tmux("paste-buffer", "-p")

    def quit(self) -> None:
        """Press Ctrl-C until the app ends. A second press counts only for 3 seconds after the first. A press that comes
        while the app ends would end the program that started it, so the app gets nearly all of that time."""
        self.keys("C-c")
        self.wait("again quits")
        while "again quits" in self.screen():
            self.keys("C-c")
            deadline = time.monotonic() + 2.5
            while "again quits" in self.screen() and time.monotonic() < deadline:
                time.sleep(0.1)

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def take_clipboard(self) -> None:
        """Let the program set the clipboard, as terminals that obey OSC 52 do."""
        self._tmux("set-option", "-s", "set-clipboard", "on")

    def clipboard(self) -> str:
        return self._tmux("show-buffer")

    def scrollback(self) -> str:
        """The screen, and what was above it."""
        return self._tmux("capture-pane", "-p", "-S", "-1000")

    def screen(self, *, escapes: bool = False) -> str:
        return self._tmux("capture-pane", "-p", *(["-e"] if escapes else []))

    def wait(self, *texts: str, absent_text: str = "") -> str:
        """The screen, when all of `texts` stand on it, and `absent_text` does not."""
        return self.until(
            lambda screen_text: (
                all(text in screen_text for text in texts) and (not absent_text or absent_text not in screen_text)
            ),
            f"{texts} -{absent_text!r}",
        )

    def until(self, holds: Callable[[str], bool], description: str) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            screen_text = self.screen()
            if holds(screen_text):
                return screen_text
            if time.monotonic() > deadline:
                raise AssertionError(f"never seen: {description}\n{screen_text}")
            time.sleep(0.1)

    def cells(self) -> list[tuple[str, ...]]:
        """Each cell of the screen with its colours; of a blank cell only the colour that shows."""
        cells: list[tuple[str, ...]] = []
        letters = background = ""
        marks: frozenset[str] = frozenset()
        for codes, character in re.findall(r"\x1b\[([\d;]*)m|([^\x1b])", self.screen(escapes=True)):
            if character:
                shown_letters = letters if not character.isspace() or "7" in marks else ""
                cells.append(
                    (
                        character,
                        shown_letters,
                        background,
                        *sorted(marks - {"1", "3"} if character.isspace() else marks),
                    )
                )
            for code in re.findall(r"[34]8;5;\d+|[34]8;2;\d+;\d+;\d+|\d+", codes or "0") if not character else ():
                if code == "0":
                    letters, background, marks = "", "", frozenset()
                elif code.startswith(("3", "9")) and len(code) > 1:
                    letters = "" if code == "39" else code
                elif code.startswith(("4", "10")) and len(code) > 1:
                    background = "" if code == "49" else code
                else:
                    marks |= {code}
        return cells

    def settled_cells(self) -> list[tuple[str, ...]]:
        """The cells of the screen, when its text has not changed for a second."""
        texts: list[str] = []

        def is_settled(screen_text: str) -> bool:
            texts.append(screen_text)
            return len(texts) > 10 and len(set(texts[-10:])) == 1

        self.until(is_settled, "a screen that does not change")
        return self.cells()

    def pid(self) -> int:
        """The process of treadle."""
        shell = self._tmux("display-message", "-p", "#{pane_pid}").strip()
        pids = subprocess.run(["pgrep", "-P", shell], capture_output=True, text=True).stdout.split()
        return int(pids[0])

    def close(self) -> None:
        self._tmux("kill-server")

    def _tmux(self, *arguments: str) -> str:
        env = {**os.environ, "LC_ALL": "C.UTF-8"}
        command = ["tmux", "-f", os.devnull, "-S", self._socket, *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=env).stdout
