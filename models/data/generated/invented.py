"""Write sentences with tagged names, and questions about short texts, both made up by rule.

    python -m models.data.generated.invented FOLDER

Nothing is downloaded, and the same call always gives the same files. What is held out has names
that the rest has not, and questions in words that the rest has not: what is learnt is how one
speaks of a person, a place, a company or a product, and where a text says what was asked.
"""

import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

NUM_SENTENCES, NUM_HELD_OUT_SENTENCES = 2_400, 600
NUM_TEXTS, NUM_HELD_OUT_TEXTS = 1_000, 150
QUESTIONS_PER_TEXT = 3
FACTS_TOLD = 2  # of each of a text's two subjects
UNANSWERABLE = 0.15  # of all questions
HELD_OUT_SHARE = 0.25  # of all names

FIRST_NAMES = (
    "Ada Amir Anna Aylin Bruno Carla Chen Clara Dario Diego Elena Emil Eva Farid Felix Fatima "
    "Greta Hana Hugo Ida Igor Ines Ivan Jana Jonas Julia Kenji Klara Lars Layla Leo Lina Luca "
    "Maria Marek Mateo Mina Nadia Nils Noor Olga Omar Oscar Paula Pedro Petra Priya Rafael Rosa "
    "Samir Sara Sven Tariq Tessa Theo Vera Viktor Yara Yuki Zoe"
)
LAST_NAMES = (
    "Adler Alvarez Bauer Becker Bianchi Brandt Cohen Costa Dubois Eriksen Farkas Fischer Garcia "
    "Haas Haddad Hansen Ito Ivanov Jensen Kaya Keller Khan Kowalski Kumar Lang Larsen Lopez "
    "Marino Mendez Meyer Moreau Mori Nakamura Nielsen Novak Okafor Olsen Patel Petrov Popescu "
    "Ramos Rossi Sato Schmidt Silva Singh Sokolov Tanaka Torres Varga Vogel Weber Wolf Yilmaz "
    "Zhang Ziegler"
)
PLACES = (
    "Lisbon;Porto;Madrid;Seville;Paris;Lyon;Marseille;Berlin;Hamburg;Munich;Vienna;Graz;Prague;"
    "Brno;Warsaw;Krakow;Budapest;Bucharest;Sofia;Athens;Rome;Milan;Naples;Oslo;Bergen;"
    "Stockholm;Helsinki;Copenhagen;Dublin;Cork;London;Leeds;Glasgow;Boston;Chicago;Denver;"
    "Seattle;Toronto;Montreal;Lima;Quito;Bogota;Santiago;Buenos Aires;Rio de Janeiro;"
    "Mexico City;New York;New Delhi;Mumbai;Tokyo;Osaka;Seoul;Hanoi;Bangkok;Jakarta;Sydney;"
    "Cape Town;Nairobi;Cairo;Tunis"
)
SYLLABLES = "al ber co dan el fir go hal in jo ka lum mar nor or pel qui ros sol tar ul ven wil zen"

COMPANY_KINDS = "Labs Systems Foods Motors Bank Airlines Energy Software Logistics Pharma"
PRODUCT_KINDS = "Phone Watch Tablet Camera Bike Speaker Drone Laptop Printer Car"


@dataclass(frozen=True, slots=True)
class Names:
    """The names in sentences; those of held-out sentences occur in no others."""

    first: Sequence[str]
    last: Sequence[str]
    places: Sequence[str]
    stems: Sequence[str]  # of companies and products

    def person(self, random_: random.Random) -> str:
        return f"{random_.choice(self.first)} {random_.choice(self.last)}"

    def location(self, random_: random.Random) -> str:
        return random_.choice(self.places)

    def corporation(self, random_: random.Random) -> str:
        return f"{random_.choice(self.stems)} {random_.choice(COMPANY_KINDS.split())}"

    def product(self, random_: random.Random) -> str:
        number = random_.choice(["", "", f" {random_.randint(2, 9)}"])
        return f"{random_.choice(self.stems)} {random_.choice(PRODUCT_KINDS.split())}{number}"


def all_names(seed: int = 0) -> tuple[Names, Names]:
    """The names for training, and the held-out ones."""
    shuffler = random.Random(seed)  # noqa: S311 - to reproduce
    parts = []
    syllables = SYLLABLES.split()
    stems = [f"{a}{b}{c}".title() for a in syllables for b in syllables for c in ("", "a", "ix")]
    for names in (FIRST_NAMES.split(), LAST_NAMES.split(), PLACES.split(";"), stems):
        shuffled = list(names)
        shuffler.shuffle(shuffled)
        held_out = round(len(shuffled) * HELD_OUT_SHARE)
        parts.append((shuffled[held_out:], shuffled[:held_out]))
    kept, held = zip(*parts, strict=True)
    return Names(*kept), Names(*held)


