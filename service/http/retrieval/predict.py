"""`POST /predict`: labels of texts, in the shape of text-embeddings-inference.

A text, or a pair of texts in a list, is one input; a list of lists has several. There a list of two
texts is a pair and no batch.
"""

from typing import ClassVar, TypeAlias

import msgspec

from service.calls.texts import Classifications, Classify
from service.http.request import Reply, Request
from service.http.retrieval.scores import BASES
from service.http.routes import Route
from service.http.shared.fields import check_count
from service.http.shared.models import name_of
from service.http.shared.names import TRUNCATE, names_of
from service.http.shared.paths import CLASSIFY
from service.http.shared.peer_fields import Refusals, unsupported
from service.http.shared.peer_tables import REFUSALS
from service.http.status import invalid

TextOrPair: TypeAlias = list[str]  # of one or two


class PredictRequest(msgspec.Struct, kw_only=True):
    """The body, with a model beside it where several are served."""

    REFUSED: ClassVar[Refusals] = REFUSALS["prediction"]

    inputs: str | list[str | TextOrPair]
    model: str | None = None
    raw_scores: bool = False
    truncate: bool = False
    truncation_direction: str | None = None


def predict_routes() -> tuple[Route, ...]:
    return tuple(
        Route("POST", f"{base}/predict", predict, CLASSIFY, (PredictRequest,)) for base in BASES
    )


async def predict(request: Request) -> Reply:
    """All labels of each input, best first; `raw_scores` asks for logits."""
    asked = await request.json(PredictRequest)
    if (asked.truncation_direction or "right").lower() != "right":
        raise unsupported("truncation_direction", "a text that is cut loses its end")
    inputs, is_one = await request.work(lambda: _inputs_of(asked.inputs))
    check_count(len(inputs), "inputs", request.front.settings.max_texts)
    has_pairs = any(len(each) > 1 for each in inputs)
    if has_pairs and not all(len(each) > 1 for each in inputs):
        raise invalid("inputs has texts and pairs, expected either: ask twice", "inputs")
    call = Classify(
        model=await name_of(request, asked.model),
        texts=[each[0] for each in inputs],
        text_pairs=[each[1] for each in inputs] if has_pairs else (),
        all_scores=True,
        truncate=asked.truncate,
        score_function="identity" if asked.raw_scores else "",
    )
    single = ("texts", "text_pairs") if is_one else ()
    request.named = names_of("huggingface", Classify, single=single, cut=TRUNCATE)
    answer: Classifications = await request.ask(CLASSIFY, call)
    labels = [
        [{"score": each.score, "label": each.label} for each in result.labels]
        for result in answer.results
    ]
    return Reply.json(labels[0] if is_one else labels)


def _inputs_of(inputs: str | list[str | TextOrPair]) -> tuple[list[TextOrPair], bool]:
    """Texts and pairs, and whether there is one that stands alone. Raises `HttpError`."""
    if isinstance(inputs, str):
        return [[inputs]], True
    alone = [each for each in inputs if isinstance(each, str)]
    several = [each for each in inputs if not isinstance(each, str)]
    if alone and several:
        raise invalid("inputs has texts and lists of texts, expected either", "inputs")
    for index, each in enumerate([alone] if alone else several):
        if not 1 <= len(each) <= 2:
            name = "inputs" if alone else f"inputs[{index}]"
            batch = ": of a batch, each text is in a list of its own" if alone else ""
            raise invalid(f"{name} has {len(each)} texts, expected 1 or 2{batch}", "inputs")
    return ([alone], True) if alone else (several, False)
