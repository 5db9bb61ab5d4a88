"""Telling the user, once for each provider, who gets to see the project (S-10): a question where somebody can answer,
else a line on standard error. It is also in the log of the chat."""

import os
import sys

from treadle.cli.dialogue import read_line
from treadle.cli.inert import inert_line
from treadle.errors import ConfigError
from treadle.models.recipients import recipient
from treadle.policy.consent import disclosure
from treadle.runtime import Agent


async def tell_recipient(agent: Agent, model: str, *, asks: bool) -> bool:
    """Whether the run may begin. What was told or agreed to is remembered."""
    whom = recipient(model, os.environ)
    if not whom or agent.consent.given(whom, model.partition(":")[0]):
        return True
    told = inert_line(disclosure(whom))
    if not asks:
        print(f"treadle: {told} (told once; see the setting `consent`)", file=sys.stderr)
    elif not await _agreed(told):
        print("treadle: nothing was sent", file=sys.stderr)
        return False
    try:
        agent.consent.give(whom)
    except ConfigError as error:  # then it is told again the next time
        print(f"treadle: {inert_line(str(error))}", file=sys.stderr)
    return True


async def _agreed(told: str) -> bool:
    sys.stderr.write(f"{told[0].upper()}{told[1:]}.\nGo on? [y]es, and do not ask again · [n]o: ")
    sys.stderr.flush()
    return (await read_line() or "")[:1].lower() == "y"
