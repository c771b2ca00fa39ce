"""Engines in process: batches for an encoder, requests in flight for a decoder.

python -m loadtests.compare engines --peer openvino --ours int8
"""

from loadtests.compare.model_contest import ModelContest
from loadtests.compare.models import BERT, GPT2, write_model
from loadtests.compare.peers import TASK_OF, engine_peers, our_engines
from loadtests.compare.traffic import TRAFFIC

ENGINE_CONTEST = ModelContest(
    {BERT: "BERT-base with two labels", GPT2: "GPT-2"},
    write_model,
    our_engines,
    engine_peers,
    {
        model: tuple(kind for kind in TRAFFIC if kind.task == task)
        for model, task in TASK_OF.items()
    },
)
