"""The result of one text in a line."""

from collections.abc import Sequence

from service.calls.features import TextFeatures
from service.calls.reading import FilledText, TextEntities
from service.calls.texts import Classification, Embedding

SHOWN_FILLS = 3  # of a mask


def label(result: Classification) -> str:
    """The best label."""
    return f"{result.labels[0].label} ({result.labels[0].score:.3f})"


def vector(result: Embedding) -> str:
    """The beginning of the vector."""
    return _beginning(result.numbers)


def first_vector(result: TextFeatures) -> str:
    """The beginning of the first token's vector, or of the text's."""
    return _beginning(result.vectors[0].numbers)


def fills(result: FilledText) -> str:
    """The words of the first mask."""
    first = result.masks[0].fills[:SHOWN_FILLS]
    return ", ".join(f"{fill.token} ({fill.score:.3f})" for fill in first)


def entities(result: TextEntities) -> str:
    """The entities with their labels."""
    found = ", ".join(f"{entity.text}: {entity.label}" for entity in result.entities)
    return found or "no entities"


def _beginning(values: Sequence[float]) -> str:
    start = ", ".join(f"{value:.3f}" for value in values[:3])
    return f"{len(values)} values: {start}, …"
