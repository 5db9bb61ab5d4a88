"""Questions for a person when a command needs the network, and rules that let it reach hosts (S-03)."""

import pytest
from msgspec.structs import replace

from tests.unit.adapters.policy.kit import SPECS, call
from treadle.adapters.policy.command_severity import parse_parts
from treadle.adapters.policy.rules import check_rule
from treadle.adapters.policy.standard import StandardPolicy, find_hosts
from treadle.errors import InvalidInput
from treadle.ports.policy import Verdict
from treadle.ports.toolset import Rehearsal
from treadle.protocol.options import ChatOptions, NetworkChoice
from treadle.protocol.permissions import Rule

PIP = "pip install six"


async def judge_command(
    command: str, *, wants: str = "", network: NetworkChoice = False, granted: NetworkChoice = False, **options: object
) -> Verdict:
    chat_options = ChatOptions(**{"mode": "ask", "interactive": True, "network": network, **options})  # type: ignore[arg-type]
    policy, spec = StandardPolicy(), SPECS["run_command"]
    invocation = replace(call("run_command", command=command), network=granted)
    verdict = await policy.review(spec, invocation, chat_options)
    if verdict.decision != "review":
        return verdict
    return await policy.judge(spec, invocation, chat_options, Rehearsal("it failed", wants_network=wants), verdict)


@pytest.mark.parametrize(
    ("command", "hosts"),
    [
        (PIP, ("pypi",)),
        ("python3 -m pip install six", ("pypi",)),
        ("npm ci && cargo fetch", ("npm", "crates")),
        ("git clone https://github.com/a/b", ("github",)),
        ("git clone git@gitlab.com:a/b.git", ("gitlab",)),
        ("curl -fsSL https://example.org:8443/x", ("example.org:8443",)),
        ("curl https://user:pw@example.org/x https://example.org/y", ("example.org",)),
        ("pip install --index-url https://mirror.example.org/simple six", ("mirror.example.org",)),
        ("curl http://localhost:8000/", ()),
        ("curl http://10.0.0.1/", ()),
        ("ping example.org", ()),
        ("ls", ()),
    ],
)
def test_hosts_in_words(command: str, hosts: tuple[str, ...]) -> None:
    assert find_hosts(parse_parts(command)) == hosts


async def test_words_that_need_the_network_are_asked_about_with_hosts_to_choose() -> None:  # S-03, S-07
    verdict = await judge_command(PIP)
    assert (verdict.decision, verdict.reason, verdict.wants) == ("ask", "it needs the network: pypi", ("pypi",))
    first, everything = verdict.offers
    assert (first.rule.tool, first.rule.pattern) == ("network", "pypi")
    assert "files.pythonhosted.org" in first.covers
    assert (everything.rule.pattern, everything.rule.scope) == ("all", "once")


async def test_a_command_that_failed_for_want_of_the_network_is_asked_about() -> None:  # S-03
    verdict = await judge_command("make deps", wants="example.org npm")
    assert (verdict.decision, verdict.wants) == ("ask", ("example.org", "npm"))
    assert verdict.approval_text.endswith("it failed")
    assert [offer.rule.pattern for offer in verdict.offers] == ["example.org", "npm", "all"]
    assert (await judge_command("make deps", wants="all")).wants == ("all",)
    assert (await judge_command("python -m pip install six", wants="all", granted=("pypi",))).wants == ("all",)


@pytest.mark.parametrize("reach", [True, ("registries",), ("pypi.org", "files.pythonhosted.org")])
async def test_what_may_be_reached_is_not_asked_about(reach: NetworkChoice) -> None:
    assert (await judge_command(PIP, network=reach)).decision == "allow"
    assert (await judge_command(PIP, granted=reach)).decision == "allow"
    assert (await judge_command(PIP, network=("npm",))).wants == ("pypi",)


async def test_rules_let_reach_and_keep_from_asking() -> None:  # S-07
    allowed = Rule("allow", "network", "registries")
    policy, spec = StandardPolicy(), SPECS["run_command"]
    verdict = await policy.review(spec, call("run_command", command=PIP), ChatOptions(mode="ask", rules=(allowed,)))
    assert (verdict.decision, verdict.network) == ("review", ("registries",))
    denied = Rule("deny", "network", "example.org")
    assert (await judge_command("make deps", wants="example.org", rules=(denied,))).decision == "allow"
    assert (await judge_command("make deps", wants="example.org npm", rules=(denied,))).wants == ("npm",)


@pytest.mark.parametrize("pattern", ["pypi", "registries", "pypi.org", "all"])
@pytest.mark.parametrize("network", [False, True, ("registries",)])
async def test_a_rule_that_denies_a_host_beats_all_that_allow_it(pattern: str, network: NetworkChoice) -> None:  # S-07
    rules = (Rule("allow", "network", "registries"), Rule("allow", "network", "all"), Rule("deny", "network", pattern))
    for more in ({}, {"auto_approve_commands": True}):
        assert (await judge_command(PIP, network=network, rules=rules, **more)).decision == "deny"


async def test_where_a_host_is_denied_others_are_named_not_all() -> None:  # S-07
    denied = Rule("deny", "network", "example.org")
    assert (await judge_command(PIP, network=True, rules=(denied,))).wants == ("pypi",)
    assert (await judge_command(PIP, network=True, granted=("pypi",), rules=(denied,))).decision == "allow"


async def test_what_is_denied_is_taken_out_of_what_is_allowed() -> None:  # S-07
    rules = (Rule("allow", "network", "registries"), Rule("deny", "network", "npm"))
    verdict = await StandardPolicy().review(
        SPECS["run_command"], call("run_command", command="make deps"), ChatOptions(mode="ask", rules=rules)
    )
    assert isinstance(verdict.network, tuple)
    assert "pypi.org" in verdict.network
    assert "registry.npmjs.org" not in verdict.network


async def test_where_nobody_is_asked_it_is_told() -> None:  # S-05
    headless = await judge_command(PIP, interactive=False)
    assert headless.decision == "deny"
    assert "it needs the network: pypi" in headless.reason
    assert "--network pypi" in headless.reason
    assert (await judge_command("make deps", wants="npm", interactive=False)).decision == "allow"
    assert (await judge_command("make deps", wants="npm", mode="autopilot")).decision == "allow"
    assert (await judge_command(PIP, wants="pypi", mode="autopilot")).decision == "allow"


async def test_an_approval_by_words_brings_the_network_along() -> None:
    verdict = await judge_command(PIP, mode="confirm")
    assert (verdict.decision, verdict.wants) == ("ask", ("pypi",))
    assert "it needs the network: pypi" in verdict.reason
    assert (await judge_command("make", mode="confirm")).wants == ()


def test_rules_about_hosts_are_checked() -> None:
    check_rule(Rule("allow", "network", "pypi"))
    check_rule(Rule("deny", "network", "*.example.org"))
    check_rule(Rule("allow", "network", "all"))
    for pattern in ("", "make", "10.0.0.1"):
        with pytest.raises(InvalidInput):
            check_rule(Rule("allow", "network", pattern))
    with pytest.raises(InvalidInput, match="once"):
        check_rule(Rule("allow", "network", "pypi", scope="once"))
