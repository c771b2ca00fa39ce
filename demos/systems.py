"""The systems that `attendant demo` shows: the commands that train, export and ask each."""

from dataclasses import dataclass

from demos.steps import (
    Step,
    attention_of,
    data,
    encoder,
    exported,
    trained,
)


@dataclass(frozen=True, slots=True)
class Demo:
    """One system of docs/tutorial/lectures."""

    system: str
    what: str
    steps: tuple[Step, ...]
    calls: tuple[str, ...]  # commands without `attendant` before and the server's address after
    cost_s: int = 0  # processor time of building it, of docs/tutorial/lectures; 0: no screen's
    left_out: str = ""  # a model that a server of many has under another name

    @property
    def models(self) -> tuple[str, ...]:
        """The names of those that are exported for a server of many."""
        exported = (step.exported for step in self.steps)
        return tuple(name for name in exported if name and name != self.left_out)


TOPICS = data("python_topics", "topics")
CORPUS = "--corpus {folder}/topics/corpus.txt --validation {folder}/topics/held_out.txt"
INVENTED = data("invented", "invented")
DIGITS = "{folder}/images/examples.txt"
EVERYDAY = data("everyday", "everyday")
EVERYDAY_CORPUS = (
    "--corpus {folder}/everyday/corpus.txt --validation {folder}/everyday/held_out.txt"
)

