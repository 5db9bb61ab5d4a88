"""Completions for the text that is being written: commands behind a slash, files and resources behind an @."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from textual.widgets import OptionList

from treadle.adapters.workspace.file_names import best
from treadle.base.inert import inert_line
from treadle.frontends.presentation.rich_text import Text
from treadle.frontends.tui.app import TreadleApp
from treadle.frontends.tui.commands import COMMANDS

if TYPE_CHECKING:
    from treadle.library.skills.reading import OwnCommand

MOST = 8


class Offers:
    """`otherwise` is given the keys that nothing here needs; True: it took one."""

    def __init__(self, app: TreadleApp, otherwise: Callable[[str], bool]) -> None:
        self._app = app
        self._otherwise = otherwise
        self._kind = ""
        self._names: Sequence[str] = ()
        self._typed = ("", "")
        self.files: Sequence[str] = ()
        """The names of the project's files, once they are known."""
        self.resources: Sequence[str] = ()
        """Those of MCP servers, as `server:uri`."""
        self.own: Mapping[str, OwnCommand] = {}
        app.composer.completes = self._key

    def renew(self) -> None:
        """More is known than when the offer was made."""
        if self._typed[0]:
            self.offer(*self._typed)

    def offer(self, kind: str, typed: str) -> None:
        self._typed = kind, typed
        match kind:
            case "command":
                names = [name for name in (*COMMANDS, *self.own) if name.startswith(typed)]
                self._show("command", [] if names == [typed] else names)
            case "file" if self.files or self.resources:
                few = [] if typed else best(self.resources, "", MOST // 2)  # short names of files would hide them all
                names = best(self.files if few else (*self.files, *self.resources), typed, MOST - len(few))
                self._show("file", [*names, *few])
            case _:
                self.put_down()

    def put_down(self) -> bool:
        """Nothing is offered any more; False if nothing was."""
        had_offers = bool(self._names)
        self._typed = ("", "")
        if had_offers:
            self._show("", [])
        return had_offers

    def _show(self, kind: str, names: Sequence[str]) -> None:
        if (kind, names) == (self._kind, self._names):
            return
        self._kind, self._names = kind, names
        option_list = self._app.query_one("#offers", OptionList)
        option_list.clear_options()
        option_list.display = bool(names)
        width = max((len(name) for name in names), default=0)
        for name in names:
            line: str = inert_line(name)
            if kind == "command":
                own = self.own.get(name)
                words = inert_line(f"{own.hint} {own.description}".strip(), 200) if own is not None else ""
                line = f"/{name:{width}}  {COMMANDS.get(name) or words}"
            option_list.add_option(Text(line, no_wrap=True))
        if names:
            option_list.highlighted = 0

    def _key(self, key: str) -> bool:
        composer = self._app.composer
        if not self._names:
            return self._otherwise(key)
        if self._kind == "command" and not all(f"/{name}".startswith(composer.text) for name in self._names):
            # Ignore the offers if the text has changed since they were made.
            self.put_down()
            return False
        option_list = self._app.query_one("#offers", OptionList)
        match key:
            case "up":
                option_list.action_cursor_up()
            case "down":
                option_list.action_cursor_down()
            case "escape":
                self.put_down()
            case _:
                kind, name = self._kind, self._names[option_list.highlighted or 0]
                composer.complete(kind, name)
                self.put_down()
                is_complete = composer.text.strip()[1:] in (*COMMANDS, *self.own)
                return not (key == "enter" and kind == "command" and is_complete)
        return True
