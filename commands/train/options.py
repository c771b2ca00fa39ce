"""The flags of `attendant train`, `import` and `pretrain`: help, reason for the default, variable.

Knows nothing about what they do. Limits are checked by the settings and the modules behind. Most of
`pretrain` are not here: they are made of the fields of PretrainSettings.
"""

from pathlib import Path
from typing import Annotated

import typer

from commands.flags import completing, flag
from models.choices import EMBEDDING_LAYERS, POOLINGS
from models.training.pretrain_settings import PretrainSettings
from models.training.settings import IMPORT_TASKS, PRECISIONS, TRAIN_TASKS

Data = Annotated[
    Path,
    typer.Argument(
        envvar="ATTENDANT_TRAIN_DATA",
        help="Labelled texts: .tsv (label<TAB>text, or with a header), .csv with a header, or "
        ".jsonl; columns named text and label, and text_pair where pairs are labelled. Tagged "
        "words: word<TAB>tag, a blank line between sentences. Questions: SQuAD's .json, or .jsonl.",
    ),
]
TrainTask = Annotated[
    str,
    typer.Option(
        "--task",
        envvar="ATTENDANT_TRAIN_TASK",
        autocompletion=completing(TRAIN_TASKS),
        help="What to learn: text-classification, token-classification (IOB tags: named entities), "
        "question-answering or pair-scoring (labels from 0 to 1: how well two texts match).",
    ),
]
From = Annotated[
    str,
    typer.Option(
        "--from",
        envvar="ATTENDANT_TRAIN_FROM",
        help="What to start from: a folder of ours or of Hugging Face, or a hub id. A classifier "
        "with the same labels continues; anything else gets a fresh head.",
    ),
]
TrainOutput = Annotated[
    Path,
    typer.Option(
        "--output",
        envvar="ATTENDANT_TRAIN_OUTPUT",
        help="Folder for the checkpoint, training.json, confusion.png and loss.png. An older "
        "checkpoint there is replaced at the end; a folder with other files is refused.",
    ),
]
Validation = Annotated[
    str,
    typer.Option(
        envvar="ATTENDANT_TRAIN_VALIDATION",
        help="A file, or the fraction of DATA to hold out (stratified) for choosing the best "
        "epoch. A tenth: enough to rank epochs, and little lost for training.",
    ),
]
TestFraction = Annotated[
    float,
    typer.Option(
        envvar="ATTENDANT_TRAIN_TEST_FRACTION",
        help="Fraction of DATA that training never sees and the final figures are of. None by "
        "default: with little data all of it is needed. 0 to 0.5.",
    ),
]
TestFile = Annotated[
    Path | None,
    typer.Option(
        envvar="ATTENDANT_TRAIN_TEST_FILE",
        help="Labelled texts that the final figures are of, in place of a --test-fraction. None "
        "by default: the figures are then of the validation rows.",
        show_default="none",
    ),
]
Epochs = Annotated[
    int,
    typer.Option(
        envvar="ATTENDANT_TRAIN_EPOCHS",
        help="Most passes over the data. Four, the upper end of what BERT's authors recommend; "
        "early stopping ends sooner.",
    ),
]
BatchSize = Annotated[
    int,
    typer.Option(
        envvar="ATTENDANT_TRAIN_BATCH_SIZE",
        help="Texts per step. 32, which BERT's authors recommend; smaller if memory is short.",
    ),
]
LearningRate = Annotated[
    float | None,
    typer.Option(
        envvar="ATTENDANT_TRAIN_LEARNING_RATE",
        help="Highest learning rate, reached after the warm-up. 5e-5, the highest that BERT's "
        "authors recommend: few epochs must do. 1e-2 on an ELMo, of which a task learns the mix of "
        "the layers and a head only. With --freeze-encoder try 1e-3.",
        show_default="5e-5, on an ELMo 1e-2",
    ),
]
WarmupFraction = Annotated[
    float,
    typer.Option(
        envvar="ATTENDANT_TRAIN_WARMUP_FRACTION",
        help="Share of all steps in which the rate rises. A tenth: a fresh head's first, large "
        "gradients should not undo what the encoder knows. 0 to 1.",
    ),
]
ClipNorm = Annotated[
    float,
    typer.Option(
        envvar="ATTENDANT_TRAIN_CLIP_NORM",
        help="Longest gradient; longer ones are shortened to it. 1, as BERT was trained.",
    ),
]
WeightDecay = Annotated[
    float,
    typer.Option(
        envvar="ATTENDANT_TRAIN_WEIGHT_DECAY",
        help="Pull towards zero on matrices, not on biases and norms. 0.01, as BERT was trained.",
    ),
]
Patience = Annotated[
    int,
    typer.Option(
        envvar="ATTENDANT_TRAIN_PATIENCE",
        help="Stop after so many epochs without a lower validation loss (of tags and answers, a "
        "higher F1); the best epoch is kept. Two, since one bad epoch is often chance.",
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        envvar="ATTENDANT_TRAIN_MAX_TOKENS",
        help="Cut training texts to so many tokens, to save time and memory. By default what "
        "the checkpoint takes. What it takes afterwards does not change.",
        show_default="the checkpoint's",
    ),
]
FreezeEncoder = Annotated[
    bool,
    typer.Option(
        envvar="ATTENDANT_TRAIN_FREEZE_ENCODER",
        help="Train the head only: faster, and usually less accurate; hence off.",
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        envvar="ATTENDANT_TRAIN_PRECISION",
        autocompletion=completing(PRECISIONS),
        help="bfloat16 in the passes (weights stay float32): auto, on or off. Auto uses it only "
        "where the processor multiplies in it (AVX512_BF16 or AMX); elsewhere it is slower.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        envvar="ATTENDANT_TRAIN_SEED",
        help="Decides split, order, fresh head and dropout: the same seed on the same machine "
        "gives the same checkpoint. Fixed by default so that runs can be compared.",
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        envvar="ATTENDANT_TRAIN_RESUME",
        help="Continue an interrupted run of the same command where it stopped. On by default: "
        "the result is the same, only sooner.",
    ),
]

