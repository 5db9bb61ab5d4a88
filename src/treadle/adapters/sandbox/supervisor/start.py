"""The script that a worker starts: `python -I -S start.py FOLDER`. Stands in for the packages above, so that nothing of
Treadle is loaded but the supervisor itself."""

import sys

_TREADLE = __file__.rpartition("/adapters/sandbox/")[0]

for _path in ("", "/base", "/adapters", "/adapters/sandbox"):
    _name = "treadle" + _path.replace("/", ".")
    _package = type(sys)(_name)
    _package.__path__ = [_TREADLE + _path]
    sys.modules[_name] = _package

if __name__ == "__main__":
    from treadle.adapters.sandbox.supervisor.process import main

    main(sys.argv[1])
