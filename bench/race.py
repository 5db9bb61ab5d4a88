"""`python -m bench.race [--quick]`: a race of four attempts at once beside the same four one after the other, in a
project of 2,000 files. The model is scripted and takes its time, as models do; the rest is Treadle's: worlds, chats,
the check in each world, the commit of the winner."""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from treadle import Agent
from treadle.adapters.models.scripted import Call, Delay, Part, Say, ScriptedModel

FILES = 2_000
ATTEMPTS = 4
THINKS_S = 0.5
"""How long the model takes for an answer; each attempt has two."""
CHECK = "grep -q 42 answer.txt"


def model() -> ScriptedModel:
    write: list[Part] = [Delay(THINKS_S), Call("write_file", path="answer.txt", content="42\n")]
    return ScriptedModel([write, [Delay(THINKS_S), Say("Done.")]])


async def race(folder: Path, attempts: int) -> float:
    """One race with this many attempts, from the order to the commit; in seconds."""
    async with Agent(folder / "treadle.db", model=model(), home=folder / "home") as agent:
        began = time.monotonic()
        running = agent.race("Write the answer", attempts=attempts, check=CHECK, all=True, root=folder / "project")
        result = await running
        took = time.monotonic() - began
        assert result.committed, result.text
        await agent.chat(result.chat).files.undo()
        return took


async def measure(rounds: int) -> tuple[float, float]:
    """Medians: four at once, and four races of one after the other."""
    at_once: list[float] = []
    in_turn: list[float] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for number in range(FILES):
            file = folder / "project" / f"d{number // 100}" / f"f{number % 100}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{number}\n" * 20)
        await race(folder, 1)  # what is found out once for a machine and a project
        for _ in range(rounds):
            at_once.append(await race(folder, ATTEMPTS))
            in_turn.append(sum([await race(folder, 1) for _ in range(ATTEMPTS)]))
    return statistics.median(at_once), statistics.median(in_turn)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round instead of five")
    at_once, in_turn = asyncio.run(measure(1 if parser.parse_args().quick else 5))
    models = 2 * THINKS_S
    print(f"| {ATTEMPTS} attempts, {FILES:,} files | seconds | beside the model's {models:g} s |\n|---|---|---|")
    print(f"| at once | {at_once:.2f} | +{at_once - models:.2f} |")
    print(f"| one after the other | {in_turn:.2f} | +{in_turn - ATTEMPTS * models:.2f} |")
    print(f"\nAt once takes {at_once / in_turn:.0%} of the time.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