DEMOS: dict[str, Demo] = {
    "reversal": Demo(
        "LSTM encoder and decoder, with Luong's and Bahdanau's attention",
        "sequences of symbols, reversed; four networks, one of them asked",
        (
            trained(
                "seq2seq reversal --network lstm --attention all",
                "attentions",
                "--epochs 4 --samples 256",
            ),
            exported("reversal", source="{folder}/attentions/dot", examples="reversal"),
            attention_of("reversal-attention", "{folder}/attentions/dot", "reversal"),
        ),
        (
            "generate reversal 's3 s1 s4 s2'",
            "infer reversal --input 'source=[[4, 5, 6, 7]]'",
        ),
        cost_s=75,
    ),
    "dates": Demo(
        "Transformer",
        "dates as people write them, in ISO 8601: greedy, and the three best of a beam search",
        (
            trained(
                "seq2seq dates --network transformer",
                "dates",
                "--epochs 1 --samples 512 --num-layers 1",
            ),
            exported("dates", examples="dates"),
            attention_of("dates-attention", "{folder}/dates", "dates"),
        ),
        (
            'generate dates "3rd of March \'21" --temperature 0',
            "generate dates 'fri 7 aug 98' --beam-width 4 --n 3",
        ),
        cost_s=370,
    ),
    "bert": Demo(
        "BERT, pretrained",
        "everyday sentences, made by rule, with words hidden; then spam, fine-tuned from it",
        (
            EVERYDAY,
            trained(
                f"pretrain bert {EVERYDAY_CORPUS} --batch-size 32 --steps 8000 "
                "--learning-rate 4e-3",
                "bert",
                "--steps 4 --batch-size 4 --num-layers 1",
            ),
            Step("python -m models.recipes.everyday_fills {folder}/bert"),
            exported("bert", examples="bert"),
            attention_of("bert-attention", "{folder}/bert", "bert"),
            trained(
                "train models/data/spam.tsv --from {folder}/bert --epochs 8 --learning-rate 5e-4",
                "bert-spam",
                "--epochs 1 --batch-size 256",
            ),
            exported("bert-spam", examples="spam"),
        ),
        (
            "fill-mask bert 'In Texas, they like to buy [MASK].' "
            "--against 'In New York, they like to buy [MASK].'",
            "fill-mask bert --compare 'The doctor said that [MASK] was tired.' "
            "'The nurse said that [MASK] was tired.' --candidate he --candidate she",
            "classify bert-spam 'WINNER!! claim your free prize now'",
        ),
        cost_s=470,
    ),
    "entities": Demo(
        "BERT for token classification",
        "names of people, places and things in made-up texts",
        (
            encoder(),
            INVENTED,
            trained(
                "train {folder}/invented/entities.train.conll --task token-classification "
                "--from {encoder} --test-file {folder}/invented/entities.test.conll "
                "--epochs 2 --learning-rate 1e-4 --batch-size 16",
                "entities",
                "--epochs 1 --batch-size 256",
            ),
            exported("entities", examples="entities"),
        ),
        ("classify-tokens entities 'Maria Lopez moved from Berlin to Nordhaven.'",),
        cost_s=65,
    ),
    "answers": Demo(
        "BERT for question answering",
        "questions about made-up texts, some of which have no answer there",
        (
            encoder(),
            INVENTED,
            trained(
                "train {folder}/invented/questions.train.jsonl --task question-answering "
                "--from {encoder} --test-file {folder}/invented/questions.test.jsonl "
                "--epochs 2 --learning-rate 2e-4 --batch-size 16",
                "answers",
                "--epochs 1 --batch-size 256",
            ),
            exported("answers", examples="answers"),
        ),
        (
            "answer answers 'Where does Maria Lopez work?' "
            "--context 'Maria Lopez is a baker. She works in Nordhaven.'",
        ),
        cost_s=165,
    ),
    "features": Demo(
        "BERT's layers as features",
        "the hidden states of a pretrained encoder, by layer and pooled; likeness of texts",
        (
            encoder(),
            exported("features", "--task features", "{encoder}", "minilm"),
            exported("embedder", source="{encoder}", examples="minilm"),
        ),
        (
            "features features 'a cat sat down' --layers second_to_last --pooling mean",
            "similarity embedder 'a cat sat down' 'the kitten is sitting' 'stocks fell'",
        ),
        cost_s=20,
        left_out="embedder",  # it is `minilm`
    ),
    "words": Demo(
        "word2vec",
        "skip-gram with negative sampling on Python's help topics",
        (
            TOPICS,
            trained("words train {folder}/topics/corpus.txt", "words", "--epochs 1"),
            Step("attendant words nearest {folder}/words list exception"),
            exported("words", examples="words"),
        ),
        ("similarity words list tuple dictionary exception",),
        cost_s=35,
    ),
    "elmo": Demo(
        "ELMo",
        "vectors in context: a train that leaves at noon, and people who train; then a task that "
        "learns which layers tell them apart",
        (
            Step(
                "python -m models.data.generated.homographs "
                "{folder}/homographs.txt {folder}/meanings.conll",
                "{folder}/meanings.conll",
            ),
            trained("pretrain elmo --corpus {folder}/homographs.txt", "elmo", "--steps 4"),
            exported("elmo", examples="elmo"),
            trained(
                "train {folder}/meanings.conll --task token-classification --from {folder}/elmo "
                "--epochs 8",
                "meanings",
                "--epochs 1",
            ),
            exported("meanings", examples="elmo"),
        ),
        (
            "features elmo 'He took a train' 'We left the city by train' "
            "'He likes to train in the mornings' 'They train hard for the race' --word train",
            "features elmo 'She ate a sweet apple' 'They cut the red apple' "
            "'Apple sells a new phone' 'The phone of Apple is fast' --word apple",
            "classify-tokens meanings 'He took a train' 'We left the city by train' "
            "'He likes to train in the mornings' 'They train hard for the race' "
            "'She ate a sweet apple' 'The phone of Apple is fast'",
        ),
        cost_s=65,
    ),
    "digits": Demo(
        "Vision Transformer",
        "handwritten digits of 8 x 8 pixels",
        (
            data("digit_images", "images"),
            trained("vision", "digits", "--epochs 1 --num-layers 1"),
            exported("digits", examples=DIGITS),
            attention_of("digits-attention", "{folder}/digits", DIGITS),
        ),
        ("classify-image digits {folder}/images/3.png {folder}/images/8.png",),
        cost_s=100,
    ),
    "ladder": Demo(
        "Five ways to classify texts",
        "spam: from scratch, with word vectors, frozen, fine-tuned, and by GPT; a table of all",
        (
            encoder(),
            Step(
                "attendant ladder models/data/spam.tsv --test models/data/spam_heldout.tsv "
                "--encoder {encoder} --output {folder}/ladder --repository {folder}/repository",
                "{folder}/ladder/ladder.json",
                "--training-texts 60 --epochs 1 --word-epochs 1 --tuning-epochs 1 --head-epochs 1 "
                "--gpt-steps 2 --requests 8 --max-tokens 24 --num-layers 1",
            ),
        ),
        ("classify tuned 'WINNER!! claim your free prize now' 'see you at eight'",),
    ),
    "attention": Demo(
        "Attention made visible",
        "the attention weights of a pretrained encoder",
        (
            encoder(),
            attention_of("attention", "{encoder}", "attention"),
        ),
        ("attention attention 'The cat sat down because it was tired.' --layer 1 --head 0",),
        cost_s=20,
    ),
    "gpt": Demo(
        "GPT",
        "Python's own help topics, continued",
        (
            TOPICS,
            Step(
                f"attendant pretrain gpt {CORPUS} --vocab-size 2048 --beta2 0.99 --output {{gpt}}",
                "{gpt}",
                "--steps 4 --num-layers 1",
            ),
            exported("gpt", "--held-out {folder}/topics/held_out.txt", "{gpt}", "gpt"),
            attention_of("gpt-attention", "{gpt}", "gpt"),
        ),
        ("generate gpt 'The import statement' --max-tokens 32",),
        cost_s=540,
    ),
}
