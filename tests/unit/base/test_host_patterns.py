"""Host patterns: what they cover, what is never reached."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.base.host_patterns import (
    READY,
    check_pattern,
    describe_network,
    exclude_hosts,
    expand,
    find_refusal_reason,
    get_host_family,
    is_within,
    matches_host,
    read,
)
from treadle.errors import InvalidInput

# fmt: off
_NO_PATTERNS = (
    "", "localhost", "*", "*.org:", "http://pypi.org", "pypi.org/simple", "x.org:0", "x.org:99999", "*.*.a.b",
    "a b.c",
)
# fmt: on


# fmt: off
_NEVER = (
    "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
    "169.254.169.254", "100.100.100.200", "224.0.0.1", "255.255.255.255", "::", "::1", "fe80::1%eth0",
    "fd00:ec2::254", "fec0::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::a00:1",
    "2002:7f00:1::", "ff02::1",
)
# fmt: on


@pytest.mark.parametrize(
    ("pattern", "host", "port", "covered"),
    [
        ("pypi.org", "pypi.org", 443, True),
        ("pypi.org", "PyPI.org.", 80, True),
        ("pypi.org", "pypi.org", 22, False),
        ("pypi.org", "evil-pypi.org", 443, False),
        ("pypi.org", "pypi.org.evil.net", 443, False),
        ("*.crates.io", "static.crates.io", 443, True),
        ("*.crates.io", "a.b.crates.io", 443, True),
        ("*.crates.io", "crates.io", 443, False),
        ("*.crates.io", "notcrates.io", 443, False),
        ("example.org:8443", "example.org", 8443, True),
        ("example.org:8443", "example.org", 443, False),
        ("registries", "registry.npmjs.org", 443, True),
        ("registries", "github.com", 443, False),
        ("git-hosts", "github.com", 443, True),
    ],
)
def test_what_a_pattern_covers(pattern: str, host: str, port: int, covered: bool) -> None:  # S-03
    assert matches_host(expand((check_pattern(pattern),)), host, port) is covered


@pytest.mark.parametrize(
    "pattern",
    [
        *_NO_PATTERNS,
        "127.0.0.1",
        "10.1.2.3:443",
        "169.254.169.254",
        "::1",
        "[fd00::1]:443",
        "0.0.0.0",
        "é.org",
    ],
)
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(InvalidInput):
        check_pattern(pattern)


@pytest.mark.parametrize(
    "address",
    _NEVER,
)
def test_addresses_that_are_never_reached(address: str) -> None:  # S-03
    assert find_refusal_reason(address)


@pytest.mark.parametrize(
    "host", ["a\0.x.org", "a/.x.org", "a#.x.org", "a@.x.org", "a b.x.org", ".x.org", "-.x.org", "é.x.org"]
)
def test_what_is_no_host_is_covered_by_nothing(host: str) -> None:  # S-03
    assert not matches_host(("*.x.org", host), host, 443)
    assert matches_host(("*.x.org",), "a.x.org", 443)


@pytest.mark.parametrize("address", ["1.1.1.1", "172.32.0.1", "151.101.0.223", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_public_addresses_are_reached(address: str) -> None:
    assert not find_refusal_reason(address)


@given(st.sampled_from(sorted(READY)))
def test_every_host_of_a_ready_set_is_a_pattern_within_it(name: str) -> None:
    assert all(check_pattern(host) == host for host in READY[name])
    assert is_within(READY[name], (name,))


def test_what_a_person_writes() -> None:
    assert read("all") is True
    assert read("none") is False
    assert read("") is False
    assert read("registries, GitHub.com *.x.org:8443") == ("registries", "github.com", "*.x.org:8443")
    with pytest.raises(InvalidInput, match="no host"):
        read("registries,make")


def test_what_was_opened_holds_what_is_wanted() -> None:
    assert is_within(("pypi.org", "npm"), ("registries",))
    assert is_within(("a.crates.io", "*.b.crates.io"), ("*.crates.io",))
    assert not is_within(("*.org",), ("pypi.org",))
    assert not is_within(("pypi.org:22",), ("registries",))
    assert not is_within(("registries",), ("pypi",))


def test_a_host_and_its_family() -> None:
    assert get_host_family("files.pythonhosted.org") == "pypi"
    assert get_host_family("index.crates.io") == "crates"
    assert get_host_family("example.org") == "example.org"


def test_networks_in_words() -> None:
    assert describe_network(True) == "network"
    assert describe_network(()) == describe_network(False) == "no network"
    assert describe_network(("pypi", "x.org")) == "network: pypi, x.org"


def test_what_is_denied_is_left_out_and_of_all_hosts_none_can_be() -> None:  # S-07
    assert exclude_hosts(True, ()) is True
    assert exclude_hosts(True, ("example.org",)) is False
    assert exclude_hosts(("example.org", "pypi.org"), ("example.org",)) == ("pypi.org",)
    assert exclude_hosts(("example.org",), ("all",)) is False
    assert exclude_hosts(False, ("example.org",)) is False
