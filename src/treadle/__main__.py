"""`python -m treadle`."""

import sys

from treadle.cli import main

if __name__ == "__main__":
    sys.exit(main())
