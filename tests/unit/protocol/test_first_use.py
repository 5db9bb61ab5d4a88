"""Threads may read the first records of a kind, and check the first commands, at once: msgspec crashes if it has to
learn a type then."""

import subprocess
import sys

THREADS = """
import sys, threading
from treadle.protocol import commands, wire
sys.setswitchinterval(1e-6)
start = threading.Barrier(8)
body = b'{"options": {"budget": {"usd": 1}}, "files": [{"path": "a", "after": {}}], "actions": [{"id": "1"}]}'

def read_all():
    start.wait()
    for command in (commands.Compact(), commands.Send("go"), commands.ChangeOptions({"model": "a"})):
        wire.encode_value(command)
    for kind in sorted(wire._KINDS):
        try:
            wire.decode_event(kind, wire._KINDS[kind].VERSION, body)
        except wire.Damaged:
            pass

threads = [threading.Thread(target=read_all) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_threads_read_the_first_records_at_once() -> None:
    for _ in range(8):
        assert subprocess.run([sys.executable, "-c", THREADS], timeout=60).returncode == 0
