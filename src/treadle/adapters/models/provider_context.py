"""The context that adapters get when they are created: the environment, the keys, one shared HTTP session, the
catalogue of models, and the folder of downloaded models. Knows no provider."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from treadle.adapters.models.catalog.lookup import Catalogue, ServerFacts
from treadle.adapters.models.keys import Secret, find_key, read_stored_access
from treadle.adapters.models.providers import VARIABLES
from treadle.errors import ConfigError

if TYPE_CHECKING:
    from treadle.adapters.models.wire.http import Http

_T = TypeVar("_T")


class ProviderContext:
    def __init__(self, env: Mapping[str, str], home: Path | None = None) -> None:
        self.env = env
        self.home = home
        self.catalogue = Catalogue(home)
        self.facts = ServerFacts(home)
        self._http: Http | None = None
        self._shared: dict[Callable[[ProviderContext], Any], Any] = {}

    @property
    def http(self) -> "Http":
        """The session that all models share, made when the first of them needs it."""
        if self._http is None:
            from treadle.adapters.models.wire.http import Http

            self._http = Http()
        return self._http

    def find_address(self, variable: str) -> str:
        """The base URL in an environment variable, else the one that a person entered, or nothing."""
        url = self.env.get(variable, "").strip() or read_stored_access(self.home).addresses.get(variable, "")
        if url and not url.startswith(("http://", "https://")):
            raise ConfigError(f"{variable} is {url!r}; it must begin with http:// or https://")
        return url

    def find_key(self, variable: str, *, stored: bool = True) -> Secret:
        """A key from the environment, or a `stored` one."""
        return find_key(self.env, variable, keyring=stored, home=self.home)

    def require_access(self, ref: str, base_url: str = "") -> tuple[Secret, str]:
        """A key and an address, of which one must be set. A stored key must not go to another host."""
        keys, (url_variable, *_) = VARIABLES[ref.partition(":")[0]]
        key_variable = next((variable for variable in keys if self.env.get(variable)), keys[0])
        url = self.find_address(url_variable)
        key = self.find_key(key_variable, stored=not url)
        if not key and not url:
            raise ConfigError(f"{ref} needs a key: set {key_variable}, or {url_variable} for a server that needs none")
        return key, url or base_url

    def share(self, make: "Callable[[ProviderContext], _T]") -> _T:
        """Return the object that all models of a provider share, created on first use."""
        if make not in self._shared:
            self._shared[make] = make(self)
        instance: _T = self._shared[make]
        return instance

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None
        self._shared.clear()
