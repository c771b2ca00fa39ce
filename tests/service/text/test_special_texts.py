"""Users' texts in prompts: no special token comes of them, and they are read as they were."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer
from tokenizers.normalizers import Lowercase
from tokenizers.processors import TemplateProcessing

from service.errors import InvalidArgument
from service.text.special_texts import MARKS, SpecialTexts, SpecialToken
from service.text.tokenizer import PromptTokenizer
from tests.fakes.sessions import write_byte_tokenizer

START, END = "<|im_start|>", "<|im_end|>"
PIECES = ["<", "|", "im_end", "|>", ">", START, END, "<|im_", "start|>", "é", " ", "\n", "☃", "a"]


def prompts(folder: Path, *special: Any, normalizer: Any = None) -> PromptTokenizer:
    path = folder / "tokenizer.json"
    write_byte_tokenizer(path)
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.add_special_tokens(list(special) or [START, END])
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.save(str(path))
    return PromptTokenizer(path, 10_000, 10_000)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PromptTokenizer:
    return prompts(tmp_path_factory.mktemp("tokenizer"), START, END, "☃")


def written(tokenizer: PromptTokenizer, *texts: str) -> list[int]:
    """The ids of texts, each between special tokens that a template wrote."""
    special = tokenizer.special_texts
    mark = special.mark_in(texts, ())
    turns = "".join(f"{START}{text}{END}" for text in special.broken(texts, mark))
    ids: list[int] = tokenizer.encode_marked(turns, mark).tolist()
    return ids


def special_ids(tokenizer: PromptTokenizer) -> dict[str, int]:
    return {name: tokenizer.ids_of(name)[0] for name in (START, END)}


def test_a_token_of_one_character_is_the_template_s_also_before_a_text_with_it(
    tokenizer: PromptTokenizer,
) -> None:
    """Three of a template's, and between the last two a text's, which is no special token."""
    special = tokenizer.special_texts
    texts = ("a☃a",)
    mark = special.mark_in(texts, ())
    (text,) = special.broken(texts, mark)
    ids: list[int] = tokenizer.encode_marked(f"☃b☃{text}☃", mark).tolist()
    (snowman,) = tokenizer.ids_of("☃")
    assert [place for place, token_id in enumerate(ids) if token_id == snowman] == [
        0,
        2,
        len(ids) - 1,
    ]
    assert len(ids) == 3 + len("b") + len("a☃a".encode())


@settings(max_examples=300, deadline=None)
@given(texts=st.lists(st.lists(st.sampled_from(PIECES), max_size=6).map("".join), max_size=4))
def test_special_tokens_are_the_templates_and_texts_are_whole(
    tokenizer: PromptTokenizer, texts: list[str]
) -> None:
    if not texts:
        return
    ids, special = written(tokenizer, *texts), special_ids(tokenizer)
    is_special = [token_id in tokenizer.meaningless_ids for token_id in ids]
    assert sum(is_special) == 2 * len(texts)
    assert ids.count(special[START]) == ids.count(special[END]) == len(texts)
    said = "".join(f"{START}{text}{END}" for text in texts)
    assert tokenizer.text_of(ids) == said


@settings(max_examples=100, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_a_text_without_special_tokens_is_encoded_as_ever(
    tokenizer: PromptTokenizer, text: str
) -> None:
    if "☃" in text:
        return
    special = special_ids(tokenizer)
    alone = list(text.encode()) and tokenizer._whole.encode(text, add_special_tokens=False).ids
    assert written(tokenizer, text) == [special[START], *alone, special[END]]


def test_texts_that_spell_a_special_token_together_are_texts(tokenizer: PromptTokenizer) -> None:
    special = tokenizer.special_texts
    mark = special.mark_in((), ())
    one, other = special.broken(["<|im_", "end|>"], mark)
    ids = tokenizer.encode_marked(one + other, mark).tolist()
    assert special_ids(tokenizer)[END] not in ids
    assert tokenizer.text_of(ids) == END


def test_names_in_objects_are_users_texts_too(tokenizer: PromptTokenizer) -> None:
    special = tokenizer.special_texts
    broken = special.broken({END: [END, 1, None, {"a": END}]}, MARKS[0])
    assert END not in repr(broken)


def test_a_token_that_takes_the_space_beside_it_still_does(tmp_path: Path) -> None:
    """Phi-3's do."""
    tokenizer = prompts(tmp_path, START, AddedToken(END, rstrip=True, special=True))
    special = special_ids(tokenizer)
    mark = tokenizer.special_texts.mark_in((), ())
    ids = tokenizer.encode_marked(f"{END} \n{START}", mark).tolist()
    assert ids == [special[END], special[START]]
    user = tokenizer.special_texts.broken(START, mark)
    assert tokenizer.encode_marked(f"{END} \n{user}", mark).tolist()[0] == special[END]
    assert tokenizer.encode_marked(f"{END} \n{user}", mark).tolist().count(special[START]) == 0


def test_a_special_token_that_normalising_would_make_is_a_text(tmp_path: Path) -> None:
    tokenizer = prompts(
        tmp_path, START, AddedToken(END, normalized=True, special=True), normalizer=Lowercase()
    )
    ids, special = written(tokenizer, END.upper()), special_ids(tokenizer)
    assert ids.count(special[END]) == 1


def test_a_mark_is_a_character_that_no_text_has() -> None:
    special = SpecialTexts([SpecialToken(END)])
    assert special.mark_in([MARKS[0], {MARKS[1]: 1}], [MARKS[2]]) == MARKS[3]
    with pytest.raises(InvalidArgument, match="that Unicode says is none"):
        special.mark_in("".join(MARKS), ())


def test_half_a_surrogate_pair_is_refused(tokenizer: PromptTokenizer) -> None:
    with pytest.raises(InvalidArgument, match="half of a surrogate pair"):
        tokenizer.encode_marked("\ud800", MARKS[0])


def test_what_the_tokenizer_adds_to_plain_prompts_stands_once_in_a_rendered_one(
    tmp_path: Path,
) -> None:
    """The beginning of a text, which the template writes itself."""
    path = tmp_path / "tokenizer.json"
    prompts(tmp_path, START, END)
    tokenizer = Tokenizer.from_file(str(path))
    start = tokenizer.token_to_id(START)
    tokenizer.post_processor = TemplateProcessing(
        single=f"{START} $A", special_tokens=[(START, start)]
    )
    tokenizer.save(str(path))
    adding = PromptTokenizer(path, 100, 100)
    assert adding.encode("a").tolist() == [start, ord("a")]
    assert adding.encode_marked(f"{START}a", MARKS[0]).tolist() == [start, ord("a")]
