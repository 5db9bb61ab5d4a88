"""The bounds of an option hold for every way to set it (L-07)."""

import msgspec
import pytest

from treadle.library.config import Settings
from treadle.protocol.http_requests import CreateChat
from treadle.protocol.options import NUMBER_BOUNDS


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in (CreateChat, Settings) for name in NUMBER_BOUNDS if name in kind.__struct_fields__],
)
def test_bounds_are_those_of_the_option(kind: type[msgspec.Struct], name: str) -> None:
    for value in NUMBER_BOUNDS[name]:
        assert getattr(msgspec.convert({name: value}, kind, strict=False), name) == value
    for value in (NUMBER_BOUNDS[name].least - 1, NUMBER_BOUNDS[name].most * 2):
        with pytest.raises(msgspec.ValidationError, match=rf"[<>]= .*{name}"):
            msgspec.convert({name: value}, kind, strict=False)
