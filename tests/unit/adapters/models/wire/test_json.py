"""The answers of odd servers are decoded as far as possible (fault 9)."""

import msgspec
import pytest

from treadle.adapters.models.wire.json import decode_leniently


class Inner(msgspec.Struct):
    text: str | None = None
    raw: msgspec.Raw = msgspec.Raw()


class Outer(msgspec.Struct, rename="camel"):
    count: int | None = None
    firstInner: Inner | None = None
    inners: list[Inner] | None = None


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (b'{"count":"7","inners":null}', Outer(7)),
        (b'{"count":"many","firstInner":{"text":1}}', Outer(None, Inner())),
        (
            b'{"firstInner":[],"inners":[1,{"text":"a"},{"text":[]}],"other":1}',
            Outer(None, None, [Inner("a"), Inner()]),
        ),
        (b'{"inners":{"text":"a"}}', Outer()),
        (b"{}", Outer()),
    ],
)
def test_what_fits_is_kept(document: bytes, expected: Outer) -> None:
    assert decode_leniently(document, Outer) == expected


def test_raw_parts_stay_exact() -> None:
    outer = decode_leniently(b'{"count":{},"inners":[{"text":3,"raw":{ "a": 1.0 }}]}', Outer)
    assert outer is not None
    assert outer.inners is not None
    assert bytes(outer.inners[0].raw) == b'{ "a": 1.0 }'


@pytest.mark.parametrize("document", [b"", b"{", b"[]", b"null", b"7", b"[" * 100_000, b'{"count":\xff}'])
def test_what_is_no_object_is_nothing(document: bytes) -> None:
    assert decode_leniently(document, Outer) is None
