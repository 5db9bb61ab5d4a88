"""Host patterns: which hosts a command may reach through the proxy (S-03). A pattern is a host (`pypi.org`), all hosts
below a domain (`*.crates.io`), either with a port (`example.org:8443`), or the name of a ready set (`registries`).
Pure; the proxy loads this module, so it imports little."""

import re
from collections.abc import Iterable, Sequence

from treadle.errors import InvalidInput

PORTS = (80, 443)  # the ports that a pattern without a port covers
ALL = "all"  # the word for every host, in settings and flags: the network of the machine itself, without a proxy
NONE = "none"

# fmt: off
REGISTRIES: dict[str, tuple[str, ...]] = {
    "pypi": ("pypi.org", "files.pythonhosted.org"),
    "npm": ("registry.npmjs.org", "registry.yarnpkg.com"),
    "crates": ("crates.io", "*.crates.io", "static.rust-lang.org"),
    "go": ("proxy.golang.org", "sum.golang.org", "storage.googleapis.com", "go.dev"),
    "debian": ("deb.debian.org", "security.debian.org"),
    "ubuntu": ("archive.ubuntu.com", "security.ubuntu.com", "ports.ubuntu.com"),
    "rubygems": ("rubygems.org", "*.rubygems.org"),
    "maven": ("repo.maven.apache.org", "repo1.maven.org", "plugins.gradle.org", "services.gradle.org"),
    "packagist": ("packagist.org", "repo.packagist.org"),
    "nuget": ("api.nuget.org", "www.nuget.org"),
}
GIT_HOSTS: dict[str, tuple[str, ...]] = {
    "github": (
        "github.com", "api.github.com", "codeload.github.com", "raw.githubusercontent.com",
        "objects.githubusercontent.com", "release-assets.githubusercontent.com",
    ),
    "gitlab": ("gitlab.com",),
    "bitbucket": ("bitbucket.org",),
    "codeberg": ("codeberg.org",),
}
# fmt: on
READY: dict[str, tuple[str, ...]] = {  # ready sets by name. A name has no dot, so it is never taken for a host.
    "registries": tuple(host for hosts in REGISTRIES.values() for host in hosts),
    "git-hosts": tuple(host for hosts in GIT_HOSTS.values() for host in hosts),
    **REGISTRIES,
    **GIT_HOSTS,
}

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})+"
_PLAIN_HOST = rf"{_LABEL}(?:\.{_LABEL})*"
_LONGEST = 253


def check_pattern(pattern: str) -> str:
    """The pattern in its one spelling. InvalidInput if it is none, or names an address that is never reached."""
    plain = pattern.strip().lower()
    if plain in READY:
        return plain
    host, port = split_port(plain, pattern)
    if is_address(host):
        if reason := find_refusal_reason(host):
            raise InvalidInput(f"{pattern!r} cannot be allowed: {host} is {reason}; the proxy never connects there")
    elif not re.fullmatch(_HOST, host) or len(host) > _LONGEST:
        raise InvalidInput(
            f"{pattern!r} is no host: write a name such as pypi.org, *.crates.io or example.org:8443, or a ready set "
            f"({', '.join(READY)})"
        )
    return plain if port else host


def check_all(patterns: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(check_pattern(pattern) for pattern in patterns))


def read(text: str) -> bool | tuple[str, ...]:
    """Parse a person's input: `all`, `none`, or patterns separated by commas or spaces. InvalidInput otherwise."""
    words = text.replace(",", " ").split()
    if [word.lower() for word in words] in ([ALL], ["true"], ["1"]):
        return True
    if not words or [word.lower() for word in words] in ([NONE], ["false"], ["0"]):
        return False
    return check_all(words)


def check_choice(network: "bool | Sequence[str]") -> "bool | tuple[str, ...]":
    return network if isinstance(network, bool) else check_all(network)


def join_choices(one: "bool | Sequence[str]", other_hosts: "bool | Sequence[str]") -> "bool | tuple[str, ...]":
    if one is True or other_hosts is True:
        return True
    return tuple(dict.fromkeys((*(one or ()), *(other_hosts or ())))) or False