# Names stand in brackets, by their kind; every other word is outside of all.
SENTENCES = (
    "{person} lives in {location} .",
    "{person} moved from {location} to {location} last year .",
    "yesterday {person} met {person} at the station in {location} .",
    "{corporation} opened an office in {location} .",
    "{corporation} was founded by {person} .",
    "the new {product} from {corporation} is out now !",
    "i bought a {product} and it broke after two days .",
    "does anyone know if the {product} works in {location} ?",
    "{person} works for {corporation} in {location} .",
    "{person} , who runs {corporation} , said sales were flat .",
    "flights to {location} were cancelled because of the storm .",
    "my aunt {person} sent me a postcard from {location} .",
    "shares of {corporation} fell by four percent on Monday .",
    "{corporation} and {corporation} will merge next spring .",
    "we tested the {product} against the {product} .",
    "is {person} still the head of {corporation} ?",
    "the {product} costs less in {location} than here .",
    "{location} is lovely in the autumn .",
    "a spokesman for {corporation} declined to comment .",
    "thanks to {person} for the photos of {location} !",
    "the weather is fine and nobody is at home .",
    "I think we should leave before it gets dark .",
    "the meeting was moved to Thursday afternoon .",
    "Dr {person} will speak in {location} on Friday .",
    "{person} reviewed the {product} for a magazine .",
    "{corporation} recalled its {product} after complaints .",
    "just landed in {location} , see you tonight {person} !",
    "the train from {location} is late again .",
    "nothing beats a cup of tea in the morning .",
    "{person} left {corporation} to start a bakery .",
)


def sentences(names: Names, count: int, seed: int) -> Iterator[list[tuple[str, str]]]:
    """Words with their IOB tags."""
    random_ = random.Random(f"sentences {seed}")  # noqa: S311 - to reproduce
    makers: dict[str, Callable[[random.Random], str]] = {
        "{person}": names.person,
        "{location}": names.location,
        "{corporation}": names.corporation,
        "{product}": names.product,
    }
    for _ in range(count):
        tagged: list[tuple[str, str]] = []
        for word in random_.choice(SENTENCES).split():
            if word not in makers:
                tagged.append((word, "O"))
                continue
            for place, part in enumerate(makers[word](random_).split()):
                tagged.append((part, f"{'I' if place else 'B'}-{word[1:-1]}"))
        yield tagged


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that can be said of a subject: how it is said, and how it is asked.

    The last way of asking is for what is held out.
    """

    value: str  # what `values_of` gives it
    said: tuple[str, ...]
    asked: tuple[str, ...]


PERSON = (
    Fact(
        "birthplace",
        (
            "{subject} was born in {value}.",
            "{subject} comes from {value}.",
            "{value} is the town where {subject} was born.",
        ),
        (
            "Where was {subject} born?",
            "Where does {subject} come from?",
            "In which city did {subject} come into the world?",
        ),
    ),
    Fact(
        "home",
        (
            "{subject} now lives in {value}.",
            "The home of {subject} is in {value}.",
            "Today {subject} has a flat in {value}.",
        ),
        (
            "Where does {subject} live?",
            "In which city is the home of {subject}?",
            "Which town does {subject} call home today?",
        ),
    ),
    Fact(
        "job",
        (
            "{subject} works as {value}.",
            "For a living, {subject} is {value}.",
            "{subject} became {value} after school.",
        ),
        (
            "What is the job of {subject}?",
            "What does {subject} do for a living?",
            "What profession does {subject} have?",
        ),
    ),
    Fact(
        "employer",
        (
            "{value} pays the salary of {subject}.",
            "{subject} is employed by {value}.",
            "{subject} has a desk at {value}.",
        ),
        (
            "Who employs {subject}?",
            "Which company does {subject} work for?",
            "At which firm is {subject} employed?",
        ),
    ),
    Fact(
        "year",
        (
            "{subject} finished school in {value}.",
            "In {value} {subject} left school.",
            "School ended for {subject} in {value}.",
        ),
        (
            "When did {subject} finish school?",
            "In which year did {subject} leave school?",
            "What year was it when school ended for {subject}?",
        ),
    ),
)
COMPANY = (
    Fact(
        "founder",
        (
            "{subject} was founded by {value}.",
            "{value} started {subject} in a garage.",
            "The founder of {subject} is {value}.",
        ),
        ("Who founded {subject}?", "Who is the founder of {subject}?", "Who started {subject}?"),
    ),
    Fact(
        "home",
        (
            "The main office of {subject} is in {value}.",
            "{subject} is based in {value}.",
            "{subject} has its headquarters in {value}.",
        ),
        (
            "Where is {subject} based?",
            "Where are the headquarters of {subject}?",
            "In which city is the main office of {subject}?",
        ),
    ),
    Fact(
        "product",
        (
            "{subject} makes the {value}.",
            "The {value} is built by {subject}.",
            "{subject} is known for the {value}.",
        ),
        (
            "What does {subject} make?",
            "Which product is {subject} known for?",
            "What is built by {subject}?",
        ),
    ),
    Fact(
        "size",
        (
            "{subject} has {value} employees.",
            "{value} people work at {subject}.",
            "The staff of {subject} numbers {value}.",
        ),
        (
            "How many people work at {subject}?",
            "How many employees does {subject} have?",
            "How large is the staff of {subject}?",
        ),
    ),
    Fact(
        "year",
        (
            "{subject} was set up in {value}.",
            "Since {value} {subject} has been in business.",
            "{subject} opened its doors in {value}.",
        ),
        (
            "When was {subject} set up?",
            "Since when has {subject} been in business?",
            "In which year did {subject} open its doors?",
        ),
    ),
)
JOBS = (
    "a baker;a nurse;a pilot;a teacher;a judge;a carpenter;an architect;an engineer;a chemist;"
    "a librarian;a gardener;a translator;a dentist;an actor;a tailor;a sailor"
)


def values_of(names: Names, random_: random.Random) -> dict[str, str]:
    return {
        "birthplace": names.location(random_),
        "home": names.location(random_),
        "job": random_.choice(JOBS.split(";")),
        "employer": names.corporation(random_),
        "founder": names.person(random_),
        "product": names.product(random_),
        "year": str(random_.randint(1950, 2020)),
        "size": str(random_.randint(12, 9_800)),
    }


def questions(
    names: Names, num_texts: int, seed: int, *, is_held_out: bool
) -> Iterator[Mapping[str, object]]:
    """Each text with its questions, as lines of a .jsonl; some have no answer there."""
    random_ = random.Random(f"questions {seed}")  # noqa: S311 - to reproduce
    for _ in range(num_texts):
        context, told, untold = _text(names, random_)
        for _ in range(QUESTIONS_PER_TEXT):
            has_answer = random_.random() >= UNANSWERABLE
            subject, fact, value = random_.choice(told if has_answer else untold)
            asked = fact.asked[-1] if is_held_out else random_.choice(fact.asked[:-1])
            start = _start(context, fact, subject, value) if has_answer else 0
            answers = [{"text": value, "answer_start": start}] if has_answer else []
            question = asked.format(subject=subject)
            yield {"question": question, "context": context, "answers": answers}


Told = tuple[str, Fact, str]  # subject, fact, value


def _text(names: Names, random_: random.Random) -> tuple[str, list[Told], list[Told]]:
    """A text about two subjects, what it tells, and what one could ask of them besides."""
    told: list[Told] = []
    untold: list[Told] = []
    for _ in range(2):
        is_person = random_.random() < 0.5
        subject = names.person(random_) if is_person else names.corporation(random_)
        facts = list(PERSON if is_person else COMPANY)
        random_.shuffle(facts)
        values = values_of(names, random_)
        every = [(subject, fact, values[fact.value]) for fact in facts]
        told += every[:FACTS_TOLD]
        untold += every[FACTS_TOLD:]
    random_.shuffle(told)
    lines = [_said(random_, *each) for each in told]
    return " ".join(lines), told, untold


def _said(random_: random.Random, subject: str, fact: Fact, value: str) -> str:
    return random_.choice(fact.said).format(subject=subject, value=value)


def _start(context: str, fact: Fact, subject: str, value: str) -> int:
    """The place of the fact's value in its sentence."""
    for said in fact.said:
        place = context.find(said.format(subject=subject, value=value))
        if place >= 0:
            return place + said.replace("{subject}", subject).index("{value}")
    raise AssertionError("the context tells every fact in one of its ways")


