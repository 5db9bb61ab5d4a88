"""What search programs write is read the same in whatever pieces it comes, and in bounded memory."""

import pytest

from treadle.adapters.workspace.search.search import FileReader, LineCount, MatchReader

TEXT = (
    b"./a/x.txt\0" + b"1:1:[Omitted long line]\r\n3:12:[Omitted long line]\r\n" + b"\n"
    b"./b/new\n\nline\0" + b"2:1:\r\n" + b"\n"
    b"./late\0" + b'4:5:[Omitted]\r\n./late: WARNING: stopped searching binary file after match (found "\\0")\n' + b"\n"
    b"./c\0" + b"7:1:x\r\n8:1:[Omitted]\r\n9:2:[Omitted]\r\n"
)
FOUND = [("a/x.txt", 2, [(1, 1), (3, 12)]), ("b/new\n\nline", 1, [(2, 1)]), ("c", 3, [(7, 1), (8, 1)])]


def read(pieces: list[bytes]) -> tuple[list[tuple[str, int, list[tuple[int, int]]]], int]:
    reader = MatchReader(lambda _: True, 2)
    for piece in pieces:
        reader.feed(piece)
    reader.close()
    return [
        (path, counted.count, counted.parse_positions(2)) for path, counted in reader.files.sort_by_name()
    ], reader.total


def test_every_split_reads_the_same() -> None:
    assert read([TEXT]) == (FOUND, 6)
    assert read([TEXT[at : at + 1] for at in range(len(TEXT))]) == (FOUND, 6)
    for at in range(len(TEXT)):
        assert read([TEXT[:at], TEXT[at:]]) == (FOUND, 6), at


def test_a_million_matches_in_one_file_are_counted_and_not_kept() -> None:
    reader = MatchReader(lambda _: True, 50)
    reader.feed(b"./a\0")
    piece = b"1:1:[Omitted long line]\r\n" * 10_000
    for _ in range(100):
        reader.feed(piece)
        assert len(reader._open) + len(reader._counted.head) < 10_000
    reader.close()
    ((path, counted),) = reader.files.sort_by_name()
    assert (path, counted.count, len(counted.parse_positions(50))) == ("a", 1_000_000, 50)


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_of_many_files_the_first_are_kept(size: int) -> None:
    text = b"".join(b"./f%05d.py\0./g%05d.txt\0" % (number, number) for number in reversed(range(5_000)))
    reader = FileReader(lambda path: path.endswith(".py"), 3)
    for at in range(0, len(text), size):
        reader.feed(text[at : at + size])
    assert reader.files.total == 5_000
    assert [path for path, _ in reader.files.sort_by_name()[:3]] == ["f00000.py", "f00001.py", "f00002.py"]
    assert len(reader.files._kept) < 2_000


def test_a_line_without_a_column_begins_at_its_first_byte() -> None:  # T-04
    assert LineCount(2, b"5:3:\n6: \r\n").parse_positions(50) == [(5, 3), (6, 1)]
