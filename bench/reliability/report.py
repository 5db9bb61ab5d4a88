"""The page about reliability: what was done, and what came of it."""

from bench.reliability.chats import ROUNDS
from bench.reliability.trial import Outcome, Trial

TEXT = """# Reliability

What becomes of chats when the processes that drive them die. Made by `python -m bench.reliability --write`, which
starts two servers and three workers as processes on one PostgreSQL, and clients of the
[Python client](guide/client.md) beside them. The workers have the homes of two machines. Each chat makes {turns} model
calls of about a second; between them {rounds} times a command that needs an approval and leaves a line in a file,
together with a tool of the client.

For {seconds:g} seconds workers were killed with `kill -9` and started again, or paused with SIGSTOP for up to 1.6 times
their lease and continued; in the middle PostgreSQL itself was crashed (SIGQUIT) and started again. Leases lasted
{lease_s:g} s.

| what was done | |
|---|---|
| chats at once | {chats} |
| workers killed | {killed} |
| workers paused | {paused} |
| PostgreSQL crashed | {restarted} |

| what came of it | |
|---|---|
| chats that ended | {ended} |
| problems that the checker found | {problems} |
| events recorded | {events} |
| commands run, each at most once | {commands} |
| of these with an unknown outcome, said so and not repeated | {unknown} |
| model calls that were made again by another worker | {again} |
| the slowest chat | {slowest:.0f} s |
| all of them | {took:.0f} s |

The checker looks at every chat: its seq is gapless; every call has exactly one result, in order; each line of its file
stands there at most once, and once for every command that is said to have succeeded; the state folded from the log is
the stored one; what its client saw live, at the server that the chat was not begun at, is the log; the history is valid
for every provider. And no process is left behind.

A command's outcome is unknown when its worker was killed and the chat went on on the other machine: nobody there can
tell, the model is told so, and nothing is run twice.
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