def exclude_hosts(network: "bool | Sequence[str]", denied: Sequence[str]) -> "bool | tuple[str, ...]":
    """The hosts that stay allowed without the denied ones; none of "all hosts", from which none can be excluded."""
    if not denied or network is False:
        return network if isinstance(network, bool) else tuple(network)
    if network is True or ALL in denied:
        return False
    return tuple(host for host in expand(network) if not is_within((host,), denied)) or False


def make_choice(patterns: Iterable[str]) -> "bool | tuple[str, ...]":
    """Recorded patterns: `all` among them allows every host."""
    unique_patterns = tuple(dict.fromkeys(patterns))
    return True if ALL in unique_patterns else unique_patterns or False


def describe_network(network: "bool | Sequence[str]") -> str:
    if network is True:
        return "network"
    return f"network: {', '.join(network)}" if network else "no network"


def expand(patterns: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(host for pattern in patterns for host in READY.get(pattern, (pattern,))))


def matches_host(patterns: Iterable[str], host: str, port: int) -> bool:
    """True if one of the expanded patterns covers this host and port. A string that is not a host name never matches:
    some resolvers would end the name at a zero byte or a slash before an allowed name, and others would not."""
    plain = host.lower().removesuffix(".")
    if not re.fullmatch(_PLAIN_HOST, plain) and not is_address(plain):
        return False
    for pattern in patterns:
        name, pattern_port = split_port(pattern, pattern)
        if port in ((pattern_port,) if pattern_port else PORTS) and (
            plain.endswith(name[1:]) if name.startswith("*.") else plain == name
        ):
            return True
    return False


def is_within(requested: Iterable[str], allowed: Iterable[str]) -> bool:
    """True if every requested pattern is covered by the allowed patterns."""
    wide = expand(allowed)
    for pattern in expand(requested):
        if pattern not in wide:
            name, port = split_port(pattern, pattern)
            host, ports = name.replace("*", "any", 1), (port,) if port else PORTS
            if not all(matches_host(wide, host, each) for each in ports):
                return False
    return True


def get_host_family(host: str) -> str:
    """The ready set that holds a host which is of little use alone (pypi.org and its files); else the host itself."""
    families = {**REGISTRIES, **GIT_HOSTS}
    return next((name for name, hosts in families.items() if matches_host(hosts, host, PORTS[1])), host)


def split_port(text: str, original: str) -> tuple[str, int]:
    """(host, port); port 0 if none is written."""
    if text.startswith("["):
        host, _, suffix = text[1:].partition("]")
        colon, port = suffix[:1], suffix[1:]
    else:
        host, colon, port = text.partition(":")
        if ":" in port:
            return text, 0  # an IPv6 address without brackets
    if not colon:
        return host, 0
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise InvalidInput(f"{original!r} has no port behind its colon: write a number from 1 to 65535")
    return host, int(port)


def is_address(host: str) -> bool:
    import ipaddress

    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


# fmt: off
_NEVER = {
    "this machine": ("0.0.0.0/8", "127.0.0.0/8", "::/128", "::1/128"),
    "a private network": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "192.0.0.0/24",
                          "198.18.0.0/15", "fc00::/7", "fec0::/10"),
    "the local link, where clouds keep their metadata": ("169.254.0.0/16", "fe80::/10"),
    "no single host": ("224.0.0.0/4", "240.0.0.0/4", "ff00::/8"),
    "a tunnel that may lead anywhere": ("2002::/16", "2001::/32", "64:ff9b::/96", "64:ff9b:1::/48"),
}
# fmt: on


def find_refusal_reason(address: str) -> str:
    """Return the kind of an address that no command may ever reach through the proxy. Empty if it is allowed."""
    import ipaddress

    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.packed[:12] == bytes(12) and int(parsed) > 1:
        parsed = ipaddress.IPv4Address(parsed.packed[12:])  # the old form ::a.b.c.d
    return next((kind for kind, nets in _NEVER.items() if any(parsed in ipaddress.ip_network(net) for net in nets)), "")
