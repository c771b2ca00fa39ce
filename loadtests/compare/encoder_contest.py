"""Embedders and rerankers beside other engines, on texts of real lengths.

    python -m loadtests.compare encoders                   the rows of docs/benchmarks.md
    python -m loadtests.compare encoders --model minilm --peer openvino --ours int8

Texts go in and vectors or scores come out: tokenizing, sorting and batching are each engine's own.
"""

from loadtests.compare.encoder_peers import encoder_peers, our_encoders
from loadtests.compare.encoders import ENCODER_TRAFFIC, ENCODERS, write_encoder
from loadtests.compare.model_contest import ModelContest

ENCODER_CONTEST = ModelContest(
    {name: encoder.title for name, encoder in ENCODERS.items()},
    write_encoder,
    our_encoders,
    encoder_peers,
    ENCODER_TRAFFIC,
)
