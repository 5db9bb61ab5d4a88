"""`python -I -S starter.py FOLDER`: starts commands as a supervisor does, from a process as small as one. FOLDER is
where the programs of supervisors lie. Takes jobs from its input, each what `start_child` takes (marshal), and answers
each with a line: the exit code, and what the command wrote as `repr` has it."""

import marshal
import os
import sys


def main(folder: str) -> None:
    sys.path.insert(0, folder)
    import start  # type: ignore[import-not-found]  # noqa: F401  # stands in for the packages above

    from treadle.adapters.sandbox.supervisor.child import start_child
    from treadle.adapters.sandbox.supervisor.tree import ControlGroup

    while True:
        try:
            job = marshal.load(sys.stdin.buffer)
        except EOFError:
            return
        os.chdir(job["folder"])
        ends = start_child(job, 0o022, ControlGroup())
        os.set_blocking(ends.output, True)
        with open(ends.output, "rb") as output:
            said = output.read()
        code = 127 if ends.error else os.waitstatus_to_exitcode(os.waitpid(ends.pid, 0)[1])
        sys.stdout.write(f"{code} {(ends.error or said)!r}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
