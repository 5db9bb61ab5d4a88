"""The filters, run by a little machine of BPF as the kernel would run them, for both kinds of processors (S-03)."""

import errno
import re
import struct
from pathlib import Path

import pytest

from treadle.adapters.sandbox.seccomp import (
    AF_INET,
    AF_UNIX,
    ALLOW,
    CALLS,
    CHORES,
    KILL,
    NOTIFY,
    Filter,
    Machine,
    assemble,
)

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINES: list[Machine] = ["x86_64", "aarch64"]
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
PLAIN = Filter()
STRICT = Filter(families=(), metadata=False, truncate=False)


def judge(code: bytes, number: int, *arguments: int, architecture: int) -> int:
    data = struct.pack("=IIQ6Q", number, architecture, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    program = list(struct.iter_unpack("=HBBI", code))
    at, register = 0, 0
    while True:
        operation, yes, no, value = program[at]
        at += 1
        match operation:
            case 0x20:
                (register,) = struct.unpack_from("=I", data, value)
            case 0x15:
                at += yes if register == value else no
            case 0x35:
                at += yes if register >= value else no
            case 0x45:
                at += yes if register & value else no
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"no such operation {operation:#x}")


def verdict(machine: Machine, syscall_filter: Filter, name: str, *arguments: int) -> int:
    number = CALLS[name][MACHINES.index(machine)]
    assert number is not None
    return judge(assemble(syscall_filter, machine), number, *arguments, architecture=ARCHITECTURES[machine])


def encode_refusal(code: int) -> int:
    return 0x00050000 | code


@pytest.mark.parametrize("machine", MACHINES)
def test_what_nobody_needs_is_refused(machine: Machine) -> None:
    for name in (
        "mount",
        "bpf",
        "keyctl",
        "kexec_load",
        "open_by_handle_at",
        "userfaultfd",
        "setns",
        "perf_event_open",
    ):
        assert verdict(machine, PLAIN, name) == encode_refusal(errno.EPERM)
    for name in ("io_uring_setup", "io_uring_enter", "clone3"):
        assert verdict(machine, PLAIN, name) == encode_refusal(errno.ENOSYS)


@pytest.mark.parametrize("machine", MACHINES)
def test_processes_can_be_made_and_namespaces_cannot(machine: Machine) -> None:
    assert verdict(machine, PLAIN, "clone", 0x01200011) == ALLOW
    assert verdict(machine, PLAIN, "unshare", 0x400) == ALLOW
    for namespace in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert verdict(machine, PLAIN, "clone", namespace | 17) == encode_refusal(errno.EPERM)
        assert verdict(machine, PLAIN, "unshare", namespace) == encode_refusal(errno.EPERM)


@pytest.mark.parametrize("machine", MACHINES)
def test_sockets_by_family(machine: Machine) -> None:
    assert verdict(machine, PLAIN, "socket", AF_UNIX) == ALLOW
    assert verdict(machine, PLAIN, "socket", AF_INET) == ALLOW
    assert verdict(machine, PLAIN, "socket", 40) == encode_refusal(errno.EACCES)  # to the host of a virtual machine
    for family in (AF_UNIX, AF_INET, 10, 16, 17, 40):
        assert verdict(machine, STRICT, "socket", family) == encode_refusal(errno.EACCES)


@pytest.mark.parametrize("machine", MACHINES)
def test_nothing_types_into_a_terminal(machine: Machine) -> None:
    tcgets, tiocsti, tioclinux, set_flags = 0x5401, 0x5412, 0x541C, 0x40086602
    for syscall_filter in (PLAIN, STRICT):
        assert verdict(machine, syscall_filter, "ioctl", 0, tcgets) == ALLOW
        assert verdict(machine, syscall_filter, "ioctl", 0, tiocsti) == encode_refusal(errno.EPERM)
        assert verdict(machine, syscall_filter, "ioctl", 0, tioclinux) == encode_refusal(errno.EPERM)
        assert verdict(machine, syscall_filter, "ioctl", 0, tiocsti | 1 << 32) == encode_refusal(errno.EPERM)
    assert verdict(machine, PLAIN, "ioctl", 0, set_flags) == ALLOW
    assert verdict(machine, STRICT, "ioctl", 0, set_flags) == encode_refusal(errno.EPERM)


@pytest.mark.parametrize("machine", MACHINES)
def test_modes_and_times_are_asked_for_only_where_they_must_be(machine: Machine) -> None:
    for name in CHORES:
        if CALLS[name][MACHINES.index(machine)] is not None:
            assert verdict(machine, PLAIN, name) == ALLOW
            assert verdict(machine, STRICT, name) == NOTIFY
    assert verdict(machine, STRICT, "setxattr") == encode_refusal(errno.EOPNOTSUPP)
    assert verdict(machine, STRICT, "truncate") == encode_refusal(errno.EACCES)
    assert verdict(machine, PLAIN, "truncate") == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_another_dialect_of_calls_ends_the_process(machine: Machine) -> None:
    code = assemble(PLAIN, machine)
    assert judge(code, 1, architecture=0x40000003) == KILL  # 32-bit x86
    assert judge(code, 1, architecture=ARCHITECTURES[machine]) == ALLOW
    if machine == "x86_64":
        assert judge(code, 0x40000000 | 165, architecture=ARCHITECTURES[machine]) == KILL


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_those_of_the_kernel(machine: Machine) -> None:
    header = HEADERS[machine]
    if not header.exists():
        pytest.skip("the kernel's headers are not installed")
    text = header.read_text()
    header_numbers = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    ours = {name: numbers[MACHINES.index(machine)] for name, numbers in CALLS.items()}
    assert {name: number for name, number in ours.items() if name in header_numbers} == {
        name: header_numbers[name] for name in ours if name in header_numbers
    }
    newer = {"fchmodat2", "file_setattr", "open_tree_attr", "removexattrat", "setxattrat"}
    assert {name for name, number in ours.items() if number is not None and name not in header_numbers} <= newer


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("seccomp_filter", [PLAIN, STRICT])
def test_no_program_that_runs_as_its_owner_is_made(machine: Machine, seccomp_filter: Filter) -> None:  # S-18
    for mode, expected in ((0o4755, encode_refusal(errno.EPERM)), (0o755, ALLOW), (0o2775, ALLOW)):
        assert verdict(machine, seccomp_filter, "openat", 0, 0, 0o100, mode) == expected
        assert verdict(machine, seccomp_filter, "mknodat", 0, 0, mode) == expected
    assert verdict(machine, seccomp_filter, "openat", 0, 0, 0, 0o4755) == ALLOW, "nothing is made, so no mode was meant"
    assert verdict(machine, seccomp_filter, "openat2") == encode_refusal(errno.ENOSYS)
    assert verdict(machine, PLAIN, "fchmodat", 0, 0, 0o4755) == encode_refusal(errno.EPERM)
    assert verdict(machine, PLAIN, "fchmodat", 0, 0, 0o2775) == ALLOW
