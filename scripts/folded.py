"""What the golden logs fold to, as hashes beside the version of the rules. A rule of `fold` that changes must have a
new version (`treadle.chat.snapshot.RULES`): states that the old one made are kept as snapshots.

    python -m scripts.folded    # write it, after RULES was raised or an event was added
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.golden.samples import SAMPLES
from treadle.base.types import ChatId
from treadle.chat.fold import fold
from treadle.chat.snapshot import RULES
from treadle.chat.state import ChatState
from treadle.protocol import wire
from treadle.protocol.events import RECORDED, Envelope

LOGS = Path(__file__).parents[1] / "tests" / "golden" / "logs"
FOLDED = LOGS.with_name("folded.json")
_encoder = msgspec.json.Encoder(enc_hook=list)


def envelopes(file: Path) -> Iterator[Envelope]:
    for line in file.read_bytes().splitlines():
        yield wire.from_json(line)


def hash_states(file: Path) -> str:
    """One hash of all states that a log goes through."""
    hashed = hashlib.sha256()
    state = ChatState()
    for envelope in envelopes(file):
        state = fold(state, envelope)
        hashed.update(_encoder.encode(state))
    return hashed.hexdigest()


def now() -> dict[str, str]:
    return {file.stem: hash_states(file) for file in sorted(LOGS.glob("*.jsonl"))}


def complete() -> None:
    """A log for every type that is in none yet: said in a conversation that has begun."""
    seen = {envelope.type for file in LOGS.glob("*.jsonl") for envelope in envelopes(file)}
    for name in sorted(set(RECORDED) - seen):
        told = [SAMPLES[kind] for kind in ("session.created", "user.message", "assistant.turn_start", name)]
        log = [Envelope(seq, ChatId("c_samples"), seq, event, 1) for seq, event in enumerate(told, 1)]
        (LOGS / f"{name}.jsonl").write_bytes(b"".join(wire.to_json(envelope) + b"\n" for envelope in log))


def main() -> int:
    complete()
    text = FOLDED.read_text(encoding="utf-8") if FOLDED.exists() else '{"rules": 0, "logs": {}}'
    kept = json.loads(text)
    found = now()
    if kept["rules"] == RULES and any(kept["logs"].get(name, hashed) != hashed for name, hashed in found.items()):
        print(f"the rules changed and are still version {RULES}: raise RULES in treadle/chat/snapshot.py first")
        return 1
    FOLDED.write_text(json.dumps({"rules": RULES, "logs": found}, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
