"""Carries out the actions of the person: messages, answers to questions, completion. The text in the composer has a
purpose: a message, unless something else was asked for."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from textual.widgets import OptionList

from treadle.adapters.workspace.file_names import choose_best_names, list_file_names
from treadle.base.inert import make_inert_line
from treadle.errors import InvalidInput, TreadleError, suggest_name
from treadle.frontends.presentation.conversation import Calls, Conversation, Note
from treadle.frontends.presentation.notices import is_late_answer, resolve_option
from treadle.frontends.presentation.rich_text import Text
from treadle.frontends.tui.app import TreadleApp
from treadle.frontends.tui.card import Choice
from treadle.frontends.tui.command_context import CommandContext, Purpose
from treadle.frontends.tui.commands import ACTS, COMMANDS
from treadle.frontends.tui.composer import Composer, Draft
from treadle.frontends.tui.connection import OpenQuestion
from treadle.frontends.tui.model_dialog import choose_first_model
from treadle.protocol.chat_api import ChatApi

if TYPE_CHECKING:
    from treadle.library.skills.reading import OwnCommand


class Controller(CommandContext):
    def __init__(self, app: TreadleApp) -> None:
        super().__init__(app)
        self._mine: set[tuple[str, str]] = set()  # actions that were answered here
        self._settled: set[tuple[str, str, str]] = set()
        """Chats and actions, with the hash of what they ask, that are answered because the command was typed here."""
        self._typed = ("", "")
        """The chat and the command that was typed here last. Typing it answers the first question about that one call,
        unless the command is critical (S-05)."""
        self.offers = Offers(app, self._take_key)

    async def begin(self) -> None:
        start = self.app.start
        if start.chat:
            await self.open(await self.connection.open(start.chat))
        elif start.picks:
            await self.run_slash_command("chats", "")
        elif not start.model:  # the model of the first chat is found or asked for (U-10)
            if (choice := await self.connection.find_default_model()) is None:
                await choose_first_model(self)
            elif choice.reason:
                self.next_chat_options["model"] = choice.model
                self.app.showing.draw_facts()
                words = f"using {make_inert_line(choice.model)} ({choice.reason}); /model changes it"
                self.app.tell(words, grave=False)
        if start.prompt:
            await self.say(start.prompt, ())
        await self._read_own()
        await self._read_files()

    @property
    def cut_off(self) -> bool:
        """True if no worker drives the chat's run, and no event has come since that was seen."""
        return self._cut_at >= max(1, self.app.conversation.seq)

    # -- the composer -------------------------------------------------------------------------------------------------

    def describe_purpose(self) -> str:
        return "" if self._purpose is None else self._purpose.words

    def put_down(self) -> bool:
        """Esc: leave what the composer was used for, or what is offered; False if there is nothing to leave."""
        if self.offers.put_down():
            return True
        if self._purpose is None:
            return False
        self._purpose = None
        self.app.composer.clear_all()
        self.take_up_draft()
        self.app.showing.draw_facts()
        self.app.card.take_keys_again()
        return True

    def submit_message(self, message: Composer.Submitted) -> None:
        """Send a text for the purpose that it has now: the next key may change that."""
        purpose, self._purpose = self._purpose, None
        self.app.run_guarded(self._send_text, message, purpose, group="sending")

    async def _send_text(self, message: Composer.Submitted, purpose: Purpose | None) -> None:
        text = message.text
        if purpose is not None:
            try:
                await self._submit_for_purpose(purpose, text)
            except TreadleError:
                if self._purpose is None and purpose.question in (None, self.app.card.asked):
                    self._purpose = purpose  # the text can be changed and sent again; Esc gives it up
                    self.app.composer.give_back(message.draft)
                raise
            finally:
                self.take_up_draft()
                self.app.showing.draw_facts()
            return
        question = self.app.card.asked
        if question is not None and question.action.kind == "user_input" and not text.startswith("/"):
            answer = resolve_option(question.action, text)
            answering = self._answer_question(question, lambda chat: chat.answer(question.action, answer))
            await self._give_back_on_error(answering, message.draft)
        elif text.startswith("/") and not text.startswith("//"):
            name, _, arguments = text[1:].partition(" ")
            await self.run_slash_command(name, arguments.strip())
        elif text.startswith("!"):
            await self._give_back_on_error(self.run_shell_command(text[1:].strip()), message.draft)
        else:
            await self.say(text, message.images, steers=message.steers, draft=message.draft)

    async def _give_back_on_error(self, work: Awaitable[object], draft: Draft) -> None:
        try:
            await work
        except TreadleError:
            self.app.composer.give_back(draft)
            raise

    async def _submit_for_purpose(self, purpose: Purpose, text: str) -> None:
        link, question = self.require_link(), purpose.question
        match purpose.kind:
            case "feedback" if question is not None:
                await self._answer_question(question, lambda chat: chat.deny(question.action, text))
            case "edit" if question is not None:
                arguments = {**purpose.arguments, "command": text}
                await self._answer_question(question, lambda chat: chat.approve(question.action, arguments=arguments))
            case "queued":
                await link.chat.edit_queued(purpose.target, text)
            case "again":
                await link.go_back_to(int(purpose.target), conversation=True, files=False)
                await self.say(text, ())
            case "rename":
                await (await self.connection.open(purpose.target) if purpose.target else link).change(title=text)

    async def run_slash_command(self, name: str, arguments: str) -> None:
        if name in COMMANDS:
            await ACTS[name](self, arguments)
            return
        await self._read_own()
        if (custom_command := self.offers.own.get(name)) is None:
            suggestion = suggest_name(name, [*COMMANDS, *self.offers.own])
            raise InvalidInput(f"there is no command /{make_inert_line(name, 40)}{suggestion}; see /help")
        await self.say(custom_command.expand(arguments), ())

    async def _read_own(self) -> None:
        self.offers.own = await self.connection.list_own_commands(self.root, self._chat)
        self.offers.renew()

    async def _read_files(self) -> None:
        self.offers.files = await asyncio.to_thread(list_file_names, self.root)

    async def _read_names(self) -> None:
        """Read the names that can follow an @. Servers may take their time."""
        await self._read_files()
        self.offers.renew()
        self.offers.resources = await self.connection.list_resource_names(self.root, self._chat)
        self.offers.renew()

    @property
    def _chat(self) -> str:
        return self.app.link.id if self.app.link is not None else ""

    async def run_shell_command(self, command: str) -> None:
        """A command of the person's own, like one of the model: on the same view, with its effect shown and undoable.
        The model sees it with the next message."""
        if not command:
            raise InvalidInput("write a command behind the !")
        async with self._sending:
            has_chat = await self._ensure_chat()
        if not has_chat:
            self.app.composer.give_back(Draft(f"!{command}"))
            return
        if self.app.conversation.view.busy:
            await self._run_beside(command)
            return
        self._typed = (self.require_link().id, command)
        self._settled.clear()  # none of them is open any more
        await self.require_link().chat.run_command(command)
        self.app.transcript.go_to_end()

    async def _run_beside(self, command: str) -> None:
        """The chat works or waits: run the command in a chat of its own, and show here what it did. Typing it answers
        the question about it, unless the command is critical (S-05)."""
        options = self.app.conversation.view.options
        side_chat = await self.connection.create(model=options.model, root=options.root, mode=options.mode)
        side_conversation, main = Conversation(), self.app.conversation
        place = -1
        await side_chat.chat.run_command(command)
        async for batch in side_chat.stream_events():
            for envelope in batch:
                side_conversation.apply(envelope)
            for block in side_conversation.blocks:
                if isinstance(block, Calls):
                    place = main.add_local(block, place)
            self.app.showing.draw()
            for action in side_conversation.view.actions:
                if action.kind != "permission" or action.severity == "critical":
                    await side_chat.chat.interrupt()
                    raise InvalidInput("this command needs an approval: run it when the chat is idle")
                await side_chat.chat.approve(action)
            if side_conversation.view.last_end:
                break
        note = f"ran beside this chat, which the model does not see; take it back: treadle undo {side_chat.id}"
        main.add_local(Note(text=note))
        self.app.showing.draw()

    async def resume(self) -> None:
        self._cut_at = -1
        if not await self.require_link().go_on():
            raise InvalidInput("nothing is left of this run to go on with")

    # -- questions ----------------------------------------------------------------------------------------------------

    async def handle_choice(self, choice: Choice) -> None:
        question, action = choice.question, choice.question.action
        match choice.kind:
            case "once":
                await self._answer_question(question, lambda chat: chat.approve(action))
            case "rule":
                await self._answer_question(
                    question, lambda chat: chat.approve(action, offer=choice.offer, scope=choice.scope)
                )
            case "deny":
                await self._answer_question(question, lambda chat: chat.deny(action))
            case "answer":
                await self._answer_question(question, lambda chat: chat.answer(action, choice.text))
            case "feedback":
                self.ask_for(Purpose("feedback", "why not? Enter tells the model, Esc goes back", question))
            case "edit":
                try:
                    arguments = await (await self._open_asking_chat(question)).arguments(action)
                except TreadleError:
                    self.app.card.take_keys_again()
                    raise
                words = "run this instead: Enter runs it, Esc goes back"
                self.ask_for(Purpose("edit", words, question, arguments), str(arguments.get("command", "")))

    def settle_if_typed(self, question: OpenQuestion) -> bool:
        """True if this asks about the command that was typed here, in the same chat; then typing it was the answer. A
        later call of the model is asked about even if its command is the same."""
        action, key = question.action, (*question.key, question.action.hash)
        if key in self._settled:
            return True
        chat, command = self._typed
        if action.kind != "permission" or action.severity == "critical":
            return False
        if question.chat != chat or action.call != self.app.conversation.applied_call:
            return False
        self._typed = ("", "")
        self._settled.add(key)
        self.app.run_guarded(self._settle, question, command)
        return True

    async def _settle(self, question: OpenQuestion, command: str) -> None:
        """Approve the call if its command is the one that was typed; else the person is asked. An approved question
        stays settled: the screen learns of the answer later than the log, and must not ask until then."""
        action, is_answered = question.action, False
        try:
            if (await self.require_link().chat.arguments(action)).get("command") == command:
                await self._answer_question(question, lambda chat: chat.approve(action))
                is_answered = True
        finally:
            if not is_answered:
                self._settled.discard((*question.key, action.hash))
                self.app.showing.draw()

    async def _open_asking_chat(self, question: OpenQuestion) -> ChatApi:
        return (await self.connection.open(question.chat) if question.chat != self._chat else self.require_link()).chat

    async def _answer_question(self, question: OpenQuestion, give: Callable[[ChatApi], Awaitable[object]]) -> None:
        """An answer that comes too late is a notice, never an end."""
        self._mine.add(question.key)
        try:
            await give(await self._open_asking_chat(question))
        except TreadleError as error:
            if not is_late_answer(error):
                raise
            self.app.tell("this was answered elsewhere, or has changed", grave=False)
        if question.below:
            await self.app.showing.look_below()

    def handle_card_closed(self, question: OpenQuestion) -> None:
        """A card went: by an answer from here, or from elsewhere."""
        if question.key in self._mine:
            self._mine.discard(question.key)
        elif self.app.conversation.view.busy and not self.app.conversation.view.stopping:
            self.app.tell("answered elsewhere", grave=False)
        asked = self._purpose.question if self._purpose is not None else None
        if asked is not None and asked.key == question.key:
            self.offers.put_down()  # else `put_down` would close only an open list
            self.put_down()
        self.take_up_draft()

    # -- keys that are offered to others first ------------------------------------------------------------------------

    def offer_completions(self, message: Composer.Completing) -> None:
        if message.kind and not message.typed:  # read the current names
            read = self._read_own if message.kind == "command" else self._read_names
            self.app.run_guarded(read, group="reading", exclusive=True)
        self.offers.offer(message.kind, message.typed)

    def _take_key(self, key: str) -> bool:
        if key == "tab" and self.app.card.takes_focus and self._purpose is None:
            self.put_draft_aside()
            self.app.screen.set_focus(self.app.card)
            return True
        if key == "enter" and self.cut_off and not self.app.composer.text:
            self.app.run_guarded(self.resume)
            return True
        return False


MOST = 8


class Offers:
    """`otherwise` is given the keys that nothing here needs; True: it took one."""

    def __init__(self, app: TreadleApp, otherwise: Callable[[str], bool]) -> None:
        self._app = app
        self._otherwise = otherwise
        self._kind = ""
        self._names: Sequence[str] = ()
        self._typed = ("", "")
        self.files: Sequence[str] = ()  # the names of the project's files, once they are known
        self.resources: Sequence[str] = ()  # those of MCP servers, as `server:uri`
        self.own: Mapping[str, OwnCommand] = {}
        app.composer.completes = self._take_key

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
                # Short names of files would hide them all.
                few = [] if typed else choose_best_names(self.resources, "", MOST // 2)
                names = choose_best_names(self.files if few else (*self.files, *self.resources), typed, MOST - len(few))
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
            line: str = make_inert_line(name)
            if kind == "command":
                own = self.own.get(name)
                words = make_inert_line(f"{own.hint} {own.description}".strip(), 200) if own is not None else ""
                line = f"/{name:{width}}  {COMMANDS.get(name) or words}"
            option_list.add_option(Text(line, no_wrap=True))
        if names:
            option_list.highlighted = 0

    def _take_key(self, key: str) -> bool:
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
