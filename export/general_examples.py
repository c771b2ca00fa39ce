"""General texts that fit a task, to try a model with that has none of its own.

Imports no PyTorch.
"""

from collections.abc import Iterable

from service.contract.manifest import EXAMPLE, Example

GENERAL = (
    EXAMPLE,
    "The cat sat down because it was tired.",
    "She kept her money in a bank near the river.",
    "The train to the coast was late again.",
    "He would rather read a book than watch a film.",
)
BEGINNINGS = ("The", "It is", "When a", "In the beginning", "There are")
MASKED = (  # `{}` is the mask
    "What a wonderful {}.",
    "Paris is the {} of France.",
    "The cat sat on the {}.",
    "In Texas, they like to buy {}.",
    "In New York, they like to buy {}.",
)
QUESTIONS = (
    ("Where does Anna live?", "Anna lives in Oslo. She works at the harbour."),
    ("What does Tom play?", "Tom is twelve years old. On Sundays he plays chess with Mia."),
    ("When does the shop open?", "The shop by the station opens at nine and closes at six."),
    ("Who wrote the letter?", "The letter that Clara wrote reached her brother in May."),
    ("What colour is the car?", "The neighbours sold their bus and bought a red car."),
)
PAIRS = (
    ("where can I park?", "Cars may be left behind the house."),
    ("where can I park?", "The soup is served with bread."),
    ("how do I make tea?", "Pour boiling water over the leaves and wait three minutes."),
    ("when does the train leave?", "The last one departs at ten in the evening."),
    ("when does the train leave?", "Trains are painted green."),
)


def of_texts(texts: Iterable[str]) -> tuple[Example, ...]:
    return tuple(map(Example, texts))


def examples_for(task: str, mask: str | None = None) -> tuple[Example, ...]:
    """Texts that fit a task; `mask` is the spelling of what is to be filled in."""
    if mask is not None:
        return of_texts(text.format(mask) for text in MASKED)
    if task == "question-answering":
        return tuple(Example(question, context=context) for question, context in QUESTIONS)
    if task == "pair-scoring":
        return tuple(Example(text, text_pair) for text, text_pair in PAIRS)
    return of_texts(BEGINNINGS if task == "text-generation" else GENERAL)
