"""The dialogue at the terminal: asks the person there for the approvals and answers that a chat needs (S-08, U-03).
Ctrl-D and Ctrl-C leave: the chat keeps waiting, and can be answered from anywhere. If it is answered elsewhere, the
terminal says so and follows the chat."""

import asyncio
from collections.abc import Container
from contextlib import suppress
from functools import partial

from treadle.base.inert import make_inert_line, print_note
from treadle.chat.state import list_open_actions
from treadle.errors import InvalidInput, NotFound, Refused, TreadleError
from treadle.frontends.cli.drive import JsonLines, drive
from treadle.frontends.cli.keyboard import END, ESCAPE, Keyboard
from treadle.frontends.cli.keyboard import is_person_there as is_person_there
from treadle.frontends.cli.screen import Screen
from treadle.frontends.cli.terminal import Terminal
from treadle.frontends.presentation.notices import describe_request, explain_question, resolve_option, suggest_answer
from treadle.frontends.presentation.styled import Colour
from treadle.library.chat import Chat
from treadle.library.command_stream import CommandStream
from treadle.library.feeds import read_patiently
from treadle.protocol.events import OpenAction
from treadle.protocol.permissions import NETWORK_TOOL, Rule, RuleScope
from treadle.protocol.subagent_events import decode_children

_SCOPES: dict[str, RuleScope] = {"o": "once", "c": "chat", "p": "project", "u": "user"}
_DIFF: dict[str, Colour] = {"+": "green", "-": "red", "@": "cyan"}
_WATCH_S = 1.0
_STALE = ("no_such_action", "hash_mismatch")
"""Codes of a refused answer that came too late: the action was answered elsewhere, or its content has changed."""


async def follow(
    chat: Chat,
    following: CommandStream,
    after_seq: int,
    *,
    as_json: bool,
    asks: bool = False,
    resumed: bool = False,
    plain: bool = False,
) -> int:
    """Carry out a command and show the events after `after_seq`, as lines of JSON or on a screen. `asks`: ask the
    person the questions of the chat on the screen. `resumed`: the chat existed before, so Ctrl-C only detaches.
    `plain`: line by line."""
    if as_json:
        return await drive(chat, following, JsonLines(), after_seq, detaches=resumed)
    terminal = Terminal(plain=plain)
    screen = Screen(terminal, asks=asks, watches=resumed)
    state = await chat.state()
    screen.begin(chat.id, state.options.model, state.options.root, resumed=resumed)
    screen.load_calls(state)
    if not asks:
        return await drive(chat, following, screen, after_seq, detaches=resumed)
    with Keyboard() as keys:
        return await _converse(chat, following, screen, after_seq, Dialogue(terminal, keys), detaches=resumed)


async def _converse(
    chat: Chat, following: CommandStream, show: Screen, after_seq: int, dialogue: "Dialogue", *, detaches: bool
) -> int:
    """Drive the chat and answer its questions until the person leaves. Esc stops the run meanwhile."""
    show.seq = after_seq
    while True:
        attending = asyncio.ensure_future(dialogue.attend(chat))
        try:
            code = await drive(chat, following, show, show.seq, detaches=detaches)
        except Refused as refusal:
            if refusal.reason not in _STALE:
                raise
            dialogue.note_stale()
            following = chat.resume()
            continue
        finally:
            attending.cancel()
            await asyncio.gather(attending, return_exceptions=True)
        if code >= 128:  # a signal ended it
            return code
        actions = [action for action in await chat.actions() if action.of_person]
        if not actions or (answer := await dialogue.ask_about(chat, actions[0])) is None:
            return code
        show.mark_as_asked(actions[0])
        following = answer


