"""What is measured: each figure's meaning, unit and target. Knows nothing of how it is measured."""

import msgspec


def show(value: float) -> str:
    """Three digits that count, as far as there are decimals."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:,.{digits}f}"


class Figure(msgspec.Struct, frozen=True):
    """One number a contestant may have; where there is a target, lower is better."""

    key: str
    title: str
    unit: str
    """Empty for a ratio."""
    target: float | None = None
    """What Treadle is meant to reach, on any machine of the present day."""

    @property
    def label(self) -> str:
        return f"{self.title}, {self.unit}" if self.unit else self.title

    def show(self, value: float) -> str:
        return show(value)


FIGURES = (
    Figure("chunk_us", "CPU per streamed chunk, many in a read", "µs", 12),
    Figure("paced_us", "CPU per streamed chunk, each alone, many chats at once", "µs", 60),
    Figure("paced_reads", "network reads per chunk in that scenario", ""),
    Figure("turn_ms", "CPU per turn, without its chunks", "ms", 1),
    Figure("turn_ratio", "CPU of turn 200 / turn 5", "", 1.3),
    Figure("round_ms", "CPU per round with one tool call", "ms"),
    Figure("durable_ms", "of which for durability", "ms"),
    Figure("round_commits", "durable steps of a round", ""),
    Figure("step_ms", "added CPU per durable step", "ms", 0.4),
    Figure("log_ratio", "log after 500 rounds / JSON of its messages", "", 1.5),
    Figure("resume_ms", "CPU to resume 500 rounds, up to the first word", "ms", 25),
    Figure("resume_wall_ms", "the same, wall-clock time", "ms"),
    Figure("chat_kb", "memory per concurrent chat", "KB", 40),
    Figure("import_s", "import of the library, wall-clock time", "s", 0.2),
    Figure("first_s", "a program from exec to exit, with one short answer", "s"),
    Figure("version_s", "`treadle --version`", "s", 0.06),
    Figure("help_s", "`treadle --help`", "s", 0.06),
    Figure("run_s", "headless run without a tool", "s", 0.33),
    Figure("run10_s", "headless run with 10 tool rounds", "s", 0.8),
    Figure("run_mb", "memory of a headless run", "MB", 70),
)
BY_KEY = {figure.key: figure for figure in FIGURES}
SUMMARY = {
    "chunk_us": "stream",
    "paced_us": "paced",
    "turn_ms": "stream",
    "step_ms": "rounds",
    "resume_ms": "resume",
    "chat_kb": "memory",
    "import_s": "start",
    "run_s": "headless",
    "run10_s": "headless",
}
"""The figures in the summary of the page, with the scenario that measures each."""
CHARTED = ("chunk_us", "paced_us", "turn_ms", "round_ms", "resume_ms", "chat_kb")
