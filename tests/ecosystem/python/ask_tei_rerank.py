"""`llama-index-postprocessor-tei-rerank`: nodes by text-embeddings-inference's reranking call."""

import os

from llama_index.core import QueryBundle
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

URL = f"{os.environ['ATTENDANT_URL']}/models/tiny-match"
TEXTS = ["claim the prize now", "lunch tomorrow", "we are on call", "lunch " * 100]


def check_nodes() -> None:
    reranker = TextEmbeddingInference(base_url=URL, top_n=3)
    nodes = [NodeWithScore(node=TextNode(text=text), score=0.0) for text in TEXTS]
    found = reranker.postprocess_nodes(nodes, QueryBundle("free lunch"))
    scores = [node.score or 0.0 for node in found]
    assert len(found) == 3
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score < 1 for score in scores)


if __name__ == "__main__":
    check_nodes()
