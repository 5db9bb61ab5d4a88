"""The hosts that a call may reach by standing rules, and the question to a person if a command needs more (S-03). An
approval opens the named hosts for this call; a rule opens them for the chat, the project or the user."""

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from treadle.adapters.policy import word_verdicts
from treadle.adapters.policy.acts import render_call
from treadle.adapters.policy.shell.model import Part
from treadle.adapters.policy.word_verdicts import Case, Need
from treadle.base.host_patterns import ALL, READY, check, choice, expand, family, joined, within, without
from treadle.errors import InvalidInput
from treadle.ports.policy import Verdict
from treadle.ports.toolset import Rehearsal
from treadle.protocol.options import NetworkChoice
from treadle.protocol.permissions import NETWORK_TOOL, STANDING, Offer, Rule, RuleScope

_ADDRESS = r"(?:https?|git|ssh|ftp)://(?:[^/@\s]*@)?([A-Za-z0-9.-]+)(?::(\d+))?|^[\w.-]+@([A-Za-z0-9.-]+):"
# fmt: off
_FAMILIES = {
    "pip": "pypi", "pip3": "pypi", "uv": "pypi", "poetry": "pypi", "pipx": "pypi", "pdm": "pypi",
    "npm": "npm", "npx": "npm", "yarn": "npm", "pnpm": "npm", "bun": "npm",
    "cargo": "crates", "rustup": "crates", "go": "go", "gem": "rubygems", "bundle": "rubygems",
    "mvn": "maven", "gradle": "maven", "composer": "packagist", "dotnet": "nuget", "nuget": "nuget", "gh": "github",
}
# fmt: on
_MOST = 3
_PIP_OF_PYTHON = ("-m", "pip")


def stopped(case: Case) -> Verdict | None:
    """Return the refusal of a command whose text needs a denied host, even if other rules allow it (S-07)."""
    if case.act.kind != "command" or not case.act.finding.network:
        return None
    hosts = expand(hosts_in(case.act.parts))
    for rule in _denying(case):
        if rule.pattern == ALL or any(within((host,), (rule.pattern,)) for host in hosts):
            return word_verdicts.refused(rule)
    return None


def standing(case: Case, verdict: Verdict) -> Verdict:
    """The verdict by words, with the network that standing rules allow; an approval allows what its words need, too."""
    if case.act.kind != "command":
        return verdict
    wants = _missing(case)
    if verdict.decision == "ask" and wants and not verdict.wants:
        reason = f"{verdict.reason}; {_reason(wants)}" if verdict.reason else _reason(wants)
        verdict = replace(verdict, reason=reason, offers=(*verdict.offers, *_offers(wants)), wants=wants)
    return replace(verdict, network=_allowed(case), barred=tuple(rule.pattern for rule in _denying(case)))


def needed(case: Case) -> Verdict | None:
    """The question about a command whose words need hosts that it may not reach; None if trusted: then it is tried."""
    wants = _missing(case)
    return _question(case, wants) if wants and not word_verdicts.trusted(case) else None


def failed(case: Case, rehearsal: Rehearsal) -> Verdict | None:
    """Return the question about a command that was tried and failed without the network. None in modes that ask nothing
    about commands: only the result says so then."""
    options = case.options
    if not rehearsal.wants_network or options.mode == "autopilot" or options.auto_approve_commands:
        return None
    wants = tuple(rehearsal.wants_network.split())
    if wants == (ALL,):
        wants = _open(case, hosts_in(case.act.parts)) or wants
    denied = [rule.pattern for rule in _denying(case)]
    wants = tuple(host for host in wants if host == ALL or not within((host,), denied)) if ALL not in denied else ()
    if not options.interactive or not wants:
        return None
    question = _question(case, wants)
    return replace(question, approval_text=f"{render_call(case.invocation, case.act)}\n\n{rehearsal.diff_text}")


def hosts_in(parts: Iterable[Part]) -> tuple[str, ...]:
    """The hosts that the words of commands name, as patterns: by addresses, or by a package manager."""
    return tuple(dict.fromkeys(host for part in parts for host in _hosts_of(part)))


def _hosts_of(part: Part) -> Iterator[str]:
    has_address = False
    for word in part.words[1:]:
        for name, port, login in re.findall(_ADDRESS, word):
            host = family((name or login).lower())
            try:
                yield check(f"{host}:{port}" if port and host not in READY else host)
                has_address = True
            except InvalidInput:  # a host of this machine, or none at all
                continue
    program = part.words[0].rpartition("/")[2] if part.words else ""
    if part.words[1:3] == _PIP_OF_PYTHON:
        program = "pip"
    if not has_address and program in _FAMILIES:
        yield _FAMILIES[program]


def _allowed(case: Case) -> NetworkChoice:
    """Return the hosts that standing rules allow, without the denied ones. A single host cannot be excluded from "all
    hosts", so if any host is denied, a rule that allows all is ignored."""
    allowed: NetworkChoice = False
    denied = [rule.pattern for rule in _denying(case)]
    for rule in case.rules:
        if rule.tool == NETWORK_TOOL and rule.effect == "allow" and not (denied and rule.pattern == ALL):
            allowed = joined(allowed, choice((rule.pattern,)))
    return without(allowed, denied)


def opens(rule: Rule, network: NetworkChoice) -> bool:
    """True if the rule allows a call to reach these hosts."""
    if rule.tool != NETWORK_TOOL or rule.effect != "allow":
        return False
    if isinstance(network, bool):
        return network and rule.pattern == ALL
    return within((rule.pattern,), network)


def _denying(case: Case) -> list[Rule]:
    return [rule for rule in case.rules if rule.tool == NETWORK_TOOL and rule.effect == "deny"]


def _open(case: Case, hosts: Sequence[str]) -> tuple[str, ...]:
    """Those that the call may not reach yet."""
    reach = _reach(case)
    return () if reach is True else tuple(host for host in hosts if not within((host,), reach or ()))


def _missing(case: Case) -> tuple[str, ...]:
    """The hosts that the words of a command plainly need and that it may not reach."""
    if not case.act.finding.network:
        return ()
    hosts = hosts_in(case.act.parts)
    return _open(case, hosts) if hosts else () if _reach(case) else (ALL,)


def _reach(case: Case) -> NetworkChoice:
    """Return the hosts that the call may reach by options, approval or rules, without the denied ones."""
    denied = [rule.pattern for rule in _denying(case)]
    chats, call_reach = (without(each, denied) for each in (case.options.network, case.invocation.network))
    return joined(joined(chats, call_reach), _allowed(case))


def _question(case: Case, wants: tuple[str, ...]) -> Verdict:
    way = f"A person can start it with --network {','.join(wants)}."
    return replace(word_verdicts.ask_or_deny(case, Need(_reason(wants), _offers(wants), way)), wants=wants)


def _reason(wants: Sequence[str]) -> str:
    return "it needs the network" + ("" if wants == (ALL,) else f": {', '.join(wants)}")


def _offers(wants: Sequence[str]) -> tuple[Offer, ...]:
    """A rule for each host, and all hosts for this call alone."""
    scopes: tuple[RuleScope, ...] = ("once", *STANDING)
    offers = []
    for host in [host for host in wants if host != ALL][:_MOST]:
        hosts = expand((host,))
        covers = f"commands that reach {host}" + (f" ({', '.join(hosts)})" if hosts != (host,) else "")
        offers.append(Offer(Rule("allow", NETWORK_TOOL, host), covers, "every other host", scopes))
    everything = Rule("allow", NETWORK_TOOL, ALL, scope="once")
    return (*offers, Offer(everything, "every host", "effects on other machines are not undone", ("once",)))