Source = Annotated[
    str,
    typer.Argument(
        envvar="ATTENDANT_IMPORT_SOURCE",
        help="A Hugging Face folder (config.json, model.safetensors, tokenizer.json) of a BERT, "
        "RoBERTa, DistilBERT, MiniLM or GPT-2 model, or a hub id.",
    ),
]
ImportOutput = Annotated[
    Path,
    typer.Argument(
        envvar="ATTENDANT_IMPORT_OUTPUT",
        help="Folder for the checkpoint. An older checkpoint there is replaced; a folder with "
        "other files is refused.",
    ),
]
Task = Annotated[
    str,
    typer.Option(
        envvar="ATTENDANT_IMPORT_TASK",
        autocompletion=completing(IMPORT_TASKS),
        help=f"{', '.join(IMPORT_TASKS)}. Auto: what the checkpoint was made for; a bare encoder "
        "embeds.",
    ),
]
Pooling = Annotated[
    str | None,
    typer.Option(
        envvar="ATTENDANT_IMPORT_POOLING",
        autocompletion=completing(POOLINGS),
        help="Embedders: mean or cls. By default what the checkpoint declares, else mean, "
        "which is the better of the two where neither was trained.",
        show_default="as declared",
    ),
]
Layers = Annotated[
    str | None,
    typer.Option(
        envvar="ATTENDANT_IMPORT_LAYERS",
        autocompletion=completing(EMBEDDING_LAYERS),
        help="Embedders: first, last, second_to_last, sum_last_four, concat_last_four or "
        "sum_all. Last by default: what sentence embedders are trained with.",
        show_default="last",
    ),
]
Normalize = Annotated[
    bool | None,
    typer.Option(
        "--normalize/--no-normalize",
        envvar="ATTENDANT_IMPORT_NORMALIZE",
        help="Embedders: scale every embedding to length 1. By default what the checkpoint "
        "declares, else not.",
        show_default="as declared",
    ),
]
Origin = Annotated[
    str | None,
    typer.Option(
        envvar="ATTENDANT_IMPORT_ORIGIN",
        help="What to record as where the weights come from, when the folder's name does not "
        "say it.",
        show_default="hub id or folder name",
    ),
]

PRETRAIN = (
    flag(
        "corpus",
        list[Path],
        ...,
        "Plain text in UTF-8; give the flag once for each file. A file is one document, or several "
        "with form feeds between them. All of it is held in memory.",
        "ATTENDANT_PRETRAIN_CORPUS",
    ),
    flag(
        "output",
        Path,
        ...,
        "Folder for the checkpoint, training.json and loss.png. An older checkpoint there is "
        "replaced at the end; a folder with other files is refused.",
        "ATTENDANT_PRETRAIN_OUTPUT",
    ),
    flag(
        "validation",
        str,
        str(PretrainSettings().validation_fraction),
        "A file, or the fraction of the corpus to hold out for choosing the best weights: its "
        "end, after its documents were shuffled. A tenth: enough to measure, little lost.",
        "ATTENDANT_PRETRAIN_VALIDATION",
    ),
    flag(
        "tokenizer",
        Path | None,
        None,
        "A tokenizer.json, or a folder with GPT-2's or BERT's files, to use. By default one is "
        "trained on the corpus: its tokens are those that the corpus has most.",
        "ATTENDANT_PRETRAIN_TOKENIZER",
        shown="trained",
    ),
    flag(
        "start",
        str | None,
        None,
        "A checkpoint of the same kind whose training goes on, on other texts perhaps: a folder of "
        "ours or of Hugging Face, or a hub id. Tokenizer, sizes and dropout are then its own.",
        "ATTENDANT_PRETRAIN_FROM",
        shown="fresh weights",
        spelt="--from",
    ),
    flag(
        "resume",
        bool,
        True,
        "Continue an interrupted run of the same command where it stopped. On by default: the "
        "result is the same, only sooner.",
        "ATTENDANT_PRETRAIN_RESUME",
    ),
)
