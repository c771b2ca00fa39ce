"""The flags of `attendant train`, `import` and `pretrain`: help, reason for the default, variable.

Knows nothing about what they do. Limits are checked by the settings and the modules behind. Most of
`pretrain` are not here: they are made of the fields of PretrainSettings.
"""

from pathlib import Path
from typing import Annotated

import typer

from commands.flags import completing, flag, shown_as
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
        metavar=shown_as(TRAIN_TASKS),
        help="Task to train: labels of texts, IOB tags of words (named entities), answers in a "
        "context, or scores from 0 to 1 of how well two texts match.",
    ),
]
From = Annotated[
    str,
    typer.Option(
        "--from",
        envvar="ATTENDANT_TRAIN_FROM",
        help="Checkpoint to start from: a folder of Attendant or Hugging Face, or a hub id. A "
        "classifier with the same labels keeps its head; otherwise the head is new.",
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
        help="Fraction of DATA to hold out for the final figures. None by default: with "
        "little data "
        "all of it is needed. 0 to 0.5.",
    ),
]
TestFile = Annotated[
    Path | None,
    typer.Option(
        envvar="ATTENDANT_TRAIN_TEST_FILE",
        help="Labelled texts for the final figures, in place of --test-fraction. By default the "
        "figures are measured on the validation rows.",
        show_default="none",
    ),
]
Epochs = Annotated[
    int,
    typer.Option(
        envvar="ATTENDANT_TRAIN_EPOCHS",
        help="Largest number of passes over the data. Four is the upper end of what BERT's authors "
        "recommend; early stopping may end sooner.",
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
        help="Number of epochs without a lower validation loss (for tags and answers, a higher F1) "
        "after which training stops; the best epoch is kept. One bad epoch is often chance.",
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        envvar="ATTENDANT_TRAIN_MAX_TOKENS",
        help="Truncate training texts to this number of tokens, to save time and memory. "
        "By default "
        "the checkpoint's own limit, which does not change.",
        show_default="the checkpoint's",
    ),
]
FreezeEncoder = Annotated[
    bool,
    typer.Option(
        envvar="ATTENDANT_TRAIN_FREEZE_ENCODER",
        help="Train the head only, which is faster and usually less accurate.",
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        envvar="ATTENDANT_TRAIN_PRECISION",
        autocompletion=completing(PRECISIONS),
        metavar=shown_as(PRECISIONS),
        help="Compute in bfloat16; weights stay float32. Auto uses it only on processors with "
        "bfloat16 multiplication (AVX512_BF16 or AMX), because it is slower on others.",
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
        metavar=shown_as(IMPORT_TASKS),
        help="Task of the model. Auto takes the task that the checkpoint was trained for; "
        "an encoder without a head becomes an embedder.",
    ),
]
Pooling = Annotated[
    str | None,
    typer.Option(
        envvar="ATTENDANT_IMPORT_POOLING",
        autocompletion=completing(POOLINGS),
        metavar=shown_as(POOLINGS),
        help="Embedders: how token vectors become one vector. By default what the checkpoint "
        "declares, else mean, which is better if neither was trained.",
        show_default="as declared",
    ),
]
Layers = Annotated[
    str | None,
    typer.Option(
        envvar="ATTENDANT_IMPORT_LAYERS",
        autocompletion=completing(EMBEDDING_LAYERS),
        metavar=shown_as(EMBEDDING_LAYERS),
        help="Embedders: which hidden states to pool. Sentence embedders are trained with the last "
        "layer.",
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
        help="Origin of the weights to record, if the folder's name does not tell it.",
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
        "Checkpoint of the same kind to continue training from: a folder of Attendant or Hugging "
        "Face, or a hub id. Tokenizer, sizes and dropout are then those of the checkpoint.",
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
