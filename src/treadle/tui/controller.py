"""What people do, carried out: messages, answers to what is asked, completion. What the composer's text is for is a
purpose: a message, unless something else was asked for."""

import asyncio
from collections.abc import Awaitable, Callable

from treadle.did_you_mean import did_you_mean
from treadle.errors import InvalidInput, TreadleError
from treadle.inert import inert_line
from treadle.presentation.notices import chosen_option
from treadle.tui.app import TreadleApp
from treadle.tui.blocks import Calls, Note
from treadle.tui.card import Choice
from treadle.tui.command_context import CommandContext, Purpose
from treadle.tui.commands import COMMANDS, carry_out
from treadle.tui.composer import Composer, Draft
from treadle.tui.connection import Asked, ChatLink
from treadle.tui.conversation import Conversation
from treadle.tui.model_dialog import first_run
from treadle.tui.offers import Offers
from treadle.workspace.file_names import file_names

_STALE = ("no_such_action", "hash_mismatch", "not_awaiting_action")


class Controller(CommandContext):
    def __init__(self, app: TreadleApp) -> None:
        super().__init__(app)
        self._mine: set[tuple[str, str]] = set()
        """Actions that were answered here."""
        self._settling: set[tuple[str, str]] = set()
        """Actions that are being answered because the command was typed here."""
        self._typed = ("", "")
        """The chat and the command that was typed here last. Typing it answers the first question about that one call,
        unless the command is critical (S-05)."""
        self.offers = Offers(app, self._take_key)

    async def begin(self) -> None:
        start = self.app.start
        if start.chat:
            await self.open(await self.connection.open(start.chat))
        elif start.picks:
            await self.command("chats", "")
        elif not start.model:
            await self._choose_model()
        if start.prompt:
            await self.say(start.prompt, ())
        await self._read_own()
        await self._read_files()

    async def _choose_model(self) -> None:
        """The model of the first chat, found or asked for (U-10)."""
        choice = await self.connection.default_model()
        if choice is None:
            await first_run(self)
        elif choice.reason:
            self.chosen["model"] = choice.model
            self.app.showing.draw_facts()
            self.app.tell(f"using {inert_line(choice.model)} ({choice.reason}); /model changes it", grave=False)

    @property
    def cut_off(self) -> bool:
        """Whether the chat's run is driven by nobody, and nothing has come since that was seen."""
        return self._cut_at >= max(1, self.app.conversation.seq)

    # -- the composer -------------------------------------------------------------------------------------------------

    def purpose_words(self) -> str:
        return "" if self._purpose is None else self._purpose.words

    def put_down(self) -> bool:
        """Esc: leave what the composer was used for, or what is offered; False if there is nothing to leave."""
        if self.offers.put_down():
            return True
        if self._purpose is None:
            return False
        self._purpose = None
        self._restore_draft()
        self.app.showing.draw_facts()
        self.app.card.take_keys_again()
        return True

    async def submitted(self, message: Composer.Submitted) -> None:
        purpose, text = self._purpose, message.text
        if purpose is not None:
            self._purpose = None
            try:
                await self._for_purpose(purpose, text)
            except TreadleError:
                self.app.card.take_keys_again()
                raise
            finally:
                self._restore_draft()
                self.app.showing.draw_facts()
            return
        asked = self.app.card.asked
        if asked is not None and asked.action.kind == "user_input" and not text.startswith("/"):
            await self._answer(asked, lambda link: link.answer(asked.action, chosen_option(asked.action, text)))
        elif text.startswith("/") and not text.startswith("//"):
            name, _, rest = text[1:].partition(" ")
            await self.command(name, rest.strip())
        elif text.startswith("!"):
            await self.shell(text[1:].strip())
        else:
            await self.say(text, message.images, steers=message.steers, draft=message.draft)

    async def _for_purpose(self, purpose: Purpose, text: str) -> None:
        link, asked = self.link(), purpose.asked
        match purpose.kind:
            case "feedback" if asked is not None:
                await self._answer(asked, lambda link: link.deny(asked.action, text))
            case "edit" if asked is not None:
                arguments = {**purpose.arguments, "command": text}
                await self._answer(asked, lambda link: link.approve(asked.action, arguments=arguments))
            case "queued":
                await link.edit_queued(purpose.target, text)
            case "again":
                await link.back_to(int(purpose.target), conversation=True, files=False)
                await self.say(text, ())
            case "rename":
                chat = link if not purpose.target else await self.connection.open(purpose.target)
                await chat.change(title=text)
            case _:
                pass

    async def command(self, name: str, rest: str) -> None:
        if name in COMMANDS:
            await carry_out(self, name, rest)
            return
        await self._read_own()
        if (own := self.offers.own.get(name)) is None:
            near = did_you_mean(name, [*COMMANDS, *self.offers.own])
            raise InvalidInput(f"there is no command /{inert_line(name, 40)}{near}; see /help")
        await self.say(own.expand(rest), ())

    async def _read_own(self) -> None:
        """The user's own commands, as they are now."""
        self.offers.own = await self.connection.own_commands(self.root, self._chat)
        self.offers.renew()

    async def _read_files(self) -> None:
        self.offers.files = await asyncio.to_thread(file_names, self.root)

    async def _read_names(self) -> None:
        """What can stand behind an @. Servers may take their time."""
        await self._read_files()
        self.offers.renew()
        self.offers.resources = await self.connection.resources(self.root, self._chat)
        self.offers.renew()

    @property
    def _chat(self) -> str:
        return self.app.link.id if self.app.link is not None else ""

    async def shell(self, command: str) -> None:
        """A command of the person's own, like one of the model: on the same view, with its effect shown and undoable.
        The model sees it with the next message."""
        if not command:
            raise InvalidInput("write a command behind the !")
        if not await self._ensure_chat():
            self.app.composer.give_back(Draft(f"!{command}"))
            return
        if self.app.conversation.view.busy:
            await self._run_beside(command)
            return
        self._typed = (self.link().id, command)
        await self.link().run_command(command)
        self.app.transcript.go_to_end()

    async def _run_beside(self, command: str) -> None:
        """The chat works or waits: run the command in a chat of its own, and show here what it did. Typing it answers
        the question about it, unless the command is critical (S-05)."""
        options = self.app.conversation.view.options
        beside = await self.connection.create(model=options.model, root=options.root, mode=options.mode)
        shown, main = Conversation(), self.app.conversation
        place = -1
        await beside.run_command(command)
        async for batch in beside.news():
            for envelope in batch:
                shown.apply(envelope)
            for block in shown.blocks:
                if isinstance(block, Calls):
                    place = main.put_local(place, block)
            self.app.showing.draw()
            for action in shown.view.actions:
                if action.kind != "permission" or action.severity == "critical":
                    await beside.interrupt()
                    raise InvalidInput("this command needs an approval: run it when the chat is idle")
                await beside.approve(action)
            if shown.view.last_end:
                break
        note = f"ran beside this chat, which the model does not see; take it back: treadle undo {beside.id}"
        main.add_local(Note(text=note))
        self.app.showing.draw()

    async def resume(self) -> None:
        self._cut_at = -1
        if not await self.link().go_on():
            raise InvalidInput("nothing is left of this run to go on with")

    # -- what is asked ------------------------------------------------------------------------------------------------

    async def chose(self, choice: Choice) -> None:
        asked = choice.asked
        action = asked.action
        match choice.kind:
            case "once":
                await self._answer(asked, lambda link: link.approve(action))
            case "rule":
                await self._answer(asked, lambda link: link.approve(action, offer=choice.offer, scope=choice.scope))
            case "deny":
                await self._answer(asked, lambda link: link.deny(action))
            case "answer":
                await self._answer(asked, lambda link: link.answer(action, choice.text))
            case "feedback":
                self.ask_for(Purpose("feedback", "why not? Enter tells the model, Esc goes back", asked))
            case "edit":
                try:
                    arguments = await (await self._asking(asked)).arguments(action)
                except TreadleError:
                    self.app.card.take_keys_again()
                    raise
                words = "run this instead: Enter runs it, Esc goes back"
                self.ask_for(Purpose("edit", words, asked, arguments), str(arguments.get("command", "")))

    def settles(self, question: Asked) -> bool:
        """True if this asks about the command that was typed here, in the same chat; then typing it was the answer. A
        later call of the model is asked about even if its command is the same."""
        if question.key in self._settling:
            return True
        chat, command = self._typed
        action = question.action
        if action.kind != "permission" or action.severity == "critical":
            return False
        if question.chat != chat or action.call != self.app.conversation.applied_call:
            return False
        self._typed = ("", "")
        self._settling.add(question.key)
        self.app.run_worker(self.app.guarded(self._settle(question, command)))
        return True

    async def _settle(self, question: Asked, command: str) -> None:
        try:
            if (await self.link().arguments(question.action)).get("command") == command:
                await self._answer(question, lambda link: link.approve(question.action))
        finally:
            self._settling.discard(question.key)
            self.app.showing.draw()

    async def _asking(self, asked: Asked) -> ChatLink:
        return await self.connection.open(asked.chat) if asked.chat != self._chat else self.link()

    async def _answer(self, asked: Asked, give: Callable[[ChatLink], Awaitable[None]]) -> None:
        """An answer that comes too late is a notice, never an end."""
        self._mine.add(asked.key)
        try:
            await give(await self._asking(asked))
        except TreadleError as error:
            if getattr(error, "reason", "") not in _STALE and error.code not in _STALE:
                raise
            self.app.tell("this was answered elsewhere, or has changed", grave=False)
        if asked.below:
            await self.app.showing.look_below()

    def answered(self, asked: Asked) -> None:
        """A card went: by an answer from here, or from elsewhere."""
        if asked.key in self._mine:
            self._mine.discard(asked.key)
        elif self.app.conversation.view.busy and not self.app.conversation.view.stopping:
            self.app.tell("answered elsewhere", grave=False)
        if self._purpose is not None and self._purpose.asked is not None and self._purpose.asked.key == asked.key:
            self.put_down()
        self.take_up_draft()

    # -- keys that are offered to others first ------------------------------------------------------------------------

    def completing(self, message: Composer.Completing) -> None:
        if message.kind and not message.typed:  # what is there by now
            reading = self._read_own() if message.kind == "command" else self._read_names()
            self.app.run_worker(self.app.guarded(reading), group="reading", exclusive=True)
        self.offers.offer(message.kind, message.typed)

    def _take_key(self, key: str) -> bool:
        if key == "tab" and self.app.card.takes_focus and self._purpose is None:
            self.put_draft_aside()
            self.app.screen.set_focus(self.app.card)
            return True
        if key == "enter" and self.cut_off and not self.app.composer.text:
            self.app.run_worker(self.app.guarded(self.resume()))
            return True
        return False
