"""What sandboxes without network namespaces make of a command's network."""

from typing import assert_never

from treadle.errors import SandboxError
from treadle.ports.sandbox import AllHosts, Hosts, Level, Network, NoNetwork


def all_hosts(network: Network, level: Level) -> bool:
    """Whether the whole network is allowed. SandboxError for some hosts only: without a network of its own, a command
    could pass the proxy by."""
    match network:
        case NoNetwork():
            return False
        case AllHosts():
            return True
        case Hosts():
            raise SandboxError(
                f"{level} cannot keep a command to named hosts, only bubblewrap can: allow all hosts or none"
            )
        case _:
            assert_never(network)
