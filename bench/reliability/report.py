"""The page about reliability: what was done, and what came of it."""

from bench.reliability.chats import ROUNDS
from bench.reliability.trial import Outcome, Trial

TEXT = """# Reliability

This page shows what happens to chats when the processes that drive them die. `python -m bench.reliability --write`
measures it and writes this page. The program starts two servers and three workers as processes on one PostgreSQL,
and clients that use the [Python client](guide/client.md). The workers have the homes of two machines. Each chat
makes {turns} model calls of about a second. Between them it calls {rounds} times a command that needs an approval
and appends a line to a file, together with a tool of the client.

For {seconds:g} seconds the program killed workers with `kill -9` and started them again, or paused them with
SIGSTOP for up to 1.6 times their lease and continued them. In the middle it crashed PostgreSQL itself (SIGQUIT) and
started it again. Leases lasted {lease_s:g} s.

| action | |
|---|---|
| chats at once | {chats} |
| workers killed | {killed} |
| workers paused | {paused} |
| PostgreSQL crashed | {restarted} |

| result | |
|---|---|
| chats that ended | {ended} |
| problems that the checker found | {problems} |
| events recorded | {events} |
| commands run, each at most once | {commands} |
| of these with an unknown outcome, reported and not repeated | {unknown} |
| model calls that another worker repeated | {again} |
| the slowest chat | {slowest:.0f} s |
| all of them | {took:.0f} s |

The checker tests every chat:

- Its seq has no gaps.
- Every call has exactly one result, in order.
- Its file has each line at most once, and one line for every command that is reported as successful.
- The state folded from the log is the stored state.
- The live events of its client equal the log. The client was connected to the server on which the chat did not begin.
- The history is valid for every provider.

It also tests that no process is left behind.

The outcome of a command is unknown if its worker was killed and the chat continued on the other machine, which
cannot see the command. The model is told so, and the command does not run twice.
"""


def page(trial: Trial, outcome: Outcome) -> str:
    found, done = outcome.found, outcome.done
    return TEXT.format(
        turns=ROUNDS + 1,
        rounds=ROUNDS,
        seconds=trial.seconds,
        lease_s=trial.lease_s,
        chats=found.chats,
        killed=done["killed"],
        paused=done["paused"],
        restarted=done["database restarted"],
        ended=", ".join(f"{count} {reason}" for reason, count in found.ended.items()),
        problems=len(found.problems),
        events=f"{found.events:,}",
        commands=found.commands,
        unknown=found.unknown,
        again=found.calls_made_again,
        slowest=found.slowest_s,
        took=outcome.took_s,
    )
