"""The card of something that the chat asks a person: an approval, answered by one key, or a question (S-08, U-03).

Why a card is armed late. Keys that were under way before it appeared were meant for something else, and one of them
might be a `y`. So a card takes keys only when it has been seen for a moment in which nothing was typed; until then keys
go where they went before. It is the same for the next card behind an answered one.
"""

import time
from collections.abc import Callable

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.events import Key
from textual.message import Message

from treadle.inert import inert, inert_line
from treadle.lines.changes import count
from treadle.presentation.notices import why_asked
from treadle.presentation.rich_text import Drawable, Group, Text
from treadle.protocol.events import OpenAction
from treadle.protocol.permissions import NETWORK_TOOL, RuleScope
from treadle.tui.connection import Asked
from treadle.tui.drawing import Look, diff, key_hints
from treadle.tui.marks import Marks
from treadle.tui.static import Static

QUIET_S = 0.5
LOOK_S = 0.1
_NOT_ANSWERS = ("tab", "escape", "enter", "ctrl+c", "ctrl+o")
_RED = ("critical", "high")
NARROW = 50
_SHORT = {"y": "yes", "f": "why not", "w": "with net", "c": "chat", "p": "project", "u": "all"}
"""What keys mean where there is no room for more words: what is asked must be seen beside them."""


class Choice(Message):
    """What a person chose: `kind` is once, rule, deny, feedback, edit or answer."""

    def __init__(self, asked: Asked, kind: str, *, scope: RuleScope = "once", offer: int = -1, text: str = ""):
        super().__init__()
        self.asked = asked
        self.kind = kind
        self.scope = scope
        self.offer = offer
        self.text = text


class Card(VerticalScroll, can_focus=True):
    DEFAULT_CSS = """
    Card { height: auto; max-height: 60%; border: round $warning; padding: 0 1; margin: 0 1; scrollbar-size-vertical: 1;
        scrollbar-background: $background; scrollbar-background-hover: $background; scrollbar-color: $panel; }
    Card.severe { border: heavy $error; }
    Card.armed { border: round $accent; }
    Card.armed.severe { border: heavy $error; }
    """

    def __init__(self, marks: Marks, last_key: Callable[[], float]) -> None:
        super().__init__(id="card")
        self._marks = marks
        self._last_key = last_key
        self.asked: Asked | None = None
        self._others = 0
        self._shown_at = 0.0
        self.armed = False
        self._yields = False
        """True while an answer is being written in the composer: until that ends, no key is for the card."""
        self.display = False

    def compose(self) -> ComposeResult:
        yield Static(id="asked")

    def on_mount(self) -> None:
        self.set_interval(LOOK_S, self._look)

    @property
    def action(self) -> OpenAction | None:
        return None if self.asked is None else self.asked.action

    def ask(self, asked: Asked | None, others: int = 0) -> None:
        """Show this, and how many more wait behind it; None: nothing is asked."""
        if asked is None or self.asked is None or asked.key != self.asked.key:
            self.armed = self._yields = False
            self._shown_at = time.monotonic()
        elif others == self._others and asked == self.asked:
            return
        self.asked, self._others = asked, others
        self.display = asked is not None
        if asked is not None:
            self.set_class(asked.action.severity in _RED, "severe")
            self._draw()

    def _look(self) -> None:
        """Arm it when nobody has typed for a moment since it appeared."""
        if self.action is None or self.armed or self._yields:
            return
        if time.monotonic() - max(self._shown_at, self._last_key()) >= QUIET_S:
            self.armed = True
            self._draw()
            if self.action.kind == "permission":
                self.screen.set_focus(self)  # at once: the next key is for the card

    def take_keys_again(self) -> None:
        """The answer in the composer was given up."""
        if self._yields and self.asked is not None:
            self._yields, self.armed = False, True
            self._draw()
            self.screen.set_focus(self)

    # -- drawing ------------------------------------------------------------------------------------------------------

    def _draw(self) -> None:
        assert self.asked is not None
        self.set_class(self.armed, "armed")
        width = max(20, self.size.width - 4 if self.size.width else 76)
        look = Look(width, 0, dark=self.app.current_theme.dark, marks=self._marks)
        self.query_one("#asked", Static).update(Group(*self._parts(self.asked, look)))

    def _parts(self, question: Asked, look: Look) -> list[Drawable]:
        action = question.action
        more = f"  ({count(self._others, 'more question')} behind it)" if self._others else ""
        more += f"  (sub-agent: {inert_line(question.title or question.chat, 40)})" if question.below else ""
        if action.kind == "user_input":
            head = Text(f"{look.marks.asks} {inert(action.text)}{more}", "bold")
            options = [Text(f"  {number} {inert_line(text, 200)}") for number, text in enumerate(action.options, 1)]
            hint = "your own words and Enter"
            hint = f"a number, or {hint}" if options and self.armed else hint
            return [head, *options, Text(hint, "dim")]
        style = "bold red" if action.severity in _RED else "bold yellow"
        head = Text(f"{look.marks.asks} {inert_line(action.name or 'a call', 60)} needs your approval{more}", style)
        why = [Text(f"{look.marks.dot} {line}", "dim") for line in why_asked(action)]
        return [head, self._keys(action, look.width), *asked_for(action, look), *why]

    def _keys(self, action: OpenAction, width: int) -> Text:
        if self._yields:
            return Text("write in the line below, or press Esc to return to the choices", "dim")
        if not self.armed:
            return Text("one moment: what is being typed is no answer", "dim")
        found = choices(action)
        return key_hints(found if width >= NARROW else [(key, _SHORT.get(key, words)) for key, words in found], width)

    # -- keys ---------------------------------------------------------------------------------------------------------

    def on_key(self, event: Key) -> None:
        if event.character is None or event.key in _NOT_ANSWERS:
            return
        event.stop()
        event.prevent_default()
        if self.armed:
            self.press(event.character or event.key)

    def press(self, key: str) -> bool:
        """Take a key if it means something here."""
        if self.asked is None or not self.armed:
            return False
        action = self.asked.action
        if action.kind == "user_input":
            if key.isdecimal() and 1 <= int(key) <= len(action.options):
                self._choose("answer", text=action.options[int(key) - 1])
                return True
            return False
        if key not in {each for each, _ in choices(action)}:
            return False
        match key:
            case "y":
                self._choose("once")
            case "n":
                self._choose("deny")
            case "f":
                self._yield_to_composer("feedback")
            case "e":
                self._yield_to_composer("edit")
            case "w":
                self._choose("rule", scope="once", offer=_network_offer(action))
            case "c" | "p" | "u":
                self._choose("rule", scope=_SCOPE_KEYS[key], offer=0)
            case number if number.isdecimal():
                self._choose("rule", scope="chat", offer=int(number) - 1)
        return True

    def _yield_to_composer(self, kind: str) -> None:
        """Treat further keys as text, also before the composer has the text to edit."""
        assert self.asked is not None
        self.armed, self._yields = False, True
        self._draw()
        self.post_message(Choice(self.asked, kind))

    def _choose(self, kind: str, *, scope: RuleScope = "once", offer: int = -1, text: str = "") -> None:
        assert self.asked is not None
        self.armed = False  # a second key is no second answer
        self.post_message(Choice(self.asked, kind, scope=scope, offer=offer, text=text))


