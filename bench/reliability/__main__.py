"""`python -m bench.reliability`: two servers and three workers on one PostgreSQL, chats with client tools and
approvals, workers killed and paused at random, the database restarted in the middle. Writes docs/reliability.md."""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from bench.reliability.report import page
from bench.reliability.trial import Trial, run
from tests.homes import seed
from tests.postgres import run_embedded_server

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.reliability", description=__doc__)
    parser.add_argument("--chats", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long processes are killed and paused")
    parser.add_argument("--lease-s", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--write", action="store_true", help="write docs/reliability.md")
    wanted = parser.parse_args()
    print(f"seed {wanted.seed}")
    trial = Trial(wanted.chats, wanted.seconds, wanted.lease_s, wanted.seed)
    with run_embedded_server() as database:

        def restart() -> None:
            database.stop(signal.SIGQUIT)
            database.start()

        folder = Path(tempfile.mkdtemp(prefix="treadle-reliability-"))
        try:
            outcome = run(folder, database.url(), seed, trial, restart)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    text = page(trial, outcome)
    print(text)
    print("\n".join(outcome.found.problems[:20]))
    if wanted.write and not outcome.found.problems:
        PAGE.write_text(text)
    return 1 if outcome.found.problems else 0


if __name__ == "__main__":
    sys.exit(main())
