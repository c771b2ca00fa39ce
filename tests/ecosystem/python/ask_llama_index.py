"""`llama-index`: OpenAILike without a chat: whole, streamed, asynchronous; its embeddings."""

import asyncio
import math
import os

from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike

BASE = f"{os.environ['ATTENDANT_URL']}/v1"
ROUNDING = 1e-5  # a text in a batch and alone
TEXTS = ["win a prize", "lunch"]


def check_language_model() -> None:
    model = OpenAILike(
        model="tiny-gpt",
        api_base=BASE,
        api_key="none",
        is_chat_model=False,
        context_window=512,
        max_tokens=12,
        temperature=0,
    )
    whole = model.complete("The function").text
    assert whole
    assert [*model.stream_complete("The function")][-1].text == whole
    assert asyncio.run(model.acomplete("The function")).text == whole


def check_embeddings() -> None:
    embeddings = OpenAILikeEmbedding(model_name="tiny-embed", api_base=BASE, api_key="none")
    vectors = embeddings.get_text_embedding_batch(TEXTS)
    assert len(vectors) == len(TEXTS)
    assert math.dist(vectors[0], embeddings.get_text_embedding(TEXTS[0])) < ROUNDING


if __name__ == "__main__":
    check_language_model()
    check_embeddings()
