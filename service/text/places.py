"""Places of texts in a request, as errors name them. Pure."""

from typing import NamedTuple

from service.errors import InputTooLong, InvalidArgument, Remedy


class Place(NamedTuple):
    """One of the texts of a request: words for it, its path, and that of a text beside it."""

    subject: str
    field: str
    beside: str = ""

    def refused(self, reason: str, remedy: Remedy = "") -> InvalidArgument:
        """The error of the text; the reason is said of it, as in "has no tokens"."""
        return InvalidArgument(
            reason, self.field, subject=self.subject, beside=self.beside, remedy=remedy
        )

    def too_long(self, num_tokens: int | str, most: int) -> InputTooLong:
        """The error of a text that has more tokens than the model takes, which is `most`."""
        return InputTooLong(
            f"has {num_tokens} tokens, the model takes at most {most}: shorten it",
            self.field,
            subject=self.subject,
            beside=self.beside,
            remedy="truncate",
        )


def place_of(index: int, *, is_pair: bool = False) -> Place:
    """The place of a text, or of a pair, by its number."""
    subject, first = f"text {index}", f"texts[{index}]"
    return Place(subject, f"text_pairs[{index}]", first) if is_pair else Place(subject, first)


def place_of_tokens(index: int) -> Place:
    """The place of the tokens of a text."""
    path = f"token_ids[{index}]"
    return Place(path, path)
