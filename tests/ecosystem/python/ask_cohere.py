"""`cohere`, both of its clients, and `langchain-cohere`: documents in order, cut, and refused."""

import os

import cohere
from langchain_cohere import CohereRerank
from langchain_core.documents import Document

URL = os.environ["ATTENDANT_URL"]
MODEL, QUERY = "tiny-match", "free lunch"
DOCUMENTS = ["claim the prize now", "lunch tomorrow", "we are on call"]
LONG = "lunch " * 100  # tokens, where the model takes 64
SCORE_ROUNDING = 1e-5  # documents in a batch of other lengths


def check_version_2() -> list[tuple[int, float]]:
    client = cohere.ClientV2(api_key="none", base_url=URL)
    answer = client.rerank(model=MODEL, query=QUERY, documents=DOCUMENTS)
    found = [(result.index, result.relevance_score) for result in answer.results]
    assert sorted(index for index, _ in found) == [0, 1, 2]
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
    assert all(0 < score < 1 for _, score in found)
    assert answer.meta is not None
    assert answer.meta.tokens is not None
    assert answer.meta.tokens.input_tokens
    best = client.rerank(model=MODEL, query=QUERY, documents=DOCUMENTS, top_n=1).results
    assert [result.index for result in best] == [found[0][0]]
    return found


def check_cutting() -> None:
    client = cohere.ClientV2(api_key="none", base_url=URL)
    cut = client.rerank(model=MODEL, query=QUERY, documents=[LONG], max_tokens_per_doc=4_096)
    assert len(cut.results) == 1
    short = client.rerank(model=MODEL, query=QUERY, documents=["lunch " * 5])
    bounded = client.rerank(model=MODEL, query=QUERY, documents=[LONG], max_tokens_per_doc=5)
    assert short.results[0].relevance_score == bounded.results[0].relevance_score
    for text, field in (([LONG], "documents[0]"), ([], "documents")):
        try:
            client.rerank(model=MODEL, query=QUERY, documents=text)
        except cohere.BadRequestError as error:
            assert str(error.body["error"]["message"]).startswith(field)
        else:
            raise AssertionError(field)


def check_version_1(expected: list[tuple[int, float]]) -> None:
    client = cohere.Client(api_key="none", base_url=URL)
    answer = client.rerank(
        model=MODEL, query=QUERY, documents=[{"text": text} for text in DOCUMENTS]
    )
    assert [(each.index, each.relevance_score) for each in answer.results] == expected
    assert [each.document.text for each in answer.results] == [DOCUMENTS[i] for i, _ in expected]


def check_langchain(expected: list[tuple[int, float]]) -> None:
    compressor = CohereRerank(model=MODEL, base_url=URL, cohere_api_key="none", top_n=2)
    found = compressor.rerank(DOCUMENTS, QUERY, max_tokens_per_doc=32)
    assert [each["index"] for each in found] == [index for index, _ in expected[:2]]
    for each, (_, score) in zip(found, expected, strict=False):
        assert abs(each["relevance_score"] - score) < SCORE_ROUNDING
    documents = [Document(page_content=text) for text in DOCUMENTS]
    best, *_ = compressor.compress_documents(documents, QUERY)
    assert best.page_content == DOCUMENTS[expected[0][0]]


if __name__ == "__main__":
    ranked = check_version_2()
    check_cutting()
    check_version_1(ranked)
    check_langchain(ranked)
