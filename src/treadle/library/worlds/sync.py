"""Worlds without `async` (E-05)."""

from treadle.base.loop_thread import Facade, waited
from treadle.library.worlds.worlds import Committed, Worlds


class SyncWorlds(Facade[Worlds]):
    """See `treadle.library.worlds.worlds.Worlds`."""

    open = waited(Worlds.open)
    get = waited(Worlds.get)
    list = waited(Worlds.list)
    effect = waited(Worlds.effect)
    diff = waited(Worlds.diff)
    rebase = waited(Worlds.rebase)
    drop = waited(Worlds.drop)

    def commit(self, id: str) -> Committed:
        return self._loop.run(self._wrapped.commit(id))
