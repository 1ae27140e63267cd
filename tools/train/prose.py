# SPDX-License-Identifier: Apache-2.0
"""Generated stories and reports: simple English that a 14M-parameter model can continue."""

from __future__ import annotations

from random import Random

import words


def _article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def story(rng: Random, subject: str | None = None) -> str:
    """Tells who lost or found what and where; the names and things recur, as in real text."""
    name, friend = rng.sample(words.NAMES, 2)
    trade = rng.choice(words.TRADES)
    thing = rng.choice(words.THINGS)
    color = rng.choice(words.COLORS)
    adjective = rng.choice(words.ADJECTIVES)
    place, other_place = rng.sample(words.PLACES, 2)
    animal = subject or rng.choice(words.ANIMALS)
    base, past = rng.choice(words.VERBS)
    day = rng.choice(words.DAYS)
    food = rng.choice(words.FOODS)
    city = rng.choice(words.CITIES)
    middle = [
        f"The {thing} was {color} and {adjective}.",
        f"On {day} {name} went to the {place} to look for the {thing}.",
        f'{friend} said: "Did you {base} the {thing}?"',
        f"{name} {past} the {thing} near the {other_place}.",
        f"The {animal} sat beside the {thing} and waited.",
        f"They ate {food} and talked about {city}.",
        f"In the {place} it was quiet, and the {animal} was asleep.",
        f"Nobody in the {other_place} had seen the {color} {thing}.",
        f'"I like your {animal}," said {friend}.',
        f"{friend} gave {name} some {food}.",
        f"After that, the {animal} followed {friend} to the {other_place}.",
    ]
    chosen = rng.sample(middle, rng.randint(3, 7))
    start = rng.choice(
        [
            f"{name} was {_article(trade)} in {city} and had {_article(animal)}.",
            f"Once there was {_article(animal)} that lived with {_article(trade)} called {name}.",
            f"In {city} lived {_article(trade)} called {name}, who had {_article(animal)}.",
        ]
    )
    end = rng.choice(
        [
            f"In the end {name} took the {thing} home.",
            f"So {name} and {friend} became friends.",
            f"From then on the {animal} kept the {thing}.",
        ]
    )
    return " ".join([start, *chosen, end])


def report(rng: Random) -> str:
    """A short list of stock or times, with numbers, in a fixed layout."""
    place = rng.choice(words.PLACES)
    things = rng.sample(words.THINGS, rng.randint(3, 6))
    lines = [f"- {thing}: {rng.randint(1, 99)}" for thing in things]
    head = rng.choice(
        [
            f"Stock of the {place} on {rng.choice(words.DAYS)}:",
            f"Things seen in the {place}, {rng.choice(words.MONTHS)}:",
        ]
    )
    return "\n".join([head, *lines])


def paragraph(rng: Random) -> str:
    return story(rng) if rng.random() < 0.85 else report(rng)
