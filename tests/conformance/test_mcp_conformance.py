"""The client scenarios of the MCP conformance suite, with Treadle as the client (E-01). `make conformance` installs the
suite; without it the scenarios are skipped."""

import os
import re
import subprocess

import pytest

from scripts.mcp_servers import node, place
from tests.forked import AT_START, OURS, fork_command

pytestmark = pytest.mark.thorough(one_of=12)

SUITE = place() / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
PROGRAM = "tests.conformance.mcp_client_program"
PASSES = [
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
]
CANNOT_PASS = {
    "auth/2025-03-26-oauth-metadata-backcompat": "its metadata names an issuer that is not the server's address, which "
    "RFC 8414 section 3.3 forbids and the SDK refuses",
    "auth/client-credentials-jwt": "an extension for programs without a user; Treadle signs in a person",
    "auth/client-credentials-basic": "an extension for programs without a user; Treadle signs in a person",
    "auth/cross-app-access-complete-flow": "an extension for companies' identity providers, which Treadle does not ask",
}


@pytest.fixture(autouse=True)
def _need_suite() -> None:
    if not SUITE.exists() or not node():
        pytest.skip("the conformance suite is not here; make conformance installs it")


def run_suite(*arguments: str) -> subprocess.CompletedProcess[str]:
    base_env = {name: value for name, value in os.environ.items() if not name.startswith(AT_START)}
    env = {**base_env, **OURS, "NO_COLOR": "1"}
    command = [node(), str(SUITE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, check=False, env=env)


@pytest.mark.parametrize("scenario", PASSES)
@pytest.mark.timeout(180)
def test_a_client_scenario_passes(scenario: str) -> None:
    with fork_command(PROGRAM) as command:
        ran = run_suite("client", "--command", command, "--scenario", scenario, "--timeout", "120000")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_client_scenario_is_named_here() -> None:
    listed = run_suite("list", "--client").stdout.partition("Client scenarios")[2]
    names = re.findall(r"^ +- (\S+)", listed, re.MULTILINE)
    assert sorted(names) == sorted([*PASSES, *CANNOT_PASS])
