"""Facts of a folder that its small files and headers say, before anything is made of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Details:
    """Facts that an import reads of a folder; `refusal` where it would end with an error."""

    task: str = ""
    network: str = ""
    labels: tuple[str, ...] = ()
    max_tokens: int = 0
    pooling: str = ""
    has_chat_template: bool = False
    num_weights: int = 0
    remarks: tuple[str, ...] = ()
    refusal: str = ""
