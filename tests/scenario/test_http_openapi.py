"""The OpenAPI document is true: schemathesis finds no server error and nothing undocumented (A-09)."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode, checks

from tests.faults.chance import SOAK
from tests.scenario.command_line import CommandLine, end
from treadle.frontends.server.openapi import describe
from treadle.frontends.server.running import ROUTES

pytestmark = pytest.mark.thorough(one_of=8)

SCRIPT = """
[[turn]]
text = "Hello."
"""
DOCUMENT: dict[str, Any] = json.loads(describe(ROUTES))
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
OPERATIONS = {
    (method, path): SCHEMA[path][method.upper()] for path, methods in DOCUMENT["paths"].items() for method in methods
}
JUDGES = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]


@pytest.fixture(scope="module")
def running_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A real server: its address and a token."""
    cli = CommandLine(tmp_path_factory.mktemp("openapi"))
    process = cli.start("serve", "--port", "0", "--model", cli.script(SCRIPT))
    assert process.stdout is not None
    line = process.stdout.readline()
    match = re.fullmatch(r"serving (http://127\.0\.0\.1:\d+)/#token=(trd_\S+)\n", line)
    assert match, process.communicate()
    yield match[1], match[2]
    process.terminate()
    assert end(process).code == 0


def test_the_document_is_the_one_that_is_served(running_server: tuple[str, str]) -> None:
    address, _ = running_server
    assert requests.get(f"{address}/api/openapi.json").json() == DOCUMENT
    page = requests.get(f"{address}/api/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "script" not in page.headers["content-security-policy"]
    assert not re.search(r"<script|https?://|//[a-z]", page.text)
    for path in DOCUMENT["paths"]:
        assert path in page.text


def _examples(operation: tuple[str, str]) -> int:
    """A route with only a path needs few examples; bodies of many fields take long to make."""
    if operation in (("post", "/api/chats"), ("patch", "/api/chats/{chat}")):
        return 40 if SOAK else 6
    described = DOCUMENT["paths"][operation[1]][operation[0]]
    queries = any(each["in"] == "query" for each in described["parameters"])
    if queries or "requestBody" in described:
        return 60 if SOAK else 8
    return 4


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda pair: f"{pair[0]} {pair[1]}")
def test_nothing_undocumented_happens(running_server: tuple[str, str], operation: tuple[str, str]) -> None:
    address, token = running_server
    session = requests.Session()
    session.headers["authorization"] = f"Bearer {token}"
    chat = session.post(f"{address}/api/chats", json={"content": "Hello."}).json()["id"]
    path_arguments = {"path_parameters": {"chat": chat}} if "{chat}" in operation[1] else {}
    cases = [OPERATIONS[operation].as_strategy(GenerationMode.POSITIVE)]
    cases += [OPERATIONS[operation].as_strategy(mode, **path_arguments) for mode in GenerationMode]

    @seed(5)
    @settings(
        max_examples=_examples(operation),
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=st.one_of(cases))
    def judge(case: Any) -> None:
        if operation[1].endswith(("/events", "/watch")):
            case.query = {**(case.query or {}), "follow": "false"}
        response = case.call(base_url=address, session=session, timeout=30)
        # A request that is too large gets 413, also if its data are wrong.
        judges = [each for each in JUDGES if response.status_code != 413 or each is not checks.negative_data_rejection]
        case.validate_response(response, checks=judges)

    judge()