_SCOPE_KEYS: dict[str, RuleScope] = {"c": "chat", "p": "project", "u": "user"}


def choices(action: OpenAction) -> list[tuple[str, str]]:
    """The keys of an approval and what each means."""
    options = [("y", "yes, once"), ("n", "no"), ("f", "no, and say why")]
    if action.name == "run_command":
        options.append(("e", "edit"))
    if _network_offer(action) >= 0:
        options.append(("w", "with network, once"))
    words = {"c": "always in this chat", "p": "in this project", "u": "everywhere"}
    if action.offers:
        options += [(key, words[key]) for key, scope in _SCOPE_KEYS.items() if scope in action.offers[0].open_scopes]
    options += [
        (str(number), f"rule {number} in this chat")
        for number, offer in enumerate(action.offers[:9], 1)
        if number > 1 and "chat" in offer.open_scopes
    ]
    return options


def _network_offer(action: OpenAction) -> int:
    return next((at for at, offer in enumerate(action.offers) if offer.rule.tool == NETWORK_TOOL), -1)


FILE_TOOLS = ("write_file", "edit_file", "apply_patch")


def asked_for(action: OpenAction, look: Look) -> list[Drawable]:
    """What would happen, once: the command in the colours of a shell, its effect or a change of files as a diff. Of a
    file tool whose whole change is shown, the arguments would only say the same again."""
    lines = inert(action.text).rstrip("\n").split("\n")
    # Arguments are indented, blank lines of theirs included: the first empty line stands before what was rehearsed.
    end = lines.index("") if "" in lines else len(lines)
    call, effect = lines[1:end] if lines[0] == action.name else lines[:end], lines[end + 1 :]
    drawables: list[Drawable] = []
    if not (action.name in FILE_TOOLS and any(line.startswith("@@") for line in effect)):
        drawables.append(_call_text(action, call, look))
    return drawables + _effect(effect, look)


def _call_text(action: OpenAction, lines: list[str], look: Look) -> Drawable:
    from treadle.tui import code

    command = action.name == "run_command"
    text = "\n".join(line.removeprefix("  ") for line in lines)
    if command and text.startswith("command: "):
        text = f"$ {text.removeprefix('command: ')}"
    elif command and text.startswith("command:\n"):
        text = f"$ {text.removeprefix('command:').lstrip()}"
    return code.block(inert(text), "bash" if command else "text", look.code_theme)


def _effect(lines: list[str], look: Look) -> list[Drawable]:
    """Diffs, file by file, and words between them."""
    drawables: list[Drawable] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
            path = lines[at + 1][4:] if lines[at + 1] != "+++ /dev/null" else line[4:]
            begin = at = at + 2
            while at < len(lines) and lines[at][:1] in ("@", "+", "-", " ", "\\") and not lines[at].startswith("--- "):
                at += 1
            word = {"--- /dev/null": "new file ", "+++ /dev/null": "removed "}
            kind = word.get(line) or word.get(lines[begin - 1]) or ""
            drawables += [Text(f"{kind}{path}", "bold"), diff(lines[begin:at], path, look)]
        else:
            if line.strip():
                drawables.append(Text(line))
            at += 1
    return drawables
