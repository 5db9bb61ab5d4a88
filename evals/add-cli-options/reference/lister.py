"""Print the lines of a file, sorted."""

import argparse
import sys


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--reverse", action="store_true", help="sort downwards")
    parser.add_argument("--unique", action="store_true", help="print each line once")
    options = parser.parse_args(arguments)
    with open(options.file, encoding="utf-8") as file:
        lines = file.read().splitlines()
    if options.unique:
        lines = set(lines)
    for line in sorted(lines, reverse=options.reverse):
        print(line)


if __name__ == "__main__":
    sys.exit(main())
