"""What helps to write: history, the names of files, and keys that take effect in their order."""

import asyncio
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from textual.app import App, ComposeResult
from textual.containers import Vertical
from textual.events import Key
from textual.widget import Widget

from treadle.adapters.workspace.file_names import choose_best_names, list_file_names, read_branch
from treadle.frontends.presentation.rich_text import Text
from treadle.frontends.tui.composer import Composer, History
from treadle.frontends.tui.desktop import find_picture
from treadle.frontends.tui.screens import Entry, LineInput, Picker, TextPrompt


def test_history_goes_back_and_forth_and_is_there_the_next_time(tmp_path: Path) -> None:
    first = History(tmp_path)
    first.add("one")
    first.add("two\nlines")
    first.add("two\nlines")
    second = History(tmp_path)
    assert second.recall_previous("a draft") == "two\nlines"
    assert second.recall_previous("two\nlines") == "one"
    assert second.recall_previous("one") is None
    assert second.recall_next() == "two\nlines"
    assert second.recall_next() == "a draft"
    assert second.recall_next() is None
    assert (tmp_path / "history.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_damaged_history_costs_only_itself(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_bytes(b'\xff\xfe\n"ok"\n{')
    assert History(tmp_path).recall_previous("") is None
    assert History(tmp_path / "nowhere").recall_previous("") is None


def test_names_are_those_that_git_knows_or_would(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "src").mkdir()
    for name in ("src/main.py", "notes.txt", "secret.log"):
        (tmp_path / name).write_text("x")
    (tmp_path / ".gitignore").write_text("*.log\n")
    assert set(list_file_names(str(tmp_path))) == {"src/main.py", "notes.txt", ".gitignore"}


def test_without_git_the_tree_is_walked(tmp_path: Path) -> None:
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "x.js").write_text("x")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.py").write_text("x")
    assert list_file_names(str(tmp_path)) == ["a/b.py"]


def test_the_best_name_is_the_one_that_begins_so() -> None:
    names = ["src/deep/remain.py", "src/main.py", "docs/maintenance.md", "m/a/i/n.txt", "other.py"]
    assert choose_best_names(names, "main")[:3] == ["src/main.py", "docs/maintenance.md", "src/deep/remain.py"]
    assert choose_best_names(names, "srcmn") == ["src/main.py", "src/deep/remain.py"]
    assert choose_best_names(names, "zzz") == []
    many = [f"folder{number % 100}/file_{number}.py" for number in range(50_000)]
    assert choose_best_names(many, "file_49999") == ["folder99/file_49999.py"]


def test_a_picture_is_known_by_its_path(tmp_path: Path) -> None:
    picture = tmp_path / "a b.png"
    picture.write_bytes(b"x")
    assert find_picture(f"'{picture}'\n") == str(picture)
    assert find_picture(str(tmp_path / "none.png")) == ""
    assert find_picture("some words") == ""


def test_the_branch_of_a_project_and_of_a_worktree(tmp_path: Path) -> None:
    assert read_branch(str(tmp_path)) == ""
    subprocess.run(["git", "init", "-q", "-b", "feature/x", str(tmp_path / "main")], check=True)
    assert read_branch(str(tmp_path / "main")) == "feature/x"
    (tmp_path / "main" / ".git" / "HEAD").write_text("0123456789abcdef\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".git").write_text("gitdir: ../main/.git\n")
    assert read_branch(str(tmp_path / "other")) == "01234567"


class Page(App[None]):
    """An app with one widget, some levels deep."""

    def __init__(self, widget: Widget | None = None) -> None:
        super().__init__()
        self._widget = widget or Vertical()

    def compose(self) -> ComposeResult:
        with Vertical(), Vertical():
            yield self._widget

    def type(self, keys: Iterable[str]) -> None:
        """All at once, as a terminal on a slow line delivers them."""
        for key in keys:
            character = {"enter": "\r", "backspace": "\x7f", "escape": "\x1b"}.get(key, key if len(key) == 1 else None)
            self.post_message(Key(key, character))


EDITS = [
    (["ctrl+u", *"new"], "new"),
    ([*"ab", "backspace", *"c"], "oldac"),
    ([*"ab", "left", *"c"], "oldacb"),
    (["home", *"x", "end", *"y", "ctrl+w", *"z"], "z"),
    ([*"one", "left", "left", "delete", *"x", "home", *"y"], "yoldoxe"),
]


@pytest.mark.parametrize(("keys", "expected"), EDITS)
@pytest.mark.parametrize("kind", [Composer, LineInput])
async def test_keys_that_come_together_edit_in_their_order(kind: type[Any], keys: list[str], expected: str) -> None:
    composer = Composer(History(None))
    page = Page(composer)
    async with page.run_test() as pilot:
        composer.focus()
        if kind is LineInput:
            await page.push_screen(TextPrompt("Key?"))
        await pilot.pause()
        page.type(["o", "l", "d", *keys])
        await pilot.pause()
        assert (composer.text if kind is Composer else page.screen.query_one(LineInput).value) == expected


async def test_a_message_is_sent_as_corrected() -> None:
    messages: list[str] = []

    composer = Composer(History(None), lambda message: messages.append(message.text))
    page = Page(composer)
    async with page.run_test() as pilot:
        composer.focus()
        page.type([*"rm", "backspace", "backspace", *"ls", "enter", *"next"])
        await pilot.pause()
        assert (messages, composer.text) == (["ls"], "next")


async def test_a_prompt_returns_the_line_as_corrected() -> None:
    page, answers = Page(), list[str | None]()
    async with page.run_test() as pilot:
        page.push_screen(TextPrompt("Key?"), answers.append)
        await pilot.pause()
        page.type([*"abx", "backspace", *"c", "enter"])
        await pilot.pause()
        assert answers == ["abc"]


@pytest.mark.parametrize("key", ["enter", "ctrl+d"])
async def test_a_list_acts_on_the_entry_of_the_typed_words(key: str) -> None:
    """Also while the list for them is still read; and a key of the list is no key of its line."""
    choices: list[object] = []

    async def find_names(query: str) -> list[Entry[str]]:
        await asyncio.sleep(0.05)
        return [Entry(Text(name), name) for name in ("alpha", "beta", "gamma") if query in name]

    async def act(key: str, name: str) -> None:
        choices.append((key, name))

    page = Page()
    async with page.run_test() as pilot:
        picker = Picker("Names", find_names, keys={"ctrl+d": "delete"}, act=act)
        page.push_screen(picker, lambda name: choices.append(name) if name else None)
        await pilot.pause(0.2)
        page.type([*"beh", "backspace", key])
        await pilot.pause(0.5)
        assert choices == ["beta" if key == "enter" else (key, "beta")]
