"""Print the lines of a file, sorted."""

import argparse
import sys


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    options = parser.parse_args(arguments)
    with open(options.file, encoding="utf-8") as file:
        lines = file.read().splitlines()
    for line in sorted(lines):
        print(line)


if __name__ == "__main__":
    sys.exit(main())
