"""How commands say that they failed for want of the network."""

import json
from pathlib import Path

import pytest

from treadle.adapters.tools.builtin.command.network import (
    describe_network_need,
    find_wanted_hosts,
    format_hosts,
    read_reached_hosts,
)

_NEW = "Failed to establish a new connection: [Errno -3] Temporary failure in name resolution"


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("curl: (6) Could not resolve host: example.org", ("example.org",)),
        ("fatal: unable to access 'https://github.com/a/b/': Could not resolve host: github.com", ("github",)),
        ("ssh: Could not resolve hostname git.example.org: Temporary failure in name resolution", ("git.example.org",)),
        ("W: Failed to fetch … Temporary failure resolving 'deb.debian.org'", ("debian",)),
        ("wget: unable to resolve host address \u2018example.org\u2019", ("example.org",)),
        ("npm error request failed, reason: getaddrinfo EAI_AGAIN registry.npmjs.org", ("npm",)),
        ("Error: getaddrinfo ENOTFOUND api.example.org", ("api.example.org",)),
        ("dial tcp: lookup proxy.golang.org on 10.0.0.1:53: dial udp 10.0.0.1:53: network is unreachable", ("go",)),
        (f"WARNING: Retrying after connection broken by 'NewConnectionError({_NEW})': /simple/six/", ("all",)),
        ("HTTPSConnectionPool(host='pypi.org', port=443): Max retries exceeded", ("pypi",)),
        ("OSError: [Errno 101] Network is unreachable", ("all",)),
        ("failed to lookup address information: Temporary failure in name resolution", ("all",)),
        ("curl: (6) Could not resolve host: localhost.localdomain:80", ("localhost.localdomain",)),
        ("AssertionError: 1 != 2", ()),
        ("HTTPConnectionPool(host='127.0.0.1', port=80): Max retries exceeded: Connection refused", ()),
        ("KeyError: lookup a.b: nothing", ()),
        ("connect: Connection refused", ()),
        ("", ()),
    ],
)
def test_by_what_it_wrote(text: str, hosts: tuple[str, ...], tmp_path: Path) -> None:  # S-03
    log = str(tmp_path / "network")
    assert find_wanted_hosts(text, log, False) == hosts
    assert find_wanted_hosts(text, log, True) == ()


def test_by_what_the_proxy_refused(tmp_path: Path) -> None:  # S-03
    log = tmp_path / "network"
    refused = "x is not among the hosts that this command may reach"
    entries = [
        {"host": "pypi.org", "port": 443, "refused": ""},
        {"host": "files.pythonhosted.org", "port": 443, "refused": refused},
        {"host": "example.org", "port": 8443, "refused": refused},
        {"host": "gone.example.org", "port": 443, "refused": "unreachable: no answer"},
        {"host": "localhost", "port": 80, "refused": refused},
        {"host": "", "port": 0, "refused": "a request that cannot be read"},
    ]
    log.write_text("\n".join(json.dumps(entry) for entry in entries) + "\n{broken")
    assert find_wanted_hosts("whatever", str(log), ("example.com",)) == ("pypi", "example.org:8443")


def test_the_hosts_that_were_reached(tmp_path: Path) -> None:  # S-17
    log = tmp_path / "network"
    refused = "x is not among the hosts that this command may reach"
    entries = [
        {"host": "pypi.org", "port": 443, "refused": ""},
        {"host": "PyPI.org", "port": 80, "refused": ""},
        {"host": "example.org", "port": 8443, "refused": ""},
        {"host": "other.example.org", "port": 443, "refused": refused},
        {"host": "gone.example.org", "port": 443, "refused": "unreachable: no answer"},
        {"host": "odd\x1b[2J.org", "port": 443, "refused": ""},
    ]
    log.write_text("\n".join(json.dumps(entry) for entry in entries) + "\n{broken")
    hosts = read_reached_hosts(str(log), ("pypi", "example.org:8443"))
    assert hosts[:2] == ("pypi.org", "example.org:8443")
    assert len(hosts) == 3
    assert "\x1b" not in hosts[2]
    assert read_reached_hosts(str(log), True) == ("all",)
    assert read_reached_hosts(str(log), False) == read_reached_hosts(str(tmp_path / "none"), ("pypi",)) == ()
    assert format_hosts(("a.org", "b.org")) == "reached a.org, b.org"
    assert format_hosts(tuple("abcdefg")) == "reached a, b, c, d, e and 2 more"
    assert (format_hosts(("all",)), format_hosts(())) == ("could reach every host", "")


def test_who_passes_the_proxy_by_needs_all_of_the_network(tmp_path: Path) -> None:
    text = "Could not resolve host: example.org"
    assert find_wanted_hosts(text, str(tmp_path / "network"), ("example.org",)) == ("all",)


def test_in_one_line() -> None:
    assert describe_network_need(()) == ""
    assert describe_network_need(("all",)) == "needs the network; a person can allow it"
    assert describe_network_need(("pypi", "x.org")) == "needs the network: pypi, x.org; a person can allow it"
