# SPDX-License-Identifier: Apache-2.0
"""Word lists for the generated part of the training data. Everything here is plain vocabulary."""

from __future__ import annotations

KEYS: list[str] = """
falcon maple river stone copper violet amber cedar comet garden harbor island jasper kettle
lantern meadow nickel orchid pepper quartz raven saddle tulip umber velvet willow yarrow zephyr
anchor beacon canyon dragon ember forest glacier hazel indigo juniper knight lemon marble needle
olive panther quiver rabbit silver tiger urchin valley walnut acorn badger castle dolphin eagle
feather ginger hammer iris jungle kernel lotus magnet nectar otter pebble queen rocket shadow
thunder unicorn vessel winter anvil bamboo candle desert engine flower goblet helmet icicle jacket
kitten ladder mirror nugget oyster pencil quilt ribbon spider temple vulture wagon alpine basket
camera diamond echo fossil guitar harvest insect jewel kayak leopard monsoon novel onion parrot
quarry radish salmon turtle vanilla whale apple bridge crystal donkey elbow fabric granite honey
ivory jigsaw koala locket mango north oasis pirate rapids sparrow timber vapor wizard almond
bishop cobalt daisy elm fiddle gazelle heron inkwell jaguar lilac mammoth nutmeg opal pigeon ruby
sable topaz viper wolf aspen birch clover dune eclipse fern grotto hawk ingot jade kelp lava mint
nova orbit pine quail reef sage thorn vine wheat yacht arrow bell coral drum eel flint gale hook
iron juno kite lamp moon nest oak pearl quest rose sail tent vault wren yam zinc atlas blaze cliff
delta fable gem hill ink jet lake moss node oven path root seed tower wave
""".split()

NAMES: list[str] = """
Ana Ben Carla David Elena Felix Grace Hugo Irene Jonas Karin Leo Maria Nina Oscar Paula Quinn Rosa
Simon Tara Victor Wanda Xavier Yara Zoe Adam Bella Colin Diana Erik Fiona Gustav Helen Ivan Julia
Kurt Laura Martin Nora Otto Petra Ralf Sofia Thomas Ursula Vera Walter Alice Boris Clara Daniel
Emma Frank Greta Hanna Ian Jane Kevin Linda Mark Olga Peter Ruth Sam Tina Lucas Mia Noah Omar
Priya Ravi Sven Yusuf
""".split()

CITIES: list[str] = """
Paris Oslo Madrid Lisbon Vienna Prague Rome Athens Dublin Berlin Warsaw Helsinki Cairo Nairobi
Tokyo Seoul Delhi Lima Quito Bogota Havana Ottawa Canberra Bern Brussels Budapest Copenhagen
Stockholm
""".split()

CAPITALS: list[tuple[str, str]] = [
    ("France", "Paris"),
    ("Norway", "Oslo"),
    ("Spain", "Madrid"),
    ("Portugal", "Lisbon"),
    ("Austria", "Vienna"),
    ("Italy", "Rome"),
    ("Greece", "Athens"),
    ("Ireland", "Dublin"),
    ("Germany", "Berlin"),
    ("Poland", "Warsaw"),
    ("Finland", "Helsinki"),
    ("Egypt", "Cairo"),
    ("Kenya", "Nairobi"),
    ("Japan", "Tokyo"),
    ("India", "New Delhi"),
    ("Peru", "Lima"),
    ("Ecuador", "Quito"),
    ("Colombia", "Bogota"),
    ("Cuba", "Havana"),
    ("Canada", "Ottawa"),
    ("Australia", "Canberra"),
    ("Switzerland", "Bern"),
    ("Belgium", "Brussels"),
    ("Hungary", "Budapest"),
    ("Denmark", "Copenhagen"),
    ("Sweden", "Stockholm"),
]

OPPOSITES: list[tuple[str, str]] = [
    ("hot", "cold"),
    ("big", "small"),
    ("fast", "slow"),
    ("high", "low"),
    ("open", "closed"),
    ("light", "dark"),
    ("early", "late"),
    ("full", "empty"),
    ("hard", "soft"),
    ("left", "right"),
    ("new", "old"),
    ("near", "far"),
    ("rich", "poor"),
    ("strong", "weak"),
    ("thick", "thin"),
    ("true", "false"),
    ("wet", "dry"),
    ("young", "old"),
    ("day", "night"),
    ("first", "last"),
]

DAYS: list[str] = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS: list[str] = (
    "January February March April May June July August September October November December"
).split()
COLORS: list[str] = "red blue green yellow white black orange purple brown grey pink".split()
FOODS: list[str] = (
    "bread soup rice pasta cheese salad fish beans cake pie tea coffee milk juice".split()
)
ANIMALS: list[str] = (
    "dog cat horse cow sheep goat duck hen fox bear mouse frog crow owl bee".split()
)
THINGS: list[str] = (
    "book lamp chair table box cup bag coat hat shoe key map bell rope clock ball".split()
)
PLACES: list[str] = "kitchen garden library market school station harbor museum park office".split()
TRADES: list[str] = (
    "baker teacher doctor farmer painter sailor driver cook writer nurse tailor".split()
)
ADJECTIVES: list[str] = (
    "old small quiet bright heavy warm clean round simple strange tall kind".split()
)
VERBS: list[tuple[str, str]] = [
    ("find", "found"),
    ("carry", "carried"),
    ("clean", "cleaned"),
    ("paint", "painted"),
    ("lose", "lost"),
    ("buy", "bought"),
    ("sell", "sold"),
    ("repair", "repaired"),
    ("hide", "hid"),
    ("borrow", "borrowed"),
    ("bring", "brought"),
    ("draw", "drew"),
]
