"""Tables of answers in a terminal: what stands below them is as wide as the terminal."""

import numpy as np
import pytest
from rich.console import Console, RenderableType

from commands.ask.shown import tables
from commands.ask.shown.comparison import ComparedWord
from commands.ask.shown.model_table import ModelTable
from service.calls.answers import Row, Timings
from service.calls.models import ModelFacts, Models
from service.calls.reading import Answers, Fill, FilledMask, FilledText, FilledTexts
from service.calls.texts import Similarities

TIMINGS = Timings(queue_seconds=0.0001, compute_seconds=0.0016)


def lines_of(drawn: RenderableType, width: int = 80) -> list[str]:
    console = Console(width=width, no_color=True)
    with console.capture() as captured:
        console.print(drawn)
    return [line.strip() for line in captured.get().splitlines()]


def test_a_caption_is_not_wrapped_to_the_width_of_a_narrow_table() -> None:
    """Of an answer in 30 columns, and of two texts of one word: one line of some 60 characters."""
    answer = Answers(
        model="squad",
        version="1",
        num_tokens=9,
        timings=TIMINGS,
        answers=(),
        no_answer_score=0.0,
        num_windows=1,
        windows=(),
    )
    lines = lines_of(tables.answers(answer))
    assert max(map(len, lines[:-1])) < 40
    assert lines[-1] == "squad version 1, 9 tokens: queue 0.1 ms, compute 1.6 ms"
    rows = [Row(np.array([1.0, 0.5], np.float32))] * 2
    alike = Similarities(model="words", version="1", num_tokens=2, timings=TIMINGS, rows=rows)
    assert lines_of(tables.similarities(["a", "b"], alike))[-1].endswith("compute 1.6 ms")


def test_a_caption_that_is_longer_than_the_terminal_breaks_between_words() -> None:
    prompts = [f"{'on and on ' * 8}in {place} [MASK]" for place in ("Rome", "New York")]
    lines = lines_of(tables.comparison(prompts, [ComparedWord("a", (-1.0, -2.0))]))
    below = lines[lines.index(next(line for line in lines if line.startswith("1:"))) :]
    assert " ".join(below) == (
        f"1: {prompts[0]} 2: {prompts[1]} natural logarithms of probabilities"
    )
    assert all(40 < len(line) <= 80 for line in below if line.startswith(("1:", "2:")))


MODELS = Models(
    [
        ModelFacts(
            name="a-name-of-twenty-letters",
            version="1234",
            task="token-classification",
            precision="int8-weights",
            max_tokens=512,
            labels=["PER", "ORG", "LOC"],
            origin="distilled-from-another (Apache-2.0), fine-tuned on entities.tsv",
        ),
        ModelFacts(name="add", version="1", task="tensors"),
        ModelFacts(
            name="polite", version="1", task="text-generation", parent="chatty", origin="hub"
        ),
    ],
    1,
)


@pytest.mark.parametrize("width", [80, 100, 140, 200])
def test_the_table_of_models_cuts_nothing(width: int) -> None:
    lines = lines_of(ModelTable(MODELS), width)
    assert max(map(len, lines)) <= width
    text = " ".join("\n".join(lines).replace("│", " ").split())
    assert "…" not in text
    for word in ("a-name-of-twenty-letters", "1234", "token-classification", "int8-weights"):
        assert word in text
    for word in ("512", "PER, ORG, LOC", "distilled-from-another", "(Apache-2.0),", "tensors"):
        assert word in text
    assert "adapter of chatty, hub" in text
    assert ("version 1234" in text) == (width < 140), "one line per model where it fits"


@pytest.mark.parametrize("width", [80, 200])
def test_the_table_of_models_shows_layout_and_device_of_graphs_for_cuda_alone(width: int) -> None:
    graphs = [("cuda", "paged"), ("cuda", ""), ("", ""), ("cpu", "")]
    shown = [
        ModelFacts(
            name="a",
            version="1",
            task="text-generation",
            precision="fp16",
            graph_device=device,
            layout=layout,
        )
        for device, layout in graphs
    ]
    text = "\n".join(lines_of(ModelTable(Models(shown, 1)), width))
    assert (text.count("fp16"), text.count("fp16, for cuda")) == (4, 1)
    assert text.count("fp16, paged, for cuda") == 1
    assert text.count("for cuda") == 2


def test_the_table_of_models_shows_the_ratio_by_which_a_layout_was_chosen() -> None:
    shown = [
        ModelFacts(name="a", version="1", precision="fp16", layout=layout, layout_reason=reason)
        for layout, reason in (
            ("", "1.34 times as fast as padded"),
            ("padded", "1.08 times as fast as packed"),
        )
    ]
    text = "\n".join(lines_of(ModelTable(Models(shown, 1)), 200))
    assert "fp16, packed (1.34 times as fast as padded)" in text
    assert "fp16, padded (1.08 times as fast as packed)" in text


def test_the_table_of_models_shows_what_a_models_own_defaults_sample_with() -> None:
    model = ModelFacts(name="chat", version="1", task="text-generation")
    assert "│ text " in " ".join(lines_of(ModelTable(Models([model], 1)), 200))
    model = model.also(sampling_defaults={"top_p": 0.8, "top_k": 20.0, "temperature": 0.7})
    shown = " ".join(lines_of(ModelTable(Models([model], 1)), 200))
    assert "text, by default with temperature 0.7, top_k 20, top_p 0.8" in shown


def test_the_table_of_models_says_which_ones_take_chats() -> None:
    model = ModelFacts(name="talks", version="1", task="text-generation", has_chat_template=True)
    assert "│ text and chats " in " ".join(lines_of(ModelTable(Models([model], 1)), 200))
    model = model.also(tool_call_form="hermes", sampling_defaults={"top_k": 20.0})
    shown = " ".join(lines_of(ModelTable(Models([model], 1)), 200))
    assert "│ text, chats and calls of functions, by default with top_k 20" in shown


def test_a_long_word_of_an_answer_is_broken_and_not_cut() -> None:
    """As the tokens of languages without spaces are."""
    fill = Fill(0, "x" * 100, 1.0, 0.0)
    masked = FilledText([FilledMask(0, 6, [fill])], 3, False)
    response = FilledTexts(model="", version="", timings=TIMINGS, num_tokens=3, results=[masked])
    rows = lines_of(tables.fills(["[MASK]"], response))[3:-2]
    assert "".join(rows).count("x") == 100
