"""The commands that ask a server, as a table: their helps, requests, flags, answers and bodies.

Importing it imports neither records nor what draws them: modules and names are told as
`module:name`, of `service.calls`, of `commands.ask.shown` and of `commands.ask`, and a row's are
imported when its command is called.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

JSON, NDJSON = "json", "ndjson"
PATIENT_S = 300.0  # for text that is read while it is generated


class Verb(NamedTuple):
    """A command: what it asks, how answers are drawn, and what differs from its request's record.

    `flags` has the names of the record's fields, or of the body's own parameters, in the order of
    `--help`; behind them are those that all have.
    """

    help: str
    tasks: tuple[str, ...] = ()  # of the models that it asks
    call: str = ""  # the record of a request
    flags: str = ""
    differs: Mapping[str, Mapping[str, Any]] = {}  # by field, what its flag says in place of it
    fixed: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda given: {}  # noqa: ARG005
    body: str = "texts:answer"
    draw: str = ""  # answers, a table for all
    draw_rows: str = ""  # those of several requests, where rows differ
    brief: str = ""  # the result of one text, in a line
    forms: tuple[str, ...] = (JSON, NDJSON)  # beside tables
    takes_files: bool = False
    timeout_s: float = 30.0


def _all_without_top_k(given: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"all_scores": not given["top_k"]}


# By name, in the order of `attendant --help`.
VERBS = {
    "models": Verb(
        "List the models that a server serves.", body="models:show_models", forms=(JSON,)
    ),
    "classify": Verb(
        "Classify texts, or those of a file.",
        ("text-classification",),
        "texts:Classify",
        "texts top_k",
        {"top_k": {"help": "Number of labels per text, most likely first; 0 prints all of them."}},
        fixed=_all_without_top_k,
        draw="tables:classifications",
        brief="briefs:label",
        takes_files=True,
    ),
    "embed": Verb(
        "Embed texts as vectors, and show how similar they are; or embed those of a file.",
        ("embedding",),
        "texts:Embed",
        "texts kinds top_k prompt_name prompt dimensions encodings",
        {
            "kinds": {"choices": ("dense", "sparse", "token-vectors")},
            "encodings": {"default": "float"},
        },
        fixed=lambda given: {"with_pieces": given.get("kinds") == ("sparse",)},
        body="embeddings:embed",
        draw="embedding_tables:embeddings",
        draw_rows="embedding_tables:vectors",
        brief="briefs:vector",
        takes_files=True,
    ),
    "search": Verb(
        "Find the texts of a file that are most like a query: it is embedded once, then searched.",
        flags="file query",
        body="search:search",
        forms=(JSON,),
        timeout_s=PATIENT_S,
    ),
    "batch": Verb(
        "Answer the requests of a file in OpenAI's batch form, by a server's HTTP port.",
        flags="file output in_flight patience_s restart",
        body="batch:batch",
        forms=(),
        timeout_s=PATIENT_S,
    ),
    "score": Verb(
        "Score how well each text matches a query.",
        ("pair-scoring",),
        "texts:ScorePairs",
        "query texts raw_scores",
        body="rerank:score",
        draw="tables:scores",
    ),
    "rerank": Verb(
        "Order documents by how relevant they are to a query, or score those of a file.",
        ("pair-scoring",),
        "texts:Rerank",
        "query texts file top_n max_document_tokens raw_scores",
        body="rerank:rerank",
        forms=(JSON,),
        takes_files=True,
    ),
    "generate": Verb(
        "Continue a prompt.",
        ("text-generation",),
        "generation:Generate",
        "prompt can_stream",
        body="generate:generate",
        forms=(JSON,),
        timeout_s=PATIENT_S,
    ),
    "chat": Verb(
        "Talk with a model that has a chat template.",
        call="generation:Generate",
        flags="system",
        body="chat:chat",
        forms=(),
        timeout_s=PATIENT_S,
    ),
    "features": Verb(
        "Show the hidden states of texts, by layer, per token or pooled.",
        ("features",),
        "features:ExtractFeatures",
        "texts layers pooling weights word",
        {"layers": {"default": "last"}, "pooling": {"default": "mean"}},
        body="embeddings:features",
        draw="tables:features",
        brief="briefs:first_vector",
    ),
    "similarity": Verb(
        "Show how similar texts are, each compared with every other.",
        ("embedding",),
        "texts:Embed",
        "texts measure prompt_name dimensions",
        body="embeddings:similarity",
    ),
    "infer": Verb(
        "Send tensors to any model, over the Open Inference Protocol.",
        ("image-attention", "tensors"),
        "record:Call",
        "inputs",
        body="infer:infer",
        forms=(JSON,),
    ),
    "fill-mask": Verb(
        "Predict the words at [MASK] positions.",
        ("fill-mask",),
        "reading:FillMask",
        "texts top_k candidates against is_compared plot",
        {
            "top_k": {
                "help": "Number of words per mask, most likely first; 0 prints 5, or compares the "
                "20 most likely words of each prompt."
            }
        },
        body="fill_mask:fill_mask",
        draw="tables:fills",
        brief="briefs:fills",
    ),
    "classify-tokens": Verb(
        "Find the entities in texts, or in those of a file.",
        ("token-classification",),
        "reading:ClassifyTokens",
        "texts",
        draw="tables:entities",
        brief="briefs:entities",
        takes_files=True,
    ),
    "answer": Verb(
        "Find the part of a context that answers a question.",
        ("question-answering",),
        "reading:Answer",
        "question context context_file top_k max_answer_tokens must_answer",
        {
            "top_k": {
                "help": "Largest number of answers, best first.",
                "low": 1,
                "default": 1,
            }
        },
        body="contexts:answer",
        draw="tables:answers",
        forms=(JSON,),
    ),
    "classify-image": Verb(
        "Classify images.",
        ("image-classification",),
        "images:ClassifyImage",
        "files top_k invert",
        {
            "top_k": {
                "help": "Number of labels per image, most likely first; 0 prints all of them.",
                "default": 3,
            }
        },
        fixed=_all_without_top_k,
        body="images:classify_image",
        draw="tables:images",
        forms=(JSON,),
    ),
    "attention": Verb(
        "Draw a model's attention weights for a text, as a picture or in the terminal.",
        ("attention",),
        "features:Attend",
        "text target layers heads plot is_special_hidden",
        {
            name: {
                "help": f"{name[:-1].title()} to show, counted from 0; may be given more than "
                f"once. By default the mean of all {name}."
            }
            for name in ("layers", "heads")
        },
        body="attention:attention",
        forms=(JSON,),
    ),
}


def commands_of(task: str) -> tuple[str, ...]:
    """The commands whose requests a model of a task answers."""
    return tuple(sorted(name for name, verb in VERBS.items() if task in verb.tasks))