class Dialogue:
    def __init__(self, terminal: Terminal, keys: Keyboard) -> None:
        self._terminal = terminal
        self._keys = keys

    async def attend(self, chat: Chat) -> None:
        """While the chat works: Esc stops it, and what its sub-agents ask is asked here."""
        skipped_chats: set[str] = set()
        while True:
            escaping = asyncio.ensure_future(self._stop_on_escape(chat))
            try:
                while True:
                    if (request := await _find_action_below(chat, skipped_chats)) is not None:
                        break
                    await asyncio.sleep(_WATCH_S)
            finally:
                escaping.cancel()
            child, action = request
            self._terminal.write_note(f"── sub-agent {child.id} asks:", "yellow")
            if (answer := await self.ask_about(child, action)) is None:
                skipped_chats.add(child.id)
                continue
            with suppress(TreadleError):  # it was answered elsewhere
                await answer

    async def _stop_on_escape(self, chat: Chat) -> None:
        while (key := await self._keys.read_key()) != END:
            if key == ESCAPE:
                with suppress(TreadleError):  # it has just ended
                    await chat.interrupt()

    async def ask_about(self, chat: Chat, action: OpenAction) -> CommandStream | None:
        """Ask the person about the action. Return the command with the answer; None if the person leaves."""
        prose = {f"  {line}" for line in explain_question(action)}  # wrapped; lines of the action itself are not
        for line in describe_request(action):
            head = not line.startswith(" ")
            colour = "yellow" if head else _DIFF.get(line[2:3])
            parts = self._terminal.wrap_line(f"── {line}" if head else line, "   " if head else "    ")
            for part in parts if head or line in prose else [line]:
                self._terminal.write_note(part, *((colour,) if colour else ()))
        choosing = asyncio.ensure_future(self._choose(chat, action))
        closing = asyncio.ensure_future(_wait_until_closed(chat, action))
        try:
            await asyncio.wait((choosing, closing), return_when=asyncio.FIRST_COMPLETED)
            if not choosing.done():
                await closing
                self._terminal.write_note("")
                self.note_stale()
                return chat.resume()
            answer = await choosing
        finally:
            for task in (choosing, closing):
                task.cancel()
        if answer is None:
            self._terminal.write_note(f"── left; answer later with: {suggest_answer(chat.id, action)}", "dim")
        return answer

    def note_stale(self) -> None:
        self._terminal.write_note("── this was answered elsewhere, or has changed; following the chat", "yellow")

    async def _choose(self, chat: Chat, action: OpenAction) -> CommandStream | None:
        while True:
            try:
                return await (self._permit(chat, action) if action.kind == "permission" else self._tell(chat, action))
            except TreadleError as error:
                self._terminal.write_note(f"   {error}", "yellow")

    async def _permit(self, chat: Chat, action: OpenAction) -> CommandStream | None:
        while True:
            typed = await self._press(_format_choices(action))
            if typed == END:
                return None
            word, number = typed[:1].lower(), typed[1:]
            if word == "y":
                return chat.approve(action)
            if word == "n":
                return chat.deny(action, await self._ask("why not? (sent to the model; may be empty) ") or "")
            if word == "e" and action.name == "run_command" and (command := await self._rewrite_command(chat, action)):
                return chat.approve(action, arguments=await edit_command(chat, action, command))
            if word in _SCOPES and action.offers:
                if not number and len(action.offers) > 1:
                    number = await self._press(f"which rule, 1 to {len(action.offers)}? ")
                if number.isdecimal() or len(action.offers) == 1:
                    rule = choose_rule(action, _SCOPES[word], int(number or 1), deny=False)
                    return chat.approve(action, rule=rule)

    async def _press(self, prompt: str) -> str:
        self._show_prompt(prompt)
        key = await self._keys.read_key()
        print_note(key if key.isprintable() else "")
        return key

    async def _tell(self, chat: Chat, action: OpenAction) -> CommandStream | None:
        hint = "a number, or your own words" if action.options else "your answer"
        while (typed := await self._ask(f"{hint}: ")) == "":
            pass
        return None if typed is None else chat.answer(action, resolve_option(action, typed))

    async def _rewrite_command(self, chat: Chat, action: OpenAction) -> str | None:
        """Another command than this one. One of several lines is written anew: it cannot be shown on one."""
        line = str((await chat.arguments(action)).get("command", ""))
        if line != make_inert_line(line) or "\n" in line:
            return await self._ask("run instead: ")
        self._show_prompt("run instead: ")
        command = await self._keys.edit_line(line)
        print_note("")
        return command

    async def _ask(self, prompt: str) -> str | None:
        self._show_prompt(prompt)
        return await self._keys.read_line()

    def _show_prompt(self, prompt: str) -> None:
        """Keys that were pressed before the prompt are discarded."""
        self._keys.forget()
        self._terminal.ask(f"   {prompt}")


