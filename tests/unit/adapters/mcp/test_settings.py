"""How servers are declared, named and described (E-01)."""

import json

import pytest

from treadle.adapters.mcp.listing import ListedTool, Listing
from treadle.adapters.mcp.tool import MAX_BYTES, shorten_result
from treadle.errors import ConfigError, InvalidInput
from treadle.library.mcp_hub.hub import ListingsFile, remember
from treadle.library.mcp_hub.search import make_spec, make_tool_name
from treadle.library.mcp_hub.settings import (
    Declared,
    Server,
    check_server,
    expand_variables,
    parse_server,
    read_project,
)
from treadle.protocol.tools import require_name


def test_variables_are_filled_in() -> None:
    env = {"A": "1", "EMPTY": ""}
    assert expand_variables("x${A}y${B:-2}z${EMPTY:-no}$A", env) == "x1y2z$A"
    with pytest.raises(ConfigError, match="MISSING is not set"):
        expand_variables("${MISSING}", env)


@pytest.mark.parametrize("name", ["", "a__b", "a b", "-a", "a" * 33, "a/b", "ü"])
def test_names_that_cannot_be_part_of_a_tools_name_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="no name for a server"):
        check_server(name, Server(command="x"))


def test_what_is_no_server_is_refused() -> None:
    for wrong, words in (
        (Server(), "either"),
        (Server(command="x", url="https://y"), "either"),
        (Server(url="ftp://x"), "no address"),
        (Server(command="x", type="sse"), "needs a URL"),
        (Server(command="x", timeout_s=0), "more than 0"),
    ):
        with pytest.raises(InvalidInput, match=words):
            check_server("a", wrong)
    with pytest.raises(InvalidInput, match="no MCP server"):
        parse_server({"command": 1})


def test_a_projects_file_is_read_in_the_shapes_that_others_write_and_gives_no_trust_away() -> None:  # S-09
    for key in ("mcpServers", "servers"):
        text = json.dumps(
            {key: {"a": {"command": "x", "accept_hints": True, "sampling": "allow", "type": "stdio", "unknown": 1}}}
        )
        (declaration,) = read_project(text.encode(), ".mcp.json", "/p")
        assert declaration == Declared(
            "a", Server(command="x", type="stdio", sampling="ask", network=False), ".mcp.json", "/p"
        )
        assert declaration.confined
    for wrong in (b"{", b'{"mcpServers": {"a": {}}}', b'{"mcpServers": {"a": {"command": 7}}}', b"\xff"):
        with pytest.raises(ConfigError, match=r"\.mcp\.json"):
            read_project(wrong, ".mcp.json", "/p")
    assert read_project(b"[]", ".mcp.json", "/p") == ()


def test_every_tool_gets_a_name_that_providers_take_and_that_is_its_own() -> None:
    names = ["plain", "with.dot", "with/slash", "with slash", "ü", "x" * 200, "x" * 201]
    tool_names = [make_tool_name("server", name) for name in names]
    assert tool_names[0] == "server__plain"
    assert len(set(tool_names)) == len(tool_names)
    for name in tool_names:
        require_name(name)
        assert "." not in name


def test_hints_count_only_where_they_are_accepted_and_odd_schemas_do_no_harm() -> None:
    tool = ListedTool("t", "Look\x1b[2J.", {"properties": "odd"}, read_only=True, idempotent=True)
    spec = make_spec("s", tool, 5.0, accept_hints=False)
    assert (spec.read_only, spec.idempotent, spec.effect, spec.server) == (False, False, "execute", "s")
    assert "\x1b" not in spec.description
    assert spec.parameters == {"type": "object"}
    assert make_spec("s", tool, 5.0, accept_hints=True).effect == "read"


def test_what_is_remembered_of_servers_is_bounded() -> None:
    book = ListingsFile()
    for n in range(100):
        book = remember(book, str(n), Listing(title=str(n)))
    assert len(book.servers) == 64
    assert list(book.servers)[-1] == "99"


def test_long_results_are_cut_with_a_way_to_the_rest() -> None:  # T-11
    assert shorten_result("a\nb", "1.0") == "a\nb"
    many = shorten_result("\n".join(["x"] * 5_000), "1.0")
    assert many.count("\n") == 2_000
    wide = shorten_result("ü" * 100_000, "1.0")
    assert len(wide.encode()) < MAX_BYTES + 200
    assert 'read_output handle="1.0"' in wide
