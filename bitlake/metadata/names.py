"""Which names mean the same column, table or alias: the one rule that ``spark.sql.caseSensitive`` switches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum

from bitlake.errors import InvalidRequest


class Names(Enum):
    """How names are compared."""

    FOLDED = "folded"
    """Upper and lower case are the same, as in Spark by default."""
    EXACT = "exact"
    """As written, with ``spark.sql.caseSensitive=true``."""

    def key(self, name: str) -> str:
        """What two names share exactly if they are the same."""
        return name if self is Names.EXACT else name.lower()

    def same(self, one: str, other: str) -> bool:
        """Whether two names are the same."""
        return self.key(one) == self.key(other)

    def clear(self, names: Iterable[str]) -> dict[str, str]:
        """The names by :meth:`key`, without those that share theirs with another."""
        known = list(names)
        times = Counter(map(self.key, known))
        return {self.key(n): n for n in known if times[self.key(n)] == 1}

    def check(self, table: str, names: Iterable[str]) -> None:
        """Raise :class:`InvalidRequest` if two columns of a table are the same."""
        seen: dict[str, str] = {}
        for name in names:
            other = seen.setdefault(self.key(name), name)
            if other is not name:
                raise InvalidRequest(
                    f"table '{table}' has columns '{other}' and '{name}', which this session cannot tell apart; "
                    "SET spark.sql.caseSensitive = true first"
                )
