"""Which adapters are in a graph's places: the least recently used one makes room.

Pure accounting: `write` copies an adapter's matrices into a place. A place whose adapter has a
running sequence is never given to another. An adapter that finds every place in use waits, and the
place with the fewest running sequences takes no more of them, so that it becomes free however
many requests keep coming for it. Everything here is the engine thread's own.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable

from service.contract.adapter import Adapter

Write = Callable[[int, Adapter], None]  # the place, counted from 1


class AdapterPlaces:
    """Places by adapter; holds none of their matrices."""

    def __init__(self, num_places: int, write: Write) -> None:
        self.num_places = num_places
        self.num_writes = 0
        self._write = write
        self._held: OrderedDict[int, int] = OrderedDict()  # by adapter's number, oldest use first
        self._in_use: Counter[int] = Counter()  # running sequences by adapter, as far as planned
        self._waiting: set[int] = set()  # adapters that found no place in this plan
        self._closing: set[int] = set()  # adapters whose place is to become free

    def __repr__(self) -> str:
        return f"<AdapterPlaces {len(self._held)} of {self.num_places} taken>"

    def begin(self, running: Iterable[Adapter | None]) -> None:
        """Begin a plan; `running` has the adapter of each sequence with a slot."""
        self._in_use = Counter(each.number for each in running if each is not None)
        self._waiting.clear()
        self._closing.clear()

    def claim(self, adapter: Adapter | None) -> bool:
        """Whether a sequence may start now: its adapter has a place then, until the next plan."""
        if adapter is None:
            return True
        number = adapter.number
        if number in self._closing or number in self._waiting:
            return False
        if number not in self._held and not self._admit(adapter):
            self._waiting.add(number)
            return False
        self._held.move_to_end(number)
        self._in_use[number] += 1
        return True

    def place_of(self, adapter: Adapter | None) -> int:
        """The place of a running sequence's adapter; 0 for none."""
        return 0 if adapter is None else self._held[adapter.number]

    def _admit(self, adapter: Adapter) -> bool:
        place = self._free_place()
        if place is None:
            open_ones = self._held.keys() - self._closing
            if open_ones:
                self._closing.add(min(open_ones, key=lambda each: (self._in_use[each], each)))
            return False
        self._write(place, adapter)
        self.num_writes += 1
        self._held[adapter.number] = place
        return True

    def _free_place(self) -> int | None:
        """A place without an adapter, or that of the one that was used longest ago."""
        if len(self._held) < self.num_places:
            return next(
                place for place in range(1, self.num_places + 1) if place not in self._held.values()
            )
        idle = next((each for each in self._held if not self._in_use[each]), None)
        return None if idle is None else self._held.pop(idle)
