"""The card of something that the chat asks a person: an approval, answered by one key, or a question (S-08, U-03).

No typed or pasted text answers a card (U-10):

1. Keys that were under way before a card appeared were meant for something else. The card takes the focus only after a
   moment in which no key was pressed and the composer was empty. The same holds for the next card.
2. Only the keys that it shows act. Any other key begins a message: it goes to the composer, with the focus.
3. A sentence may begin with one of these keys. So a key acts only when no other key follows it within `ANSWER_S`; if
   one does, both are the beginning of a message. Enter makes it act at once.
4. An answer that makes a standing rule needs Enter behind its key.

The app gives the card its keys before any widget sees them (`TreadleApp.on_event`), so that keys keep their order."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.events import Blur, Focus, Key
from textual.message import Message
from textual.timer import Timer

from treadle.base.inert import make_inert, make_inert_line
from treadle.diff.changes import count
from treadle.frontends.presentation.notices import explain_question
from treadle.frontends.presentation.rich_text import Drawable, Group, Text
from treadle.frontends.tui.connection import OpenQuestion
from treadle.frontends.tui.drawing import Look, draw_diff, draw_key_hints
from treadle.frontends.tui.marks import Marks, Static
from treadle.protocol.events import OpenAction
from treadle.protocol.permissions import NETWORK_TOOL, RuleScope

QUIET_S = 0.5
LOOK_S = 0.1
ANSWER_S = 0.5  # a key answers when no other key follows for so long: the second letter of a sentence comes sooner
_RED = ("critical", "high")
NARROW = 50
_SHORT = {"y": "yes", "f": "why not", "w": "with net", "c": "chat", "p": "project", "u": "all"}
"""Short labels of keys for a narrow card: the question must be visible beside them."""


@dataclass
class Choice(Message):
    """The choice of a person: `kind` is once, rule, deny, feedback, edit or answer."""

    question: OpenQuestion
    kind: str
    scope: RuleScope = "once"
    offer: int = -1
    text: str = ""


class Card(VerticalScroll, can_focus=True):
    DEFAULT_CSS = """
    Card { height: auto; max-height: 50%; border: round $warning; padding: 0 1; margin: 0 1; scrollbar-size-vertical: 1;
        scrollbar-background: $background; scrollbar-background-hover: $background; scrollbar-color: $panel; }
    Card.severe { border: heavy $error; }
    Card.armed { border: round $accent; }
    Card.armed.severe { border: heavy $error; }
    """

    def __init__(self, marks: Marks, last_key: Callable[[], float], is_composer_empty: Callable[[], bool]) -> None:
        super().__init__(id="card")
        self._marks = marks
        self._last_key = last_key
        self._is_composer_empty = is_composer_empty
        self.asked: OpenQuestion | None = None
        self._others = 0
        self._shown_at = 0.0
        self.armed = False  # true if the card's keys act
        self._yields = False
        """True while an answer is being written in the composer: until that ends, no key is for the card."""
        self._left = False  # true if the person moved the focus away: the card does not take it back by itself
        self._drawn_width = 0
        self._message = False  # true if the composer had a text at the last look
        self._held: Key | None = None
        """The key that was pressed, until it acts or turns out to be the beginning of a message."""
        self._timer: Timer | None = None
        self._confirms = False  # true if the held key makes a rule and waits for Enter
        self.display = False

    def compose(self) -> ComposeResult:
        yield Static(id="asked")

    def on_mount(self) -> None:
        self._looking = self.set_interval(LOOK_S, self._update_arming, pause=True)

    @property
    def action(self) -> OpenAction | None:
        return None if self.asked is None else self.asked.action

    @property
    def takes_focus(self) -> bool:
        """A question without options is answered in the composer."""
        return self.action is not None and bool(self.action.kind == "permission" or self.action.options)

    @property
    def is_focused(self) -> bool:
        """As the screen has it: `has_focus` follows when the event was handled."""
        return self.screen.focused is self

    def ask(self, question: OpenQuestion | None, waiting_count: int = 0) -> None:
        """Show this, and how many more wait behind it; None: nothing is asked."""
        if question is None or self.asked is None or question.key != self.asked.key:
            self.armed = self._yields = self._left = False
            self._release_key()
            self._shown_at = time.monotonic()
        elif waiting_count == self._others and question == self.asked:
            return
        self.asked, self._others = question, waiting_count
        self.display = question is not None
        if question is not None:
            self._looking.resume()
            self.set_class(question.action.severity in _RED, "severe")
            self._draw()
        else:
            self._looking.pause()

    def _update_arming(self) -> None:
        """Arm the card if no key was pressed for a moment since it appeared, and the composer is empty."""
        if not self.takes_focus or self._yields or self.app.screen is not self.screen:
            return
        if self._is_composer_empty() == self._message:
            self._message = not self._message
            self._left = self._left and not self._message  # when the message is sent or cleared, the card comes back
            self._draw()
        if self.armed:
            if self._message or not self.is_focused:
                self._left = not self._message
                self._disarm()
        elif not (self._left or self._message) and time.monotonic() - max(self._shown_at, self._last_key()) >= QUIET_S:
            self._arm()

    def _arm(self) -> None:
        self.armed, self._left = True, False
        self._draw()
        self.screen.set_focus(self)  # at once: the next key is for the card

    def _disarm(self) -> None:
        self.armed = False
        self._release_key()
        self._draw()

    def on_resize(self) -> None:
        if self.asked is not None and self.size.width != self._drawn_width:
            self._draw()

    def on_focus(self, event: Focus) -> None:
        can_arm = self.takes_focus and not self._yields and not self.armed
        if can_arm and self.is_focused and self._is_composer_empty():
            self._arm()

    def on_blur(self, event: Blur) -> None:
        if self.armed and not self.is_focused and self.app.screen is self.screen:
            self._left = True
            self._disarm()

    def take_keys_again(self) -> None:
        """The answer in the composer was given up."""
        if self._yields and self.asked is not None:
            self._yields = False
            self._arm()

    # -- drawing ------------------------------------------------------------------------------------------------------

    def _draw(self) -> None:
        assert self.asked is not None
        self.set_class(self.armed, "armed")
        self._drawn_width = self.size.width
        width = max(20, self.size.width - 4 if self.size.width else 76)
        look = Look(width, 0, dark=self.app.current_theme.dark, marks=self._marks)
        self.query_one("#asked", Static).update(Group(*self._draw_parts(self.asked, look)))

    def _draw_parts(self, question: OpenQuestion, look: Look) -> list[Drawable]:
        action = question.action
        more = f"  ({count(self._others, 'more question')} behind it)" if self._others else ""
        more += f"  (sub-agent: {make_inert_line(question.title or question.chat, 40)})" if question.below else ""
        if action.kind == "user_input":
            head = Text(f"{look.marks.asks} {make_inert(action.text)}{more}", "bold")
            numbered_texts = enumerate(action.options, 1)
            options = [Text(f"  {number} {make_inert_line(text, 200)}") for number, text in numbered_texts]
            hint = Text("a number, or your own words and Enter" if self.armed else "your own words and Enter", "dim")
            if self._held is not None:
                option = make_inert_line(action.options[int(self._held.character or 1) - 1], 100)
                hint = Text(f"answering: {option} (type on to write a message instead)", "bold")
            return [head, *options, hint]
        style = "bold red" if action.severity in _RED else "bold yellow"
        name = make_inert_line(action.name or "a call", 60)
        head = Text(f"{look.marks.asks} {name} needs your approval{more}", style)
        reasons = [Text(f"{look.marks.dot} {line}", "dim") for line in explain_question(action)]
        return [head, self._draw_keys(action, look.width), *draw_requested_action(action, look), *reasons]

    def _draw_keys(self, action: OpenAction, width: int) -> Text:
        if self._yields:
            return Text("write in the line below, or press Esc to return to the choices", "dim")
        if self._held is not None:
            return self._describe_held_key(action, self._held.character or "")
        if not self.armed:
            if self._message:
                return Text("Tab puts your message aside and shows the choices", "dim")
            if self._left:
                return Text("Tab shows the choices", "dim")
            return Text("one moment: text that you type does not answer the card", "dim")
        short = {} if width >= NARROW else _SHORT
        return draw_key_hints([(key, short.get(key, words)) for key, words in list_choices(action)], width)

    def _describe_held_key(self, action: OpenAction, key: str) -> Text:
        words = dict(list_choices(action))[key]
        if not self._confirms:
            return Text(f"{words} (type on to write a message instead)", "bold")
        rule = _find_rule(action, key)
        assert rule is not None
        offer, scope = rule
        reach = {"chat": "in this chat", "project": "in this project", "user": "everywhere"}[scope]
        covers = make_inert_line(action.offers[offer].covers, 300)
        return Text(f"Always allow {reach}: {covers}? Enter makes this rule, Esc goes back", "bold")

    # -- keys ---------------------------------------------------------------------------------------------------------

    def take_key(self, event: Key) -> bool:
        """True if the key is for the card. Otherwise it begins or continues a message."""
        if self.asked is None or not self.armed or not self._is_composer_empty():
            return False
        held_key = self._held
        match event.key:
            case "enter" if held_key is not None:
                self._act(confirmed=self._confirms)
                return True
            case "escape" if held_key is not None:
                self._release_key()
                self._draw()
                return True
            case _ if held_key is None and event.character in list_shown_keys(self.asked.action):
                self._held = event
                self._timer = self.app.set_timer(ANSWER_S, self._act)
                self._draw()
                return True
            case _:
                return False

    def yield_to_message(self) -> Key | None:
        """A message begins. The key that was held, if any, is its first letter."""
        held_key = self._held
        if self.armed:
            self._message = True
            self._disarm()
        return held_key

    def _release_key(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._held = self._timer = None
        self._confirms = False

    def _act(self, *, confirmed: bool = False) -> None:
        """The held key was the whole answer."""
        if self._held is None or self.asked is None or not self.armed or not self._is_composer_empty():
            return
        key = self._held.character or ""
        if not confirmed and _find_rule(self.asked.action, key) is not None:
            if self._timer is not None:
                self._timer.stop()
            self._confirms = True
            self._draw()
            return
        self._release_key()
        self._post_choice(self.asked.action, key)

    def _post_choice(self, action: OpenAction, key: str) -> None:
        assert self.asked is not None
        self.armed = False  # a second key is no second answer
        rule = _find_rule(action, key)
        if action.kind == "user_input":
            choice = Choice(self.asked, "answer", text=action.options[int(key) - 1])
        elif rule is not None:
            choice = Choice(self.asked, "rule", offer=rule[0], scope=rule[1])
        elif key == "w":
            choice = Choice(self.asked, "rule", scope="once", offer=_find_network_offer(action))
        else:
            choice = Choice(self.asked, {"y": "once", "n": "deny", "f": "feedback", "e": "edit"}[key])
        if choice.kind in ("feedback", "edit"):
            self._yields = True  # further keys are text, also before the composer has the text to edit
            self._draw()
        self.post_message(choice)


_SCOPE_KEYS: dict[str, RuleScope] = {"c": "chat", "p": "project", "u": "user"}


def list_shown_keys(action: OpenAction) -> list[str]:
    if action.kind == "user_input":
        return [str(number) for number in range(1, min(9, len(action.options)) + 1)]
    return [key for key, _ in list_choices(action)]


def _find_rule(action: OpenAction, key: str) -> tuple[int, RuleScope] | None:
    """The offer, and its scope, that a key turns into a standing rule; None for any other key."""
    if action.kind != "permission":
        return None
    if key in _SCOPE_KEYS:
        return 0, _SCOPE_KEYS[key]
    return (int(key) - 1, "chat") if key.isdecimal() else None


def list_choices(action: OpenAction) -> list[tuple[str, str]]:
    options = [("y", "yes, once"), ("n", "no"), ("f", "no, and say why")]
    if action.name == "run_command":
        options.append(("e", "edit"))
    if _find_network_offer(action) >= 0:
        options.append(("w", "with network, once"))
    words = {"c": "always in this chat", "p": "in this project", "u": "everywhere"}
    if action.offers:
        options += [(key, words[key]) for key, scope in _SCOPE_KEYS.items() if scope in action.offers[0].open_scopes]
    rules = [number for number, offer in enumerate(action.offers[1:9], 2) if "chat" in offer.open_scopes]
    return options + [(str(number), f"rule {number} in this chat") for number in rules]


def _find_network_offer(action: OpenAction) -> int:
    return next((at for at, offer in enumerate(action.offers) if offer.rule.tool == NETWORK_TOOL), -1)


FILE_TOOLS = ("write_file", "edit_file", "apply_patch")


def draw_requested_action(action: OpenAction, look: Look) -> list[Drawable]:
    """The requested action, shown once: the command in the colours of a shell, its effect or a change of files as a
    diff. The arguments of a file tool are left out if its whole change is shown, because they would repeat it."""
    lines = make_inert(action.text).rstrip("\n").split("\n")
    # Arguments are indented, blank lines of theirs included: the first empty line stands before what was rehearsed.
    end = lines.index("") if "" in lines else len(lines)
    call, effect = lines[1:end] if lines[0] == action.name else lines[:end], lines[end + 1 :]
    drawables: list[Drawable] = []
    if not (action.name in FILE_TOOLS and any(line.startswith("@@") for line in effect)):
        drawables.append(_format_call(action, call, look))
    return drawables + _draw_effect(effect, look)


def _format_call(action: OpenAction, lines: list[str], look: Look) -> Drawable:
    from treadle.frontends.tui import code

    command = action.name == "run_command"
    text = "\n".join(line.removeprefix("  ") for line in lines)
    if command and text.startswith("command: "):
        text = f"$ {text.removeprefix('command: ')}"
    elif command and text.startswith("command:\n"):
        text = f"$ {text.removeprefix('command:').lstrip()}"
    return code.render_code(make_inert(text), "bash" if command else "text", look.code_theme)


def _draw_effect(lines: list[str], look: Look) -> list[Drawable]:
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
            drawables += [Text(f"{kind}{path}", "bold"), draw_diff(lines[begin:at], path, look)]
        else:
            if line.strip():
                drawables.append(Text(line))
            at += 1
    return drawables
