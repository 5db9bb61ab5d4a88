"""One representative of every event type, recorded and live: every field says something. The golden files are made
from these, and the reference shows them as examples."""

from treadle.base.types import CallKey, ChatId, make_call_key
from treadle.protocol import events as e
from treadle.protocol.content import Image, KnownFile, PlanStep, Shell, Thinking, ToolRequest, Usage
from treadle.protocol.files import FileChange, FileConflict, FileState, Uncaptured
from treadle.protocol.options import Budget, ChatOptions, Skill
from treadle.protocol.permissions import Offer, Rule
from treadle.protocol.tools import DynamicTool

KEY = make_call_key(3, 1)
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
IMAGE = Image("image/png", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")
USAGE = Usage(1_200, 80, 1_000, 16, 0.0031, True)

RULE = Rule(
    "allow",
    "run_command",
    "make test",
    "project",
    "/home/ada/engine",
    1_800_000_000_000,
    "r_1",
    1_700_000_000_000,
    "9f2c",
)
OFFER = Offer(RULE, "make test, in this project", "make with other targets", ("chat", "project"))

CHANGE = FileChange(
    "engine.py",
    "modified",
    1,
    1,
    FileState("file", 0o644, "1f2e", 120),
    FileState("file", 0o755, "3d4c", 121),
)
CONFLICT = FileConflict("engine.py", "somebody changed it", "--- engine.py\n+++ engine.py\n@@ -1 +1 @@\n-a\n+b")

OPTIONS = ChatOptions(
    model="openai:gpt-4.1",
    root="/home/ada/engine",
    root_id="v5b87b13815a4e16c.5308417",
    world="world_7y3h5kqa2wd9x8mc",
    mode="ask",
    system_prompt="You are careful.",
    interactive=True,
    max_turns=30,
    on_limit="error",
    on_guard="stop",
    run_budget=Budget(10, 100_000, 1.5, 600.0, 50),
    chat_budget=Budget(100, 1_000_000, 10.0, 86_400.0, 500),
    tools=("read_file", "task_complete"),
    dynamic_tools=(DynamicTool("weather", "Tells the weather.", {"type": "object", "properties": {}}),),
    action_deadline_s=60.0,
    on_deadline="error",
    completion="marker",
    max_continuations=2,
    continue_text="Go on.",
    summarize=False,
    temperature=0.5,
    max_tokens=2_048,
    context_window=128_000,
    reasoning_effort="high",
    compaction_effort="low",
    archived=True,
    labels=("spring", "urgent"),
    rung="text",
    auto_approve_commands=True,
    auto_approve_sensitive_edits=True,
    sensitive={"docs/**": True, "deploy/**": False},
    rules=(RULE,),
    sandbox="landlock",
    network=True,
    strict_paths=True,
    command_view=False,
    git_branch=True,
    checks=("make test",),
    verify=False,
    diagnose=False,
    instructions="Run make test before you are done.",
    skills=(Skill("release", "How releases are made.", ".claude/skills/release/SKILL.md", "5f" * 32),),
    subagents=3,
    subagent_depth=1,
    agent="reviewer",
    agent_prompt="You review code.",
    own_servers="review",
    output_schema={"type": "object", "properties": {"ok": {"type": "boolean"}}},
)

_ALL: tuple[e.Event, ...] = (
    e.SessionCreated(OPTIONS, "ada", "c_0123456789abcdef@12", "c_fedcba9876543210/3.1"),
    e.SessionImported("c_0123456789abcdef", "ada"),
    e.UserMessage("Why does the test fail?", "steering", "autopilot", (IMAGE,), "q_1", 7, TRACEPARENT),
    e.TurnStart(3, "openai:gpt-4.1", USAGE, True),
    e.AssistantMessage(
        3,
        "I look at the test.",
        (Thinking("The test comes first.", '{"signature":"c2ln"}', "openai:gpt-4.1"),),
        (
            ToolRequest(make_call_key(3, 0), "read_file", '{"path": "test_engine.py"}', "call_a"),
            ToolRequest(KEY, "run_command", '{"command": "make te', "call_b", True),
        ),
        True,
        USAGE,
        "tool_calls",
    ),
    e.TurnEnd(3, USAGE, "tool_calls"),
    e.TurnRetry(3, 2, "overloaded", "The provider is overloaded.", 4.2, USAGE),
    e.TaskComplete("The test passes; the off-by-one in step() is mended."),
    e.SessionError("auth", "The key was refused. Set OPENAI_API_KEY."),
    e.Interrupted("ada"),
    e.RunEnd("budget", "stopped at the budget: $0.52 of $0.50"),
    e.SessionRewound(7, "ada"),
    e.CompactionStart("threshold", 110_000),
    e.CompactionComplete(
        "context_limit", False, 110_000, 30_000, USAGE, "So far: …", 40, (2, 31), 44, "no summary", 100_000
    ),
    e.SubagentCompleted(
        KEY,
        ChatId("c_fedcba9876543210"),
        2,
        "the parser",
        "openai:gpt-4.1",
        "task_complete",
        USAGE,
        7,
        12,
        "world_fedcba9876543210",
        3,
        40,
        12,
        True,
        True,
    ),
    e.ModelCall("sampling", USAGE, "The test was mended.", "cut short", CallKey("3.0")),
    e.ExecutionStart(
        KEY,
        "edit_file",
        {"path": "engine.py", "old_str": "a", "new_str": "b"},
        "engine.py",
        {"pre": "1f"},
        True,
        "edit",
    ),
    e.TrialStart(KEY, "run_command", {"command": "make test"}, "make test", {"key": "3.1~5e88", "view": True}),
    e.ExecutionComplete(
        KEY,
        False,
        "1 line changed",
        "no such text",
        "engine.py +1 -1",
        e.DiffStat(1, 1),
        "bwrap",
        "deadline",
        "ab12",
        35,
        (KnownFile("engine.py", "c0ffee"),),
        Shell("src", {"CI": "1"}, ("DEBUG",)),
        "view",
        (Image("image/png", "ab12"),),
        ("pypi.org", "example.org:8443"),
    ),
    e.PermissionRequested(
        "3.1", KEY, "high", "it executes something", "run_command\n  command: make test", "5e88", (OFFER,), ("pypi",)
    ),
    e.PermissionCompleted("3.1", "allow", "ada", True, "go ahead", {"command": "make -n test"}, "interrupted", RULE),
    e.ExternalToolRequested(KEY, "weather", {"city": "London"}, "3.1", 300.0),
    e.ExternalToolCompleted(KEY, True, "browser", "deadline"),
    e.UserInputRequested("3.1", "Which branch?", ("main", "next"), "elicitation", KEY, {"state": "s1"}),
    e.UserInputCompleted("3.1", "main", "ada", "interrupted"),
    e.CheckpointCreated(7),
    e.FilesChanged(
        (
            CHANGE,
            FileChange("old.py", "deleted", 0, 12, FileState("link", target="engine.py"), None, True, tracked=True),
        ),
        KEY,
        "view",
        "ab12",
        1_200,
        (Uncaptured("node_modules", "a generated folder", 52_000_000),),
        "f00d",
    ),
    e.RestoreRequested("u_1", "redo", 7, 40, ("engine.py",), {"engine.py": (1, 3)}, True, True, "u_0", "ada"),
    e.Undone("u_1", (CHANGE,), "ab12", 1_200, (CONFLICT,), "the disk is full", "f00d"),
    e.Redone("u_1", (CHANGE,), "ab12", 1_200, (CONFLICT,), "the disk is full", "f00d"),
    e.ChangesKept("u_1", (CHANGE,), "ab12", 1_200, (CONFLICT,), "the disk is full", "f00d"),
    e.WorkspaceConflict((CONFLICT,), KEY),
    e.GitBranchCreated("treadle/c_0123456789abcdef-7", "1f2e3d", "main"),
    e.QueueChanged("added", "q_1", "And then the docs.", "steering", (IMAGE,), TRACEPARENT),
    e.OptionsChanged({"max_turns": 40, "labels": ["spring"]}, "ada"),
    e.TitleChanged("The failing test", "ada"),
    e.LimitWarning("usd", 1.21, 1.5, "chat"),
    e.LimitReached("turns", 20, 20, "chat"),
    e.LimitExtended(20, "ada"),
    e.PlanUpdated((PlanStep("read the test", "done"), PlanStep("mend it", "in_progress"))),
    e.ModelNotice("rung", "This model has no native tool calls; text calls are used."),
    e.JobStarted("3.1", "make serve", "0d1f:h_1", "ada-laptop"),
    e.JobEnded("3.1", "stopped", -15, "person", ("it writes .env, which is sensitive",), 2),
    e.JobSettled("3.1", "discarded", "person"),
    e.SandboxNotice("landlock", True, True, "Commands run in the sandbox landlock (bubblewrap: there is no bwrap)."),
    e.GuardNotice("nudge", 2, 3, "You have made the same 2 calls 3 times in a row."),
    e.CheckStarted(CallKey("check.2"), "make test", 2, ("engine.py",), {"folder": "9f"}),
    e.CheckCompleted(
        CallKey("check.2"), False, "1 failed\n[exit code 2]", "exit 2, 2 lines", "bubblewrap", "lost", "ab12", 900
    ),
    e.RecordLost("user.message", "the stored bytes are damaged"),
    e.SessionIdle("budget", "stopped at the budget: $0.52 of $0.50"),
    e.MessageDelta(3, "I look"),
    e.ReasoningDelta(3, "The test"),
    e.ToolCallDelta(3, 1, "run_command", '{"comm'),
    e.AssistantReset(3),
    e.ExecutionOutput(KEY, "1 passed\n"),
    e.UsageInfo(12_800, 128_000, 0.042),
    e.ActionRequired(
        (
            e.OpenAction(
                "3.1",
                "permission",
                KEY,
                "run_command",
                {"command": "make test"},
                "run_command\n  command: make test",
                ("allow", "deny"),
                "5e88",
                "3.1",
                "high",
                1_700_000_300_000,
                "it executes something",
                (OFFER,),
                ("pypi",),
            ),
        )
    ),
)
SAMPLES: dict[str, e.Event] = {event.TYPE: event for event in _ALL}
