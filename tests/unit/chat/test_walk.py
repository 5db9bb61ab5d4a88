"""Long random walks through the rules: deeper than the stateful test goes, and repeatable by their seed. The same
walks give the logs from which records are then lost or shuffled: `fold` must live with any of them (D-06)."""

import random

import pytest

from tests.faults.chance import SEED, SOAK
from tests.unit.chat.player import CHAT, LIMITS, Player, valid_history
from treadle.chat import snapshot
from treadle.chat.decide import decide
from treadle.chat.fold import fold, fold_all
from treadle.chat.state import ChatState, build_summary, compute_status, list_open_actions
from treadle.chat.transcript import build_entries
from treadle.protocol import commands as c
from treadle.protocol import events as e
from treadle.protocol.content import UserEntry
from treadle.protocol.options import Budget, ChatOptions

MOVES = 120


def walk(seed: int) -> Player:
    """A chat that lives through anything; the seed decides each next event."""
    chance = random.Random(seed)
    player = Player(
        ChatOptions(
            mode=chance.choice(["auto-edit", "autopilot"]),
            interactive=chance.random() < 0.5,
            max_turns=chance.choice([2, 5, 20]),
            on_limit=chance.choice(["", "ask", "answer", "error"]),
            on_guard=chance.choice(["", "ask", "stop"]),
            run_budget=Budget(turns=chance.choice([0, 0, 3]), tokens=chance.choice([0, 0, 500])),
            chat_budget=Budget(tokens=chance.choice([0, 0, 5_000]), tool_calls=chance.choice([0, 0, 30])),
            on_deadline=chance.choice(["continue", "error"]),
            checks=chance.choice([(), ("make test",), ("make test", "make lint")]),
        )
    )
    for number in range(MOVES):
        if chance.random() < 0.8:
            player.work(chance.choice)
        else:
            player.command(command(player.state, chance, number))
        if compute_status(player.state) == "requires_action" and chance.random() < 0.6:
            player.command(answer(player.state, chance))
        if compute_status(player.state) in ("idle", "error") and chance.random() < 0.2:
            player.command(back(player.state, chance, number))
        if compute_status(player.state) in ("idle", "error") and chance.random() < 0.7:
            player.command(c.Send(chance.choice([f"go on {number}", "Fix it.", "Why?"]), queue_id=f"s{number}"))
        player.time_ms += chance.choice([1, 1_000, 200_000])
        if chance.random() < 0.05:
            player.crash()
    player.check_fold(chance.randrange(len(player.log) + 1))
    return player


def command(state: ChatState, chance: random.Random, number: int) -> c.Command:
    message_seqs = [entry.seq for entry in state.history if isinstance(entry, UserEntry)] or [1]
    queued = [item.id for item in state.queue] or ["none"]
    return chance.choice(
        [
            c.Send(f"more {number}", "queued", queue_id=f"q{number}"),
            c.Send(f"more {number}", "steering", queue_id=f"q{number}"),
            c.Interrupt(),
            c.Edit(chance.choice(message_seqs), "better"),
            c.Edit(chance.choice(message_seqs), "better", True, f"u{number}"),
            back(state, chance, number),
            c.Promote(chance.choice(queued)),
            c.DeleteQueued(chance.choice(queued)),
            c.EditQueued(chance.choice(queued), "changed"),
            c.ExtendTurns(3),
            c.Compact(),
            c.Apply("a.txt", "text"),
            c.Expire(10**15),
            c.CloseJob(chance.choice([job.job for job in state.jobs] or ["none"]), "exited"),
            c.ChangeOptions({"max_turns": chance.choice([2, 30]), "model": chance.choice(["a:b", "c:d"])}),
        ]
    )


def back(state: ChatState, chance: random.Random, number: int) -> c.Command:
    message_seqs = [entry.seq for entry in state.history if isinstance(entry, UserEntry)] or [1]
    return chance.choice(
        [
            c.Rewind(chance.choice(message_seqs), chance.random() < 0.5, chance.random() < 0.5, f"u{number}"),
            c.Restore(f"u{number}", chance.choice(["undo", "redo", "keep"]), of="u0"),
            c.Apply("a.txt", f"text {number}"),
        ]
    )


def answer(state: ChatState, chance: random.Random) -> c.Command:
    actions = list_open_actions(state)
    action = chance.choice(actions)
    match action.kind:
        case "permission":
            return c.Decide(action.action, chance.choice(["allow", "deny"]), action.hash)
        case "external_tool":
            ids = [each.tool_call_id for each in actions if each.kind == "external_tool"]
            return c.SubmitResults(tuple(c.Result(each, [1, 2]) for each in ids))
        case "user_input":
            return c.Answer(action.action, chance.choice(action.options or ("yes",)))


def test_another_life_by_seed() -> None:
    print(f"TEST_SEED={SEED}")
    walk(10_000 + SEED)


def readable(state: ChatState) -> None:
    """All rules can be asked about the state, and none of them gives an answer that no provider would take."""
    decide(state, lambda: LIMITS)
    build_summary(state)
    valid_history(build_entries(state))
    assert snapshot.decode(snapshot.encode(state)) == state


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("seed", range(40 if SOAK else 20))
def test_a_long_life_keeps_the_rules_and_lost_and_shuffled_records_are_not_fatal(seed: int) -> None:
    chance = random.Random(seed)
    log = walk(seed).log
    for loss in (0.05, 0.5):
        state = ChatState(chat=CHAT)
        for envelope in log:
            if chance.random() < loss:
                envelope = e.Envelope(envelope.seq, CHAT, envelope.time_ms, e.RecordLost(envelope.type, "damaged"))
            state = fold(state, envelope)
        readable(state)
    shuffled = [e.Envelope(seq, CHAT, x.time_ms, x.data) for seq, x in enumerate(chance.sample(log, len(log)), 1)]
    readable(fold_all(ChatState(chat=CHAT), shuffled))


@pytest.mark.thorough(one_of=8)
def test_the_walks_visit_every_recorded_event() -> None:
    """A walk that never asks, never fails or never compacts would prove nothing about it."""
    event_types = {envelope.type for seed in range(25) for envelope in walk(seed).log}
    unreachable = {"plan.updated", "model.notice", "sandbox.notice", "session.record_lost", "session.imported"}
    unreachable |= {
        "job.started",
        "job.ended",
        "job.settled",
        "subagent.completed",
        "workspace.files_changed",
        "workspace.conflict",
        "checkpoint.created",
        "git.branch_created",
    }
    assert set(e.RECORDED) - event_types <= unreachable | {"session.title_changed"}
