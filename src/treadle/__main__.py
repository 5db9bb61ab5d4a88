"""`python -m treadle`."""

import sys

from treadle.frontends.cli import main

if __name__ == "__main__":
    sys.exit(main())
