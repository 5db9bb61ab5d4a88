"""Events as text for people: the answer as it comes, a line for every call, and what it all cost."""

import sys

from treadle.cli.inert import inert, inert_line
from treadle.protocol import events as e


class Screen:
    def event(self, envelope: e.Envelope) -> None:
        match envelope.data:
            case e.MessageDelta(text=text):
                sys.stdout.write(inert(text))
                sys.stdout.flush()
            case e.AssistantMessage():
                print()
            case e.ExecutionStart(name=name, args_summary=summary):
                print("●", name, inert_line(summary, 100))
            case e.ExecutionComplete(result_summary=summary):
                print("  …", inert_line(summary, 100))
