"""The facts of a model that its interface and its manifest have; each kind adds its own."""

from dataclasses import asdict

from service.calls.models import Example, ModelFacts, Prompt
from service.contract import manifest as contract
from service.contract.interface import ModelInterface
from service.contract.manifest import Manifest

MAX_LISTED_EXAMPLES = 32


def facts_of(interface: ModelInterface) -> ModelFacts:
    """The facts of a model that takes tensors."""
    return ModelFacts(
        name=interface.name,
        version=str(interface.version),
        max_batch_size=interface.max_batch_size,
        parent=interface.parent,
    )


def facts_with(manifest: Manifest, interface: ModelInterface) -> ModelFacts:
    """The facts of a model that has a manifest."""
    facts = facts_of(interface).also(
        task=manifest.task,
        precision=manifest.precision,
        layout_reason=interface.layout_reason,
        graph_device="" if manifest.device == "any" else manifest.device,
        layout=manifest.layout,
        max_tokens=manifest.max_tokens,
        labels=manifest.labels,
        score_function=manifest.scores_by,
        embedding_size=manifest.embedding_size,
        pooling=manifest.pooling,
        example=manifest.example,
        origin=manifest.origin,
        eos_token_ids=manifest.eos_token_ids,
        has_source=manifest.has_source or manifest.is_recurrent,
        examples=_listed_examples(manifest),
        num_layers=manifest.num_layers,
        num_heads=manifest.num_heads,
        has_words=manifest.has_words,
    )
    if (image := manifest.image) is not None:
        facts = facts.also(
            image_height=image.height, image_width=image.width, image_channels=image.channels
        )
    if (embedder := manifest.embedder) is not None:
        facts = facts.also(
            prompts=[Prompt(name, text) for name, text in embedder.prompts.items()],
            default_prompt=embedder.default_prompt,
            dimensions=embedder.dimensions,
        )
    return facts


def _listed_examples(manifest: Manifest) -> list[Example]:
    """Examples of the manifest; the only one of an older export, where there are no others."""
    examples = manifest.examples[:MAX_LISTED_EXAMPLES]
    if not examples and manifest.example:
        examples = (contract.Example(manifest.example),)
    return [Example(**asdict(each) | {"image": each.image_file}) for each in examples]