def write_entities(folder: Path) -> tuple[Path, Path]:
    """Sentences to learn from, and some held out, as CoNLL files."""
    kept, held_out = all_names()
    parts = {
        "entities.train.conll": sentences(kept, NUM_SENTENCES, 1),
        "entities.test.conll": sentences(held_out, NUM_HELD_OUT_SENTENCES, 2),
    }
    for name, part in parts.items():
        lines = ["".join(f"{word}\t{tag}\n" for word, tag in tagged) for tagged in part]
        (folder / name).write_text("\n".join(lines), encoding="utf-8")
    train, test = (folder / name for name in parts)
    return train, test


def write_questions(folder: Path) -> tuple[Path, Path]:
    """Questions to learn from, and some held out, as lines of JSON."""
    kept, held_out = all_names()
    parts = {
        "questions.train.jsonl": questions(kept, NUM_TEXTS, 3, is_held_out=False),
        "questions.test.jsonl": questions(held_out, NUM_HELD_OUT_TEXTS, 4, is_held_out=True),
    }
    for name, part in parts.items():
        lines = [json.dumps(asked, ensure_ascii=False) + "\n" for asked in part]
        (folder / name).write_text("".join(lines), encoding="utf-8")
    train, test = (folder / name for name in parts)
    return train, test


def main(arguments: list[str]) -> None:
    if len(arguments) != 1:
        sys.exit("usage: python -m models.data.generated.invented FOLDER")
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for path in (*write_entities(folder), *write_questions(folder)):
        print(path)  # noqa: T201 - that is what it is for


if __name__ == "__main__":
    main(sys.argv[1:])
