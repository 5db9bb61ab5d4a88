"""The profile for sandbox-exec, as text: it can be run on macOS alone."""

import pytest

from treadle.adapters.sandbox.macos import BINARY, SandboxExec, render_profile
from treadle.errors import SandboxError
from treadle.ports.sandbox import AllHosts, Confinement, Hosts, PrivateHome, Unwritable

ROOT = "/Users/me/project"
WHOLE = Confinement(
    root=ROOT, protected=(f"{ROOT}/.git/hooks",), hidden_paths=("/Users/me/.ssh",), writable=("/opt/cache",)
)


def test_everything_is_unwritable_but_the_root_and_what_was_named() -> None:
    lines = render_profile(WHOLE, "/private/tmp/x").splitlines()
    assert lines[:3] == ["(version 1)", "(allow default)", "(deny file-write*)"]
    for path in (ROOT, "/opt/cache", "/private/tmp/x"):
        assert f'(allow file-write* (subpath "{path}"))' in lines
    unwritable = render_profile(Confinement(root=ROOT, mount=Unwritable()))
    assert f'(subpath "{ROOT}")' not in unwritable


def test_refusals_stand_last_because_the_last_rule_counts() -> None:
    lines = render_profile(WHOLE).splitlines()
    protected = lines.index(f'(deny file-write* (subpath "{ROOT}/.git/hooks"))')
    assert protected > lines.index(f'(allow file-write* (subpath "{ROOT}"))')
    assert lines[protected + 1] == f'(deny file-write-unlink (literal "{ROOT}/.git"))'
    assert lines[-1] == '(deny file-read* file-write* (subpath "/Users/me/.ssh"))'


def test_the_network_is_closed_unless_it_is_allowed() -> None:
    assert "(deny network*)" in render_profile(WHOLE)
    allowed = render_profile(Confinement(root=ROOT, network=AllHosts()))
    with pytest.raises(SandboxError, match="only bubblewrap can"):
        render_profile(Confinement(root=ROOT, network=Hosts(("pypi",), "/log")))
    assert "(deny network*)" not in allowed
    assert "(deny network-outbound (remote unix-socket))" in allowed  # Docker's is no network


def test_paths_are_quoted() -> None:
    assert r'(subpath "/a \"b\" \\c")' in render_profile(Confinement(root='/a "b" \\c'))


def test_the_command_line() -> None:
    line = SandboxExec().wrap(["/bin/sh", "-c", "true"], Confinement(root=ROOT), ROOT)
    assert line[:2] == [BINARY, "-p"]
    assert line[3:] == ["/bin/sh", "-c", "true"]


def test_homes_are_closed_but_for_what_is_visible_in_them() -> None:  # S-18
    home = PrivateHome("/Users/me", ("/Users/me", "/Users"), ("/Users/me/.pyenv",), keys=("/Users/me/.pyenv/a.key",))
    lines = render_profile(Confinement(root=ROOT, home=home)).splitlines()
    denial_index = lines.index('(deny file-read* (subpath "/Users/me"))')
    for path in (ROOT, "/Users/me/.pyenv"):
        assert lines.index(f'(allow file-read* (subpath "{path}"))') > denial_index
    assert lines[-1] == '(deny file-read* file-write* (subpath "/Users/me/.pyenv/a.key"))'
