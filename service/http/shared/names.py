"""The names that a dialect has for the values of a call, in the errors of its requests.

A record says what each dialect calls its fields; what a body itself decides is given beside. An
error's path and the ways out of it are exchanged, and never a sentence.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from service.calls.record import Call, names_in
from service.errors import InvalidArgument, LacksKind, Remedy

# How bodies ask for a cut of long texts: OpenAI's and vLLM's, and text-embeddings-inference's.
CUT, TRUNCATE = "set truncate_prompt_tokens to -1", "set truncate to true"
# Where the answers of an embedder are, by their kinds in the typed API.
PATHS_OF_KINDS = {
    "dense": "/v1/embeddings",
    "sparse": "/embed_sparse",
    "token_vectors": "/pooling",
}


@dataclass(frozen=True, slots=True)
class Names:
    """The names of paths in a body, as `errors.path_in` reads them, and its ways out."""

    paths: Mapping[str, str]
    remedies: Mapping[Remedy, str] = field(default_factory=dict)

    def __call__(self, error: InvalidArgument) -> InvalidArgument:
        """The error in words of the body."""
        if isinstance(error, LacksKind):  # which no field of a body names, but its path
            ways = " and ".join(
                PATHS_OF_KINDS[kind] for kind in PATHS_OF_KINDS if kind in error.known
            )
            kind, known = error.kind.removesuffix("_vectors"), " and ".join(error.known)
            text = f"the request is for {kind} vectors, but the model answers {known} only"
            return InvalidArgument(f"{text}: see {ways}", "model")
        return error.named(self.paths, self.remedies)


def names_of(
    dialect: str,
    call: type[Call],
    paths: Mapping[str, str] | None = None,
    *,
    single: Collection[str] = (),
    cut: str = "",
    tokenizer: str = "",
) -> Names:
    """The names of a dialect, and those that a request itself decides.

    Of lists that are `single`, the body has one element in place of the list. `cut` is how the body
    asks for a cut of long texts, if it can, and `tokenizer` what it says of unknown token ids.
    """
    remedies: dict[Remedy, str] = {"tokenizer": tokenizer}
    if cut:
        remedies["truncate"] = f", or {cut}"
    names = names_in(dialect, call) | dict(paths or {})
    return Names(names | {f"{each}[]": names[each] for each in single}, remedies)
