"""Every event of Treadle is one that the generated types of the published Copilot SDK know and can read (E-08)."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.conformance.test_copilot_sdk import PYTHON_SDK, with_python
from tests.golden.samples import SAMPLES
from treadle.base.types import ChatId
from treadle.frontends.copilot_words.events import Telling
from treadle.protocol.events import Envelope

pytestmark = pytest.mark.thorough(one_of=12)

READ = """
import json, sys
from copilot.generated.session_events import session_event_from_dict
for event in json.load(sys.stdin):
    read = session_event_from_dict(event)
    print(event["type"], read.type.value, type(read.data).__name__)
"""


def translate_samples() -> list[dict[str, Any]]:
    telling = Telling("c_1", str)
    envelopes = [Envelope(seq, ChatId("c_1"), 1_700_000_000_000, data) for seq, data in enumerate(SAMPLES.values(), 1)]
    return [event for envelope in envelopes for event in telling.tell(envelope)]


@with_python
def test_no_event_is_unknown_to_the_sdk() -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PYTHON_SDK), "LANG": "C.UTF-8"}
    events = json.dumps(translate_samples())
    ran = subprocess.run(
        [sys.executable, "-c", READ], input=events, env=env, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    lines = [line.split() for line in ran.stdout.splitlines()]
    assert len(lines) == len(translate_samples())
    assert [line for line in lines if line[0] != line[1] or line[2].startswith("Raw")] == []
