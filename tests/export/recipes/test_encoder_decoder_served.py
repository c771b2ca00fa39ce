"""From pairs to an answered request: trained for seconds, exported, served, and asked by many."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from attendant.v1 import generation_pb2 as pb

from commands.train.seq2seq_runs import checkpoint_of
from export.exporter import export_any
from export.settings import ExportSettings
from models.checkpoints.checkpoint import load_checkpoint, save_checkpoint
from models.data.pairs import Pair
from models.recipes.seq2seq import train
from models.recipes.seq2seq_settings import Seq2SeqSettings
from models.recipes.seq2seq_systems import NETWORKS, prepare
from tests.fakes.serving import Served, serving
from tests.fakes.sessions import PATIENCE_S
from tests.fakes.tiny_transformer import greedy, random_sources, tiny_transformer, tiny_writer

GREEDY = pb.SamplingParams(temperature=0.0, max_tokens=16)


async def answers(
    served: Served, model: str, prompts: Sequence[pb.GenerateRequest], params: pb.SamplingParams
) -> list[pb.GenerateResponse]:
    """All at once."""
    for prompt in prompts:
        prompt.model = model
        prompt.sampling_params.CopyFrom(params)
    calls = (served.generation.GenerateUnary(prompt, timeout=PATIENCE_S) for prompt in prompts)
    return list(await asyncio.gather(*calls))


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[Pair, ...]]:
    """A repository with `dates`, and the 12 pairs that it knows by heart."""
    settings = Seq2SeqSettings(
        network="transformer",
        hidden_size=32,
        num_layers=1,
        num_heads=2,
        dropout=0.0,
        samples=12,
        test_samples=4,
        epochs=200,
        batch_size=12,
        learning_rate=5e-3,
        warmup_fraction=0.2,
        seed=1,
    )
    folder = tmp_path_factory.mktemp("dates")
    pairs, completed = prepare("dates", settings)
    trained = train(pairs, NETWORKS["transformer"].load(), completed)
    save_checkpoint(checkpoint_of(trained), folder / "checkpoint")
    export_any(
        load_checkpoint(folder / "checkpoint"), ExportSettings("dates", folder / "models", "fp32")
    )
    return folder / "models", pairs.train


async def test_dates_that_were_learnt_are_said_by_the_server(
    learnt: tuple[Path, tuple[Pair, ...]],
) -> None:
    """12 at once, greedily; then by 3 beams, whose best is the same and not the only one."""
    repository, pairs = learnt
    async with serving(repository) as served:
        asked = [pb.GenerateRequest(text=pair.source) for pair in pairs]
        responses = await answers(served, "dates", asked, GREEDY)
        beams = pb.SamplingParams(temperature=0.0, max_tokens=16, beam_width=3, n=3)
        searched = await answers(served, "dates", asked[:4], beams)
    assert [response.results[0].text for response in responses] == [pair.target for pair in pairs]
    assert {response.usage.output_tokens for response in responses} == {11}, "the end counts"
    for pair, response in zip(pairs[:4], searched, strict=True):
        said = [result.text for result in response.results]
        assert said[0] == pair.target
        assert len(set(said)) == 3


async def test_many_sources_at_once_are_answered_as_pytorch_answers_each(tmp_path: Path) -> None:
    """24 of 1 to 40 tokens, over 4 sequences at a time: rows join and leave, no token changes."""
    await asyncio.to_thread(export_any, tiny_writer(), ExportSettings("tiny", tmp_path, "fp32"))
    network = tiny_transformer()
    sources = random_sources([1 + 7 * place % 40 for place in range(24)], seed=4)
    wanted = [greedy(network, source, 16) for source in sources]
    async with serving(tmp_path, max_running_sequences=4) as served:
        asked = [pb.GenerateRequest(token_ids=pb.TokenIds(ids=source)) for source in sources]
        responses = await answers(served, "tiny", asked, GREEDY)
    end = network.config.end_token_id
    for response, tokens in zip(responses, wanted, strict=True):
        said = list(response.results[0].token_ids)
        assert said == [token for token in tokens if token != end]
    assert len({tuple(tokens) for tokens in wanted}) > 12, "alike answers would prove little"
