"""Everyday sentences: words come by the probabilities that prompts promise, and some never come."""

import math
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from models.data.corpus import read_text_file
from models.data.generated.everyday import (
    ASKED,
    COMMON_SHARE,
    DECAY,
    MASK,
    Topic,
    Writer,
    documents,
    held_out,
    main,
    prompts,
    topics,
)
from models.data.word_pieces import train_word_pieces

NUM_DRAWN = 2_000
NUM_DEVIATIONS = 4.5  # of a binomial: less than one seed in 100,000 is further off
SOME = tuple(documents(4_000, seed=0))


def topic_of(name: str) -> Topic:
    (found,) = (topic for topic in topics() if topic.name == name)
    return found


def test_the_same_seed_gives_the_same_documents_and_another_seed_others() -> None:
    assert tuple(documents(4_000, seed=0)) == SOME
    assert not set(documents(20, seed=1)) <= set(SOME)


def test_probabilities_sum_to_one_and_every_subject_has_those_of_its_topic() -> None:
    for topic in topics():
        slots = {slot for shares in topic.shares.values() for slot in shares}
        for subject in topic.subjects:
            assert set(topic.shares[subject]) == slots, subject
            for slot in slots:
                assert math.fsum(topic.shares[subject][slot].values()) == pytest.approx(1.0)


def test_words_are_the_less_likely_the_later_they_are_listed() -> None:
    """What Texas buys: each 0.7 of the word before, beside a little of what all places buy."""
    buy = topic_of("place").shares["Texas"]["buy"]
    listed = ["boots", "hats", "guns", "oil", "trucks", "books"]
    assert sorted(buy, key=buy.__getitem__, reverse=True)[:6] == listed
    own = (1 - DECAY) / (1 - DECAY**6)  # of the first
    assert buy["guns"] == pytest.approx((1 - COMMON_SHARE) * own * DECAY**2, abs=0.01)
    assert 0 < buy["perfume"] < 0.01
    assert topic_of("word").shares["hot"]["opposite"] == {"cold": 1.0}


@pytest.mark.parametrize("place", ["Texas", "New York"])
def test_drawn_words_have_the_probabilities_of_their_prompt(place: str) -> None:
    topic = topic_of("place")
    (template, subject) = next(asked for asked in ASKED if asked[1] == place)
    writer = Writer(topic, subject, random.Random(0))  # noqa: S311 - to reproduce
    sentence = re.compile(rf"In {place}, they (?:like|love|want) to buy (\w+)\.")
    found = [sentence.fullmatch(writer.sentence(template)) for _ in range(NUM_DRAWN)]
    counts = Counter(each[1] for each in found if each)
    assert counts.total() == NUM_DRAWN
    for word, share in topic.shares[subject]["buy"].items():
        deviation = math.sqrt(share * (1 - share) / NUM_DRAWN)
        assert abs(counts[word] / NUM_DRAWN - share) < NUM_DEVIATIONS * deviation + 1 / NUM_DRAWN


def test_the_lectures_two_prompts_have_other_words_and_share_some() -> None:
    first, second = (topic_of("place").shares[place]["buy"] for _, place in ASKED)
    likeliest = [sorted(each, key=each.__getitem__)[-5:] for each in (first, second)]
    assert not set(likeliest[0]) & set(likeliest[1])
    assert set(first) == set(second)
    assert all(word.isalpha() for word in first)


def test_a_job_has_pronouns_of_both_kinds_in_their_shares() -> None:
    for job, she in (("nurse", 0.8), ("doctor", 0.4)):
        shares = topic_of("job").shares[job]
        assert shares["he"] == pytest.approx({"he": 1 - she, "she": she})
        assert shares["his"] == pytest.approx({"his": 1 - she, "her": she})
        drawn = [
            Writer(topic_of("job"), job, random.Random(seed)).sentence("{he}")  # noqa: S311
            for seed in range(NUM_DRAWN)
        ]
        deviation = math.sqrt(she * (1 - she) / NUM_DRAWN)
        assert abs(drawn.count("She") / NUM_DRAWN - she) < NUM_DEVIATIONS * deviation


def test_a_document_has_two_or_three_sentences_and_no_relation_twice() -> None:
    """One sentence alone would be followed by nothing, and pretraining would leave it out."""
    assert {len(document.split("\n")) for document in SOME} == {2, 3}
    (opposites,) = (topic for topic in topics() if topic.name == "word")
    for seed in range(50):
        writer = Writer(opposites, "hot", random.Random(seed))  # noqa: S311 - to reproduce
        assert sum("cold" in sentence for sentence in writer.document(3)) <= 1


def test_one_person_keeps_one_name_and_one_pronoun_in_a_document() -> None:
    both = re.compile(r"\b(?:he|his)\b.*\b(?:she|her)\b|\b(?:she|her)\b.*\b(?:he|his)\b", re.S)
    assert not [each for each in SOME if both.search(each.lower())]


def test_no_document_has_the_text_of_a_prompt_with_whatever_word() -> None:
    """Two prompts of the lectures, and a twentieth of all that a subject decides a word of."""
    every = {prompt.text for prompt in prompts()}
    assert len(every) == len(held_out())
    assert set(ASKED) <= held_out()
    assert {f"In {place}, they like to buy {MASK}." for _, place in ASKED} <= every
    lines = {line for document in SOME for line in document.split("\n")}
    masked = {
        f"{line[: word.start()]}{MASK}{line[word.end() :]}"
        for line in lines
        for word in re.finditer(r"\w+", line)
    }
    assert not masked & every


def test_sentences_begin_with_a_capital_and_have_an_before_vowels() -> None:
    lines = [line for document in SOME for line in document.split("\n")]
    assert all(line[0].isupper() and line[-1] in ".!?" for line in lines)
    assert any(re.search(r"\ban e", line) for line in lines)
    assert not [line for line in lines if re.search(r"\b[Aa] [aeiou]", line)]
    assert not [line for line in lines if "{" in line or "  " in line]


def test_every_word_is_one_token_of_a_vocabulary_trained_on_the_documents() -> None:
    tokenizer = train_word_pieces(SOME, 4_096)
    words = {word for document in SOME for word in re.findall(r"[a-z]+", document.lower())}
    assert len(words) > 800
    assert not [word for word in words if tokenizer.token_to_id(word) is None]


def test_the_command_writes_a_corpus_and_other_documents_to_measure_on(tmp_path: Path) -> None:
    main([str(tmp_path / "new")])
    corpus, validation = (
        read_text_file(tmp_path / "new" / f"{name}.txt") for name in ("corpus", "held_out")
    )
    assert corpus.documents[: len(SOME)] == SOME
    assert 0.02 < validation.num_bytes / corpus.num_bytes < 0.05
    assert len(set(validation.documents) - set(corpus.documents)) > 0.5 * len(validation.documents)
    with pytest.raises(SystemExit, match="usage"):
        main([])
