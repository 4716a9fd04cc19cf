"""A made-up world, so that nobody knows the answers without searching: its pages, and questions about them.

People live in towns, towns lie on rivers and in lands. A page says about its subject what a question of one hop asks; of two hops
the first page names the subject of the second. All of it is a function of the seed and the number of people.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

from rlinf_search.documents import Document

TOWN_SHARE, RIVER_SHARE, LAND_SHARE = 0.3, 0.1, 0.05
"""Of the number of people; two of each at least."""

_STARTS = ("B", "Br", "D", "Dr", "F", "G", "Gl", "H", "K", "Kr", "L", "M", "N", "P", "Pr", "R", "S", "St", "T", "Tr", "V", "Z")
_VOWELS = ("a", "e", "i", "o", "u", "ae", "ei", "ou")
_ENDS = {"given": ("n", "ra", "lo", "m", "sa", "ric", "vin", "la"),
         "family": ("rk", "sson", "lt", "nner", "vic", "mond", "tz", "ley"),
         "town": ("ford", "burg", "holm", "wick", "stad", "minster", "mouth", "dale"),
         "river": ("ne", "ver", "ssa", "gar", "lm", "ra"), "land": ("nia", "land", "mark", "via", "stan", "ria")}
_TRADES = ("painter", "baker", "pilot", "surgeon", "miller", "judge", "poet", "sailor", "chemist", "carpenter", "teacher",
           "singer")
_GOODS = ("glass", "cheese", "bells", "paper", "wool", "clocks", "salt", "cider", "ropes", "candles", "boots", "honey")


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    trade: str
    town: int


@dataclass(frozen=True, slots=True)
class Town:
    name: str
    river: int
    land: int
    goods: str
    founded: int


@dataclass(frozen=True, slots=True)
class Question:
    """`pages`: titles of those that tell the answer, in the order in which they are read."""

    text: str
    answer: str
    pages: tuple[str, ...]


class World:
    """So many people, and where they live."""

    def __init__(self, people: int, seed: int) -> None:
        self._random = Random(f"world {people} {seed}")
        self._used: set[str] = set()
        counts = {kind: max(2, round(share * people)) for kind, share in
                  (("town", TOWN_SHARE), ("river", RIVER_SHARE), ("land", LAND_SHARE))}
        self.rivers = [self._name("river") for _ in range(counts["river"])]
        self.lands = [self._name("land") for _ in range(counts["land"])]
        self.towns = [self._town() for _ in range(counts["town"])]
        self.people = [self._person() for _ in range(people)]
        self.capitals = [self._below(len(self.towns)) for _ in self.lands]

    @cached_property
    def documents(self) -> list[Document]:
        """A page each, people first."""
        pages = [*map(self._of_person, self.people), *map(self._of_town, self.towns),
                 *map(self._of_river, range(len(self.rivers))), *map(self._of_land, range(len(self.lands)))]
        return [Document(title, title, text) for title, text in pages]

    @cached_property
    def questions(self) -> dict[int, list[Question]]:
        """By the number of hops."""
        return {1: list(self._one_hop()), 2: list(self._two_hops())}

    def _one_hop(self) -> Iterator[Question]:
        for person in self.people:
            yield Question(f"In which town does {person.name} live?", self._home(person).name, (person.name,))
            yield Question(f"What is the trade of {person.name}?", person.trade, (person.name,))
        for town in self.towns:
            yield Question(f"Which river flows through {town.name}?", self.rivers[town.river], (town.name,))
            yield Question(f"In which year was {town.name} founded?", str(town.founded), (town.name,))
            yield Question(f"What is {town.name} known for?", town.goods, (town.name,))

    def _two_hops(self) -> Iterator[Question]:
        for person in self.people:
            town = self._home(person)
            pages = (person.name, town.name)
            yield Question(f"Which river flows through the town where {person.name} lives?", self.rivers[town.river], pages)
            yield Question(f"In which land lies the town where {person.name} lives?", self.lands[town.land], pages)
            yield Question(f"What is the town where {person.name} lives known for?", town.goods, pages)
            yield Question(f"In which year was the town where {person.name} lives founded?", str(town.founded), pages)

    def _of_person(self, person: Person) -> tuple[str, str]:
        return person.name, f"{person.name} is a {person.trade}. {person.name} lives in the town of {self._home(person).name}."

    def _of_town(self, town: Town) -> tuple[str, str]:
        return town.name, (f"{town.name} is a town in {self.lands[town.land]}, on the river {self.rivers[town.river]}. It was "
                           f"founded in {town.founded} and is known for its {town.goods}.")

    def _of_river(self, river: int) -> tuple[str, str]:
        on_it = _listed([town.name for town in self.towns if town.river == river]) or "no town"
        return self.rivers[river], f"The {self.rivers[river]} is a river. It flows through {on_it}."

    def _of_land(self, land: int) -> tuple[str, str]:
        return self.lands[land], f"{self.lands[land]} is a land. Its capital is {self.towns[self.capitals[land]].name}."

    def _home(self, person: Person) -> Town:
        return self.towns[person.town]

    def _person(self) -> Person:
        name = self._unique(lambda: f"{self._word('given')} {self._word('family')}")
        return Person(name, self._choice(_TRADES), self._below(len(self.towns)))

    def _town(self) -> Town:
        return Town(self._name("town"), self._below(len(self.rivers)), self._below(len(self.lands)), self._choice(_GOODS),
                    900 + self._below(1000))

    def _name(self, kind: str) -> str:
        return self._unique(lambda: self._word(kind))

    def _unique(self, draw: Callable[[], str]) -> str:
        """One that nothing else has."""
        while (name := draw()) in self._used:
            pass
        self._used.add(name)
        return name

    def _word(self, kind: str) -> str:
        middle = f"{self._choice(_VOWELS)}{self._choice(_STARTS).lower()}" if self._below(3) else ""
        return f"{self._choice(_STARTS)}{middle}{self._choice(_VOWELS)}{self._choice(_ENDS[kind])}"

    def _choice(self, options: Sequence[str]) -> str:
        return options[self._below(len(options))]

    def _below(self, most: int) -> int:
        return int(self._random.random() * most)  # `random` alone is promised to be the same in every Python


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
