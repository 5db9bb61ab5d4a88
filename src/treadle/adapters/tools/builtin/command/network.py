"""The network of a command: how its sandbox and its programs are told what it may reach, and how a command says that it
failed for want of more, by what it wrote and by what the proxy refused to it."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from treadle.base.host_patterns import ALL, PORTS, check_pattern, expand, get_host_family, is_address, matches_host
from treadle.base.inert import make_inert_line
from treadle.errors import InvalidInput
from treadle.ports.sandbox import PROXY_PORT, AllHosts, Hosts, Network, NoNetwork
from treadle.protocol.options import NetworkChoice

_PROXY = f"http://127.0.0.1:{PROXY_PORT}"
_OWN = "localhost,127.0.0.1,::1"  # The command's own network, which needs no proxy
_HOST = r"([A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+)"
_NAMED = tuple(
    re.compile(pattern.replace("HOST", _HOST))
    for pattern in (
        r"[Cc]ould not resolve (?:host|hostname|host name)?:? ?'?HOST",  # curl, git, cargo, ssh
        r"[Ff]ailure resolving '?HOST",  # apt
        r"unable to resolve host address .HOST",  # wget
        r"(?:ENOTFOUND|EAI_AGAIN|ENETUNREACH) HOST",  # node
        r"dial (?:tcp|udp).*?lookup HOST",  # go
        r"host='HOST', port=\d+\)",  # urllib3
        r"[Ff]ailed to lookup address information.*HOST",  # rust
    )
)
_PLAIN = re.compile(
    r"Temporary failure in name resolution|Name or service not known|Network is unreachable|network is unreachable"
    r"|nodename nor servname provided|ENOTFOUND|EAI_AGAIN|ENETUNREACH|failed to lookup address information"
    r"|Could not resolve host|Temporary failure resolving|getaddrinfo failed"
)
_MOST = 5
_MOST_REACHED = 200


def make_network(choice: NetworkChoice, log: str) -> Network:
    if isinstance(choice, bool):
        return AllHosts() if choice else NoNetwork()
    return Hosts(choice, log) if choice else NoNetwork()


def make_proxy_variables() -> dict[str, str]:
    """Variables that lead programs to the proxy. ALL_PROXY is HTTP, too: libraries without SOCKS fail with socks5h."""
    general = ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy")
    return {
        **{name: _PROXY for each in general for name in (each, each.upper())},
        **dict.fromkeys(("no_proxy", "NO_PROXY"), _OWN),
        **dict.fromkeys(("PIP_PROXY", "npm_config_proxy", "npm_config_https_proxy"), _PROXY),
        **dict.fromkeys(("YARN_HTTP_PROXY", "YARN_HTTPS_PROXY", "CARGO_HTTP_PROXY"), _PROXY),
        "npm_config_noproxy": _OWN,
        "NODE_USE_ENV_PROXY": "1",
    }


def find_wanted_hosts(text: str, log: str, reached: NetworkChoice) -> tuple[str, ...]:
    """The hosts that a failed command would have needed, as patterns; `all` if unknown; none if it was not that."""
    if reached is True:
        return ()
    connections = [(host, port) for host, port, refusal in _read_connections(log) if "not among" in refusal]
    refused = [get_host_family(host) if port in PORTS else f"{host}:{port}" for host, port in connections]
    if refused:
        return _select_patterns(refused, ())
    named_hosts = _select_patterns(
        [get_host_family(match[1].lower()) for pattern in _NAMED for match in pattern.finditer(text)], ()
    )
    if not named_hosts and not _PLAIN.search(text):
        return ()
    return _select_patterns(named_hosts, reached or ()) or (ALL,)


def _select_patterns(hosts: Iterable[str], reached: Iterable[str]) -> tuple[str, ...]:
    """The patterns that a person can allow and that are not allowed yet: those do not help if the proxy is bypassed."""
    wide = expand(reached)
    patterns: list[str] = []
    for host in dict.fromkeys(hosts):
        with suppress(InvalidInput):
            pattern = check_pattern(host)
            if pattern not in wide and not matches_host(wide, host, PORTS[1]) and not is_address(host):
                patterns.append(pattern)
    return tuple(patterns[:_MOST])


def read_reached_hosts(log: str, allowed: NetworkChoice) -> tuple[str, ...]:
    """The hosts that a command reached by the log of its proxy, in their order; `all` if it had no proxy."""
    if isinstance(allowed, bool):
        return (ALL,) if allowed else ()
    hosts = (
        host if port in PORTS else f"{host}:{port}" for host, port, refusal in _read_connections(log) if not refusal
    )
    return tuple(dict.fromkeys(hosts))[:_MOST_REACHED]


def format_hosts(hosts: tuple[str, ...]) -> str:
    if not hosts or hosts == (ALL,):
        return "could reach every host" if hosts else ""
    more = f" and {len(hosts) - _MOST} more" if len(hosts) > _MOST else ""
    return f"reached {', '.join(hosts[:_MOST])}{more}"


def _read_connections(log: str) -> Iterator[tuple[str, int, str]]:
    with suppress(FileNotFoundError):
        for line in Path(log).read_text(errors="replace").splitlines():
            with suppress(ValueError, KeyError):
                entry = json.loads(line)
                if entry["host"]:
                    yield (
                        make_inert_line(str(entry["host"]).lower().rstrip(".")),
                        int(entry["port"]),
                        str(entry["refused"]),
                    )


def describe_network_need(patterns: tuple[str, ...]) -> str:
    if not patterns:
        return ""
    hosts = ": " + ", ".join(patterns) if patterns != (ALL,) else ""
    return f"needs the network{hosts}; a person can allow it"
