"""Tagged words and questions: files, entities, agreement, windows, training."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, processors
from torch.nn import functional as F

from models.checkpoints.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from models.data.datasets import Splits
from models.data.generated import invented
from models.data.questions import (
    Agreement,
    Answer,
    Question,
    QuestionDataset,
    exact_match,
    f1,
    read_questions,
)
from models.data.tagged import (
    Counts,
    Entity,
    TaggedDataset,
    TaggedSentence,
    count_entities,
    entities_of,
    read_sentences,
    tag_names,
    total,
)
from models.errors import DatasetError
from models.networks.encoder import Encoder, EncoderConfig
from models.networks.readers import QuestionAnswerer, TokenClassifier
from models.recipes.answering import (
    MAX_ANSWER_TOKENS,
    QUESTION_ANSWERING,
    QuestionRows,
    best_answers,
    best_span,
    span_loss,
    window_questions,
)
from models.recipes.finetune import finetune_by
from models.recipes.tagging import IGNORED, TOKEN_CLASSIFICATION, judge_tags, tokenize_tagged
from models.training.settings import TrainingSettings
from models.training.state import Measurement
from tests.models.runs import question, question_splits, tagged_splits

SETTINGS = TrainingSettings(
    epochs=25, batch_size=8, learning_rate=1e-2, patience=25, precision="off"
)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("", []),
        ("O O", []),
        ("B-a I-a O B-b", [(0, 2, "a"), (3, 4, "b")]),
        ("B-a B-a", [(0, 1, "a"), (1, 2, "a")]),
        ("I-a I-a O", [(0, 2, "a")]),  # begins with I-
        ("O I-a", [(1, 2, "a")]),
        ("B-a I-b I-b", [(0, 1, "a"), (1, 3, "b")]),  # the type changes inside
        ("B-a O I-a", [(0, 1, "a"), (2, 3, "a")]),
        ("I-a B-a I-a", [(0, 1, "a"), (1, 3, "a")]),
        ("B-a I-a I-a", [(0, 3, "a")]),
    ],
)
def test_entities_are_those_of_conlleval(tags: str, expected: list[tuple[int, int, str]]) -> None:
    assert entities_of(tags.split()) == [Entity(*each) for each in expected]


def test_only_entities_with_equal_ends_and_type_agree() -> None:
    """True: a at 0-2, b at 3. Found: a at 0-2, a at 3, a at 4: one of three, and one of two."""
    counts = count_entities([["B-a", "I-a", "O", "B-b", "O"]], [["B-a", "I-a", "O", "B-a", "B-a"]])
    assert counts == {"a": Counts(1, 3, 1), "b": Counts(0, 0, 1)}
    overall = total(counts.values())
    assert (overall.precision, overall.recall) == (1 / 3, 1 / 2)
    assert overall.f1 == pytest.approx(2 * (1 / 3) * (1 / 2) / (1 / 3 + 1 / 2))
    assert (counts["b"].precision, counts["b"].f1, total([]).f1) == (0.0, 0.0, 0.0)
    cut = count_entities([["B-a", "I-a"]], [["B-a", "O"]])
    assert total(cut.values()).f1 == 0.0, "half an entity is none"


def test_tags_of_types_are_sorted_and_outside_is_first() -> None:
    assert tag_names(["b", "a", "b"]) == ("O", "B-a", "I-a", "B-b", "I-b")


def test_sentences_are_read_with_tabs_or_spaces_and_with_columns_between(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text(
        "\ufeff-DOCSTART- -X- O O\n\nNew NNP B-NP B-place\r\nYork NNP B-NP I-place\n\n\n"
        "New York\tB-x\nis\tO\n\ufeff\n"
    )
    found = read_sentences(path)
    assert [sentence.line for sentence in found.examples] == [3, 7]
    assert found.examples[0].words == ("New", "York")
    assert found.examples[1].words == ("New York", "is")
    assert found.examples[1].tags == ("B-x", "O")
    assert found.labels() == ("O", "B-place", "I-place", "B-x", "I-x")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Paris\n", "a.conll:1: expected a word, a tab and a tag"),
        ("in\tO\nParis\tplace\n", "a.conll:2: expected a word"),
        ("Paris\tE-place\n", "(O, B-type or I-type), found 'Paris"),
        ("\tO\n", "a.conll:1: expected a word"),
        ("\n\n", "a.conll holds no sentences"),
        (b"\xff\xfe", "cannot be read as UTF-8"),
    ],
)
def test_a_fault_in_sentences_names_file_and_line(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    path = tmp_path / "a.conll"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DatasetError) as caught:
        read_sentences(path)
    assert message in str(caught.value)


def test_parts_of_a_tagged_word_go_on_with_its_entity(tokenizer: Tokenizer) -> None:
    """The tokenizer parts `free.cash` into three words; the loss knows of their first tokens."""
    sentence = TaggedSentence(1, ("win", "free.cash", "now", "@"), ("O", "B-x", "I-x", "O"))
    rows = tokenize_tagged(TaggedDataset("a", (sentence,)), ("O", "B-x", "I-x"), tokenizer, 20, 0)
    assert rows.targets == ((IGNORED, 0, 1, 2, 2, 2, 0, IGNORED),)
    assert rows.first_tokens == ((1, 2, 5, 6),)
    cut = tokenize_tagged(TaggedDataset("a", (sentence,)), ("O", "B-x", "I-x"), tokenizer, 4, 0)
    assert cut.first_tokens == ((1, 2, None, None),), "words that were cut away have no token"


def test_the_second_token_of_a_word_is_not_learnt() -> None:
    pieces = invented_tokenizer()
    row = tokenize_tagged(
        TaggedDataset("a", (TaggedSentence(1, ("Alberco", "is"), ("B-x", "O")),)),
        ("O", "B-x", "I-x"),
        pieces,
        20,
        0,
    )
    assert len(row.rows[0]) > 4, "the name is several tokens"
    assert row.targets[0][1] == 1
    assert set(row.targets[0][2:-2]) == {IGNORED}


def invented_tokenizer() -> Tokenizer:
    """Words of one letter and longer, from what is trained below; pairs have types."""
    from tokenizers import BertWordPieceTokenizer

    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    vocabulary += [f"##{letter}" for letter in letters] + ["is", "was", "born", "lives", "in"]
    index = {token: i for i, token in enumerate(vocabulary)}
    return Tokenizer.from_str(BertWordPieceTokenizer(index).to_str())


def test_words_that_were_cut_away_are_outside(tokenizer: Tokenizer, config: EncoderConfig) -> None:
    """A network that tags every token B-x: of three entities two are in the row that is left."""
    model = TokenClassifier(Encoder(config), 3)
    with torch.no_grad():
        model.output.weight.zero_()
        model.output.bias.copy_(torch.tensor([0.0, 1.0, 0.0]))
    data = TaggedDataset("a", (TaggedSentence(1, ("win", "free", "cash"), ("B-x",) * 3),))
    rows = tokenize_tagged(data, data.labels(), tokenizer, 4, 0)
    assert judge_tags(model, rows, data.labels()).counts == {"x": Counts(2, 2, 3)}


# Questions.


def test_squad_and_lines_give_the_same_questions(tmp_path: Path) -> None:
    context = "Zoë lives in 東京 — today."
    answers = [{"text": "東京", "answer_start": 13}]
    asked = [
        {"id": "1", "question": "Where?", "answers": answers},
        {"id": "2", "question": "Why?", "answers": answers, "is_impossible": True},
    ]
    squad = {"version": "v2.0", "data": [{"paragraphs": [{"context": context, "qas": asked}]}]}
    (tmp_path / "a.json").write_text(json.dumps(squad))
    lines = [
        {"context": context, "question": "Where?", "answers": answers},
        {"context": context, "question": "Why?", "answers": []},
    ]
    (tmp_path / "a.jsonl").write_text("\n\n".join(map(json.dumps, lines)))
    found = read_questions(tmp_path / "a.json").examples
    assert [example.content for example in found] == [
        example.content for example in read_questions(tmp_path / "a.jsonl").examples
    ]
    assert found[0].answers == (Answer("東京", 13),)
    assert found[1].answers == ()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", "{", "a.jsonl:1: not JSON"),
        ("a.jsonl", "[]", "a.jsonl:1: expected an object with question and context"),
        ("a.jsonl", '{"context": "a"}', "a.jsonl:1: expected a question"),
        ("a.jsonl", '{"question": "a", "context": " "}', "a.jsonl:1: expected a context"),
        ("a.jsonl", '{"question": "a", "context": "b"}', "a.jsonl:1: expected answers, a list"),
        (
            "a.jsonl",
            '\n{"question": "a", "context": "bc", "answers": [{"text": "c", "answer_start": 0}]}',
            "a.jsonl:2: the answer 'c' is not at character 0 of the context, which has 'b' there",
        ),
        (
            "a.jsonl",
            '{"question": "a", "context": "bc", "answers": [{"text": "c", "answer_start": -1}]}',
            "a.jsonl:1: the answer 'c' is not at character -1",
        ),
        ("a.json", "{}", "a.json: expected data, of paragraphs"),
        ("a.json", "[", "a.json: not JSON"),
        ("a.jsonl", "", "a.jsonl holds no questions"),
        ("a.txt", "", "the name must end in one of .json, .jsonl, .ndjson"),
    ],
)
def test_a_fault_in_questions_names_file_and_line(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DatasetError) as caught:
        read_questions(tmp_path / name)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("said", "right", "is_exact", "agreement"),
    [
        ("The Eiffel Tower!", ["eiffel tower"], 1.0, 1.0),
        ("in Paris", ["Paris", "in France"], 0.0, 2 / 3),
        ("Paris Paris", ["Paris"], 0.0, 2 / 3),  # one of two words, and all of one
        ("Rome", ["Paris"], 0.0, 0.0),
        ("", [], 1.0, 1.0),
        ("Paris", [], 0.0, 0.0),
        ("", ["Paris"], 0.0, 0.0),
        ("the", ["a"], 1.0, 1.0),  # both are articles, so both are nothing
    ],
)
def test_agreement_is_that_of_squad(
    said: str, right: list[str], is_exact: float, agreement: float
) -> None:
    assert exact_match(said, right) == is_exact
    assert f1(said, right) == pytest.approx(agreement)


def test_agreement_is_a_mean_over_questions() -> None:
    assert Agreement.of([("a b", ["a b"]), ("c", ["d"])]) == Agreement(0.5, 0.5, 2)
    assert Agreement.of([]) == Agreement(0.0, 0.0, 0)


@pytest.fixture
def pairs_tokenizer(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer


def windows(tokenizer: Tokenizer, *examples: Question, max_tokens: int = 14) -> QuestionRows:
    return window_questions(QuestionDataset("a", examples), (), tokenizer, max_tokens, 0)


def test_a_long_context_is_read_in_windows_that_overlap(pairs_tokenizer: Tokenizer) -> None:
    """Three special tokens and one of the question leave 10 of 14; 5 of them are shared."""
    words = ["free", "cash", "lunch", "home", "later"] * 4
    context = " ".join(words)
    rows = windows(pairs_tokenizer, question(context, ("lunch", context.rindex("lunch"))))
    assert [len(window.ids) for window in rows.windows] == [14, 14, 14]
    covered = [
        context[window.offsets[3][0] : window.offsets[-2][1]].split()  # type: ignore[index]
        for window in rows.windows
    ]
    assert covered == [words[:10], words[5:15], words[10:]]
    first = rows.windows[0]
    assert first.type_ids == (0,) * 3 + (1,) * 11
    assert first.offsets[:3] == (None, None, None)
    targets = [window.target for window in rows.windows]
    assert targets == [(0, 0), (0, 0), (3 + 7, 3 + 7)], "it is in the last one only"


@pytest.mark.parametrize("is_answered", [True, False])
def test_the_target_is_the_answers_first_and_last_token(
    pairs_tokenizer: Tokenizer, is_answered: bool
) -> None:
    answers = [("cash, lunch", 5)] if is_answered else []
    (window,) = windows(pairs_tokenizer, question("free cash, lunch", *answers)).windows
    assert window.target == ((4, 6) if is_answered else (0, 0))


def test_a_question_that_leaves_no_room_for_a_context_is_refused(
    pairs_tokenizer: Tokenizer,
) -> None:
    with pytest.raises(DatasetError, match="a:1: the question has 4 tokens, at most 3 leave room"):
        windows(pairs_tokenizer, question("free", text="win win win win"))


def test_the_best_span_is_that_of_all_that_are_allowed() -> None:
    """Against all pairs of tokens, one by one."""
    generator = torch.Generator().manual_seed(0)
    for num_tokens in (2, 5, 40):
        logits = torch.randn(num_tokens, 2, generator=generator)
        offsets = [None if place < 2 else (place, place + 1) for place in range(num_tokens)]
        allowed = [
            (float(logits[first, 0] + logits[last, 1]), first, last)
            for first, last in product(range(2, num_tokens), repeat=2)
            if first <= last < first + MAX_ANSWER_TOKENS
        ]
        score, first, last = best_span(logits, offsets)
        if not allowed:
            assert score == float("-inf")
            continue
        assert (first, last) == max(allowed)[1:]
        assert score == pytest.approx(max(allowed)[0])


def test_an_answer_is_the_best_of_all_windows_or_none(pairs_tokenizer: Tokenizer) -> None:
    context = " ".join(["free", "cash", "lunch", "home", "later"] * 4)
    rows = windows(pairs_tokenizer, question(context))
    logits = [torch.full((length, 2), -5.0) for length in rows.lengths()]
    logits[2][10, 0], logits[2][11, 1] = 4.0, 4.0  # lunch home, of the last window
    logits[0][5] = 3.0
    for window_logits in logits:
        window_logits[0] = 4.1  # no answer: 8.2
    assert best_answers(rows, logits) == [""]
    logits[1][0] = 3.0  # one window is enough to have an answer
    assert best_answers(rows, logits) == ["lunch home"]


def test_the_loss_of_spans_knows_no_padding() -> None:
    """Of rows of 2 and 3 tokens, packed: as each row by itself."""
    generator = torch.Generator().manual_seed(1)
    outputs = torch.randn(5, 2, generator=generator, requires_grad=True)
    targets = torch.tensor([[0, 1, 2], [2, 2, 3]])
    alone = [
        F.cross_entropy(row[None, :, side], target[None, side])
        for row, target in zip(torch.split(outputs, [2, 3]), targets, strict=True)
        for side in (0, 1)
    ]
    loss = span_loss(outputs, targets)
    torch.testing.assert_close(loss, torch.stack(alone).mean())
    loss.backward()  # type: ignore[no-untyped-call]
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()


# Training.


@pytest.fixture
def embedder(pairs_tokenizer: Tokenizer, embedder_checkpoint: Checkpoint) -> Checkpoint:
    return embedder_checkpoint


def test_a_network_learns_to_tag(embedder: Checkpoint) -> None:
    result = finetune_by(TOKEN_CLASSIFICATION, embedder, tagged_splits(), SETTINGS)
    assert result.evaluation.overall.f1 == 1.0
    assert result.checkpoint.metrics["validation_entity_f1"] == 1.0
    assert result.checkpoint.labels == ("O", "B-x", "I-x")
    again = finetune_by(
        TOKEN_CLASSIFICATION, result.checkpoint, tagged_splits(), replace(SETTINGS, epochs=1)
    )
    assert again.evaluation.overall.f1 == 1.0, "a tagger with the same labels goes on"


def test_a_network_learns_to_answer_and_not_to(embedder: Checkpoint) -> None:
    settings = replace(SETTINGS, epochs=60, patience=60)
    result = finetune_by(QUESTION_ANSWERING, embedder, question_splits(), settings)
    assert result.evaluation.answerable.exact_match == 1.0
    assert result.evaluation.unanswerable.exact_match == 1.0
    assert result.evaluation.overall.num_questions == 16


def test_the_best_epoch_has_the_highest_f1_then_the_lowest_loss() -> None:
    """F1 is 0 for long where most tags are O, and the loss goes on falling meanwhile."""
    first, second, third = (
        Measurement(number, number, 0.0, loss, {"f1": f1})
        for number, (loss, f1) in enumerate([(0.9, 0.0), (0.5, 0.0), (0.6, 0.4)], 1)
    )
    assert second.is_better_than(first, "f1")
    assert third.is_better_than(second, "f1")
    assert not third.is_better_than(second), "by the loss alone"
    assert not first.is_better_than(first, "f1")
    assert TOKEN_CLASSIFICATION.criterion(("O",)).score == "entity_f1"


def test_unknown_types_and_sets_without_entities_are_refused() -> None:
    train = TaggedDataset("a", (TaggedSentence(1, ("x",), ("B-a",)),))
    other = TaggedDataset("b", (TaggedSentence(1, ("x",), ("B-b",)),))
    with pytest.raises(DatasetError, match="b: the type 'b' is not among those of the training"):
        Splits(train, other)
    with pytest.raises(DatasetError, match="a has no entity: all tags are O"):
        Splits(TaggedDataset("a", (TaggedSentence(1, ("x",), ("O",)),)), other)
    with pytest.raises(DatasetError, match="a has no question with an answer"):
        Splits(QuestionDataset("a", (question("x"),)), QuestionDataset("a", ()))


def test_questions_of_one_context_are_not_parted() -> None:
    examples = tuple(question(f"context {i // 3}") for i in range(30))
    kept, held_out = QuestionDataset("a", examples).split([0.2], 0)
    assert len(held_out) == 6
    assert not {e.context for e in kept.examples} & {e.context for e in held_out.examples}


@pytest.mark.parametrize("task", ["token-classification", "question-answering"])
def test_networks_come_back_from_their_folder(
    task: str, config: EncoderConfig, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    torch.manual_seed(3)
    is_tagger = task == "token-classification"
    model = TokenClassifier(Encoder(config), 3) if is_tagger else QuestionAnswerer(Encoder(config))
    labels = ("O", "B-x", "I-x") if is_tagger else ()
    checkpoint = Checkpoint(model.eval(), task, labels, tokenizer, 12, "tiny")  # type: ignore[arg-type]
    save_checkpoint(checkpoint, tmp_path / "saved")
    loaded = load_checkpoint(tmp_path / "saved")
    assert (loaded.task, loaded.labels) == (task, labels)
    ids = torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    packed = model(ids, mask)
    assert packed.shape == (7, 3 if is_tagger else 2), "the real tokens of both rows"
    torch.testing.assert_close(loaded.text_network.eval()(ids, mask), packed)
    alone = model(ids[1:, :3], mask[1:, :3])
    torch.testing.assert_close(packed[4:], alone, atol=1e-5, rtol=0)


def test_what_is_made_up_is_always_the_same_and_held_out_names_are_new(tmp_path: Path) -> None:
    kept, held_out = invented.all_names()
    assert not set(kept.first) & set(held_out.first)
    assert not set(kept.stems) & set(held_out.stems)
    (train, test), paths = invented.write_entities(tmp_path), invented.write_questions(tmp_path)
    first = [path.read_bytes() for path in (train, test, *paths)]
    invented.main([str(tmp_path)])
    assert [path.read_bytes() for path in (train, test, *paths)] == first
    assert read_sentences(train).labels() == read_sentences(test).labels()
    questions, unseen = (read_questions(path) for path in paths)
    assert len(questions) == 3 * invented.NUM_TEXTS
    share = sum(not example.answers for example in questions.examples) / len(questions)
    assert 0.1 < share < 0.2
    assert not {e.question for e in questions.examples} & {e.question for e in unseen.examples}
