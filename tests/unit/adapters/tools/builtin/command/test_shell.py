"""The chat's shell: where it is and what it exported carries over from one command to the next (T-14)."""

import os
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from tests.unit.adapters.tools.builtin.command.commanding import Bench
from treadle.adapters.tools.builtin.command import shell as carried
from treadle.protocol.content import Shell
from treadle.protocol.files import encode_path


@pytest.fixture(params=["bash", "sh"])
def shell(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "sh":
        sh = shutil.which("dash") or shutil.which("sh") or "/bin/sh"
        monkeypatch.setattr(carried, "_find_shells", lambda: ("", sh))
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
    name = "GIT_TERMINAL_PROMPT"  # every command has it
    assert (await bench(f"unset {name}; export A=1")).shell == Shell(exports={"A": "1"}, unset=(name,))
    assert (await bench(f'echo "${{{name}-none}}"; unset A; export {name}=x')).text.startswith("none\n")
    assert bench.shell == Shell(exports={name: "x"})
    assert (await bench(f"export {name}=0")).shell == Shell()


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


async def test_variables_that_start_programs_do_not_carry_over_and_it_is_said(bench: Bench, shell: str) -> None:  # S-18
    names = "BASH_ENV ENV PROMPT_COMMAND LD_PRELOAD GIT_SSH_COMMAND GIT_DIR PYTHONSTARTUP NODE_OPTIONS PAGER"
    outcome = await bench(f"for name in {names}; do export $name=./evil; done; export PYTHONPATH=src A=1")
    assert outcome.shell == Shell(exports={"A": "1", "PYTHONPATH": "src"})
    assert "[not carried over to later commands: BASH_ENV, ENV, GIT_DIR, GIT_SSH_COMMAND, LD_PRELOAD, " in outcome.text
    assert "set it in each command that needs it" in outcome.text
    echo_outcome = await bench('echo "${BASH_ENV-none} ${LD_PRELOAD-none} $A $PAGER"')
    assert echo_outcome.text.startswith("none none 1 cat\n")


async def test_exported_functions_do_not_carry_over_and_it_is_said(bench: Bench) -> None:  # S-18
    outcome = await bench("ls() { echo evil; }; export -f ls")
    assert outcome.shell is None
    assert "BASH_FUNC_ls%%" in outcome.text
    assert "evil" not in (await bench("ls; bash -c ls")).text


async def test_what_an_old_log_carries_is_left_out_now(bench: Bench) -> None:  # S-18
    (bench.project / "evil").write_text("touch ran\n")
    bench.shell = Shell(exports={"BASH_ENV": str(bench.project / "evil"), "A": "1"})
    assert (await bench("bash -c 'echo $A'")).text.startswith("1\n")
    assert not (bench.project / "ran").exists()


async def test_an_activated_environment_carries_over(bench: Bench) -> None:  # T-14
    folder = bench.project / ".venv"
    await bench(f"{sys.executable} -m venv --without-pip {folder}")
    activated = await bench(". .venv/bin/activate")
    assert activated.shell is not None
    assert activated.shell.exports["VIRTUAL_ENV"] == str(folder)
    assert activated.shell.exports["PATH"].startswith(f"{folder}/bin:")
    assert "not carried" not in activated.text
    assert (await bench("command -v python")).text.startswith(f"{folder}/bin/python\n")
    reset_outcome = await bench(f"PATH={os.environ['PATH']}; unset VIRTUAL_ENV VIRTUAL_ENV_PROMPT PS1")
    assert reset_outcome.shell == Shell()


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


async def test_a_folder_whose_name_is_no_text(bench: Bench, shell: str) -> None:  # T-14
    odd = os.fsencode(bench.project) + b"/caf\xe9/in"
    os.makedirs(odd)
    first = await bench("cd caf*/in")
    assert first.shell == Shell(encode_path("caf\udce9/in"))
    assert msgspec.json.decode(msgspec.json.encode(first.shell), type=Shell) == first.shell
    assert (await bench("touch made")).success
    os.unlink(odd + b"/made")
    os.rmdir(odd)
    pwd_outcome = await bench("pwd")
    assert pwd_outcome.text.startswith(
        "[the shell's directory caf\\udce9/in is gone; the command ran in the root instead]"
    )


async def test_variables_that_do_not_fit_are_named_and_the_rest_carries_over(bench: Bench) -> None:  # T-14
    (bench.project / "sub").mkdir()
    await bench("export A=1")
    outcome = await bench("cd sub; export B=2 MANY=$(printf %0200000d 1) name=x Z=3; : > /dev/null")
    assert outcome.shell == Shell("sub", {"A": "1", "B": "2", "Z": "3", "name": "x"})
    assert "[not carried over to later commands: MANY (" in outcome.text


async def test_the_folder_carries_over_whatever_the_variables(bench: Bench, shell: str) -> None:  # T-14
    (bench.project / "sub").mkdir()
    await bench("export A=1")
    value = "x" * 20_000
    outcome = await bench(f"cd sub; i=0; while [ $i -lt 60 ]; do i=$((i + 1)); export V$i={value}; done")
    assert outcome.shell == Shell("sub", {"A": "1"})
    assert "[the exported variables are too long to carry over" in outcome.text