async def _find_action_below(chat: Chat, skipped_chats: Container[str]) -> tuple[Chat, OpenAction] | None:
    """Return an action of a sub-agent, at any depth, that a person can answer."""
    for call in (await chat.state()).calls:
        for child in decode_children(call.plan) if call.phase == "started" else ():
            with suppress(NotFound):  # not begun yet
                below = chat.get_chat(child.chat)
                actions = [action for action in await below.actions() if action.of_person]
                if actions and child.chat not in skipped_chats:
                    return below, actions[0]
                if (open_request := await _find_action_below(below, skipped_chats)) is not None:
                    return open_request
    return None


async def _wait_until_closed(chat: Chat, action: OpenAction) -> None:
    """Wait until the action is no longer open: it was answered elsewhere, or the run was stopped."""
    while action in list_open_actions(state := await read_patiently(chat.state)):
        await read_patiently(partial(chat.wait, state.head, _WATCH_S))


def _format_choices(action: OpenAction) -> str:
    words = {
        "[y]es, once": True,
        "[n]o": True,
        "[e]dit": action.name == "run_command",
        "[o]nce by a rule": any(offer.rule.tool == NETWORK_TOOL for offer in action.offers),
        "always in this [c]hat, this [p]roject, for this [u]ser": bool(action.offers),
    }
    return " · ".join(word for word, is_shown in words.items() if is_shown) + ": "


async def edit_command(chat: Chat, action: OpenAction, text: str) -> dict[str, object]:
    arguments = await chat.arguments(action)
    if "command" not in arguments:
        raise InvalidInput(f"{action.name} has no command to edit; refuse it with --deny --feedback instead")
    return {**arguments, "command": text}


def choose_rule(action: OpenAction, scope: RuleScope, number: int, *, deny: bool) -> Rule:
    if not action.offers:
        raise InvalidInput(
            "no rule is offered for this: it is too dangerous to be allowed beforehand, or more than one command would "
            "have to be covered. Answer it once, without --remember; see also: treadle rules add"
        )
    if not 1 <= number <= len(action.offers):
        raise InvalidInput(f"there is no rule {number}; choose one of 1 to {len(action.offers)}")
    return action.offers[number - 1].rule_for(scope, "deny" if deny else "allow")


async def answer_next(terminal: Terminal, chat: Chat, *, asks: bool) -> CommandStream | None:
    """Put the next question of a chat to the person; None if there is no question, or no person."""
    actions = await chat.actions()
    if not actions:
        return None
    if asks and is_person_there():
        with Keyboard() as keys:
            return await Dialogue(terminal, keys).ask_about(chat, actions[0])
    terminal.write_note(f"waits for an approval: {suggest_answer(chat.id, actions[0])}", "yellow")
    return None


async def confirm_action(terminal: Terminal, question: str, *, asks: bool) -> bool:
    """True if the action may be carried out: no question is to be asked, no person is there, or the person says yes."""
    if not asks or not is_person_there() or await ask_yes_or_no(question):
        return True
    terminal.write_note("nothing was changed", "dim")
    return False


async def ask_yes_or_no(question: str) -> bool:
    """Ask the person. True if they answer yes, by one key."""
    with Keyboard() as keys:
        keys.forget()
        Terminal().ask(question)
        yes = (await keys.read_key()).lower() == "y"
        print_note("yes" if yes else "no")
    return yes
