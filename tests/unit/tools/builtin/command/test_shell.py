"""The chat's shell: where it is and what it exported carries over from one command to the next (T-14)."""

import os
import shutil
from pathlib import Path

import pytest

from tests.unit.tools.builtin.command.commanding import Bench
from treadle.protocol.content import Shell
from treadle.tools.builtin.command import shell as carried


@pytest.fixture(params=["bash", "sh"])
def shell(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "sh":
        sh = shutil.which("dash") or shutil.which("sh") or "/bin/sh"
        monkeypatch.setattr(carried, "_shells", lambda: ("", sh))
    return str(request.param)


async def test_directory_and_exports_carry_over(bench: Bench, shell: str) -> None:
    (bench.project / "sub/deep").mkdir(parents=True)
    first = await bench("cd sub/deep; export GREETING='hello  \"you\"\n$x' N=1; PLAIN=no; export N=2")
    assert first.shell == Shell("sub/deep", {"GREETING": 'hello  "you"\n$x', "N": "2"})
    second = await bench('pwd; echo "$GREETING" "$N" "$PLAIN"')
    assert second.text == f'{bench.project}/sub/deep\nhello  "you"\n$x 2 \n[exit 0]'
    assert second.shell is None, "nothing changed, nothing is recorded"


async def test_it_works_when_the_command_exits_or_fails(bench: Bench, shell: str) -> None:
    (bench.project / "sub").mkdir()
    assert (await bench("export A=1; cd sub; exit 3")).shell == Shell("sub", {"A": "1"})
    assert (await bench("set -e; export A=2; false; export A=3")).shell == Shell("sub", {"A": "2"})
    assert (await bench("(cd ..; export A=4); exit 1")).shell is None


@pytest.mark.parametrize("end", ["kill -9 $$", "exec true", "trap : EXIT", "exec 199>&-"])
async def test_what_was_killed_or_became_something_else_leaves_it_as_it_was(bench: Bench, end: str) -> None:
    assert (await bench(f"export A=1; {end}")).shell is None


async def test_a_time_out_leaves_it_as_it_was(bench: Bench) -> None:
    assert (await bench("export A=1; sleep 1000", timeout_s=0.3)).shell is None


async def test_unset_and_back(bench: Bench, shell: str) -> None:
    home = os.environ["HOME"]
    assert (await bench("unset HOME; export A=1")).shell == Shell(exports={"A": "1"}, unset=("HOME",))
    assert (await bench('echo "${HOME-none}"; unset A; export HOME=/x')).text.startswith("none\n")
    assert bench.shell == Shell(exports={"HOME": "/x"})
    assert (await bench(f"export HOME={home}")).shell == Shell()


async def test_a_fresh_one_ignores_it_and_leaves_it(bench: Bench) -> None:
    (bench.project / "sub").mkdir()
    await bench("cd sub; export A=1")
    outcome = await bench('pwd; echo "${A-none}"; export A=2; cd /', fresh=True)
    assert outcome.text == f"{bench.project}\nnone\n[exit 0]"
    assert outcome.shell is None
    assert (await bench("pwd; echo $A")).text == f"{bench.project}/sub\n1\n[exit 0]"


async def test_a_directory_outside_the_root_is_clamped_and_said(bench: Bench) -> None:
    (bench.project / "sub").mkdir()
    await bench("cd sub")
    outcome = await bench("cd /usr; ls > /dev/null")
    assert outcome.shell == Shell(".")
    assert "[the shell was in /usr, outside the project root; the next command starts in the root]" in outcome.text
    os.symlink("/usr", bench.project / "link")
    assert "outside the project root" in (await bench("cd link; ls > /dev/null")).text


async def test_a_directory_that_is_gone(bench: Bench) -> None:
    await bench("mkdir sub; cd sub")
    (bench.project / "sub").rmdir()
    outcome = await bench("pwd")
    assert outcome.text == (
        f"[the shell's directory sub is gone; the command ran in the root instead]\n{bench.project}\n[exit 0]"
    )
    assert "is gone; the next command starts in the root" in (await bench("mkdir d; cd d; rmdir ../d")).text


async def test_a_given_directory_is_only_for_this_command_to_start_in(bench: Bench) -> None:
    (bench.project / "sub").mkdir()
    assert (await bench("true", cwd="sub")).shell == Shell("sub")


async def test_secrets_are_not_recorded_and_it_is_said(tmp_path: Path) -> None:  # S-11
    env = {"PATH": os.environ["PATH"], "MY_KEY": "correct-horse-battery"}
    bench = Bench(tmp_path, env)
    outcome = await bench("export API_TOKEN=x B=ghp_0123456789abcdef C=a-correct-horse-battery-b D=1")
    assert outcome.shell == Shell(exports={"D": "1"})
    assert "[not carried over to later commands: API_TOKEN, B, C " in outcome.text
    assert "correct-horse" not in outcome.text


async def test_only_so_much_is_carried_and_only_text(bench: Bench) -> None:
    outcome = await bench("export BIG=$(head -c 40000 /dev/zero | tr '\\0' x) ODD=$'\\xff' A=1")
    assert outcome.shell == Shell(exports={"A": "1"})
    assert "[not carried over to later commands: BIG, ODD" in outcome.text
    many = await bench("for i in $(seq 100); do export V$i=$(head -c 1000 /dev/zero | tr '\\0' x); done")
    assert many.shell is not None
    assert sum(len(name) + len(value) for name, value in many.shell.exports.items()) <= carried.CAP
    assert len(many.shell.exports) >= 25


async def test_what_others_write_to_the_descriptor_is_no_state(bench: Bench) -> None:
    for junk in (
        "printf 'cwd=/\\n\\0end\\0' >&199; exec true",
        "printf junk >&199",
        "printf '\\0\\0' >&199; exec true",
    ):
        outcome = await bench(junk)
        assert outcome.success
        assert (outcome.shell or Shell()).exports == {}


async def test_background_commands_begin_in_the_shell_and_change_nothing(bench: Bench) -> None:
    (bench.project / "sub").mkdir()
    await bench("cd sub; export A=1")
    outcome = await bench("pwd; echo $A; cd /; export A=2", background=True)
    assert outcome.shell is None
    assert f"{bench.project}/sub\n1\n" in outcome.text
