"""Table of docs/reference/settings.md: bounds without a flag, with the code's values."""

from collections.abc import Iterator

from service.batching.limits import BatchLimits
from service.generation import engine
from service.generation.cache import kv_cache
from service.generation.decoders import decoder
from service.observe import page
from service.repository import repository, row_check, row_trials
from service.rpc import metadata_bound, server
from service.runtime import images
from service.serving import chat, workers
from service.serving.tasks import features, fill_mask, task
from service.text import conversation, template_process, tokenizer, word_cache

KIB, MIB = 2**10, 2**20


def table() -> Iterator[str]:
    """Lines of the table."""
    yield "| bound | value |"
    yield "|---|---|"
    for bound, value in (*_of_requests(), *_of_models(), *_of_connections()):
        shown = f"{value:,}" if isinstance(value, int) else value
        yield f"| {bound} | {shown} |"


def _of_requests() -> Iterator[tuple[str, int | str]]:
    yield (
        "long requests of a model that are tokenized or wait to be; the next is refused",
        workers.MAX_WAITING,
    )
    yield (
        "characters of all texts of a request",
        f"{tokenizer.MAX_TEXTS_OF_FULL_SIZE} x `--max-text-characters`",
    )
    yield "characters of a conversation, and of its prompt", "`--max-text-characters`"
    yield (
        "pixels of all images of a request",
        f"{images.MAX_IMAGES_OF_FULL_SIZE} x `--max-image-pixels`",
    )
    yield "scans of a JPEG", images.MAX_SCANS
    yield "values in an answer of features or attention", task.MAX_VALUES
    yield "hidden states of a request for features", features.MAX_STATES
    yield "windows of the contexts of a request", tokenizer.MAX_WINDOWS
    yield "masks of a request", fill_mask.MAX_MASKS_OF_REQUEST
    yield "candidates for masks", fill_mask.MAX_CANDIDATES
    yield (
        "characters up to which a request is tokenized at once, on the event loop",
        workers.INLINE_CHARACTERS,
    )


def _of_models() -> Iterator[tuple[str, int | str]]:
    yield (
        "chat templates of a version",
        f"{conversation.MAX_TEMPLATES}, of {conversation.MAX_TEMPLATE_BYTES // MIB} MiB in all",
    )
    yield (
        "address space of the process that renders a chat template",
        f"{template_process.MAX_BYTES // MIB} MiB",
    )
    yield "conversations of a model that wait for it", chat.MAX_WAITING
    yield "words that a WordPiece tokenizer keeps with their tokens", word_cache.MAX_WORDS
    yield "characters of such a word", word_cache.MAX_WORD
    yield "waiting requests that are looked at for a batch", BatchLimits().max_candidates
    yield "slots of a generative model", decoder.MAX_SLOTS
    yield "ranges of slots that are kept bound between steps", decoder.MAX_BINDINGS
    yield (
        "shortest beginning of a prompt that is looked for in the slots",
        f"{kv_cache.MIN_KEPT_TOKENS} tokens",
    )
    yield (
        "failed steps in a row after which a generative model stops serving",
        engine.MAX_FAILED_STEPS,
    )
    yield "names of models that are or were served", repository.MAX_MODELS
    yield "unfinished loads that clients requested", repository.MAX_LOADS
    yield "time for trials of a foreign graph's rows", f"{row_check.MAX_TRIALS_S:g} s"
    yield "elements of a sample row in these trials", row_trials.MAX_ELEMENTS


def _of_connections() -> Iterator[tuple[str, int | str]]:
    yield "metadata of a call", f"{server.MAX_METADATA_BYTES // KIB} KiB"
    yield (
        "metadata of a call that is cut off amid its headers",
        f"{metadata_bound.MAX_BYTES // MIB} MiB",
    )
    yield "time for a connection's handshakes", f"{server.HANDSHAKE_TIMEOUT_S:g} s"
    yield (
        "time for which answers are held while clients are told that the server ends",
        f"{server.MAX_QUIET_WAIT_S + server.TELL_S:g} s",
    )
    yield "connections to `/metrics`", page.MAX_CONNECTIONS
    yield "longest time of one", f"{page.MAX_CONNECTION_S:g} s"
