"""Classes of tokenizers of `transformers`: what each makes of a vocabulary and of settings.

Since version 5 a class takes the vocabulary alone from tokenizer.json, and makes all that is done
to a text before by itself, from the settings of tokenizer_config.json and its own defaults. These
are its rules, a class each. `foreign_tokenizer.py` adds the tokens, and says which class it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram, WordPiece
from tokenizers.processors import RobertaProcessing, TemplateProcessing

from models.checkpoints.tokenizer_settings import TokenizerSettings, Vocabulary
from models.data.byte_ranks import BY_DIGIT
from models.data.sentence_piece import SPACE, SentencePiece
from models.errors import CheckpointError, shown

TYPES = "token_type_ids"
NUM_EXTRA = 100  # of T5's tokens for gaps
Special = dict[str, str]  # tokens by role, as spelled


Build = Callable[[Vocabulary, TokenizerSettings, Special], Tokenizer]
Surround = Callable[[Tokenizer, Special, TokenizerSettings], Any]
Scored = list[tuple[str, float]]  # pieces and their scores
Numbering = Callable[[Scored, TokenizerSettings, Special], Scored]


@dataclass(frozen=True, slots=True)
class TokenizerClass:
    """The rules of one class."""

    model: type[Any]
    build: Build
    special: Mapping[str, str | AddedToken]  # where the settings name none
    surround: Surround | None = None  # what goes around texts; None: what tokenizer.json says
    reads_types: bool = False
    # Special tokens where the settings name none.
    further: Callable[[TokenizerSettings], tuple[str, ...]] = lambda _: ()
    files: tuple[str, ...] = ()  # of the vocabulary, where there is no tokenizer.json
    adds_special_again: bool = False  # without their flags
    numbering: Numbering | None = None  # where ids are not those of SentencePiece's file

    def vocabulary(
        self, model: SentencePiece, settings: TokenizerSettings, special: Special
    ) -> Vocabulary:
        """The pieces or merges of a model of SentencePiece, by the ids of this class."""
        if not model.is_unigram:
            return Vocabulary(model.ids, model.merges)
        number = self.numbering
        pieces = model.scored if number is None else number(model.scored, settings, special)
        return Vocabulary(pieces, charsmap=model.charsmap or None)


def _bert(words: Vocabulary, settings: TokenizerSettings, special: Special) -> Tokenizer:
    tokenizer = Tokenizer(WordPiece(words.pieces, unk_token=special["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.flag("tokenize_chinese_chars", True),
        strip_accents=settings.choice("strip_accents"),
        lowercase=settings.flag("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return tokenizer


def _byte_pairs(words: Vocabulary, settings: TokenizerSettings, _: Special) -> Tokenizer:
    tokenizer = Tokenizer(_bpe(words, fuse_unk=False))
    starts = settings.flag("add_prefix_space", False)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=starts)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _qwen(words: Vocabulary, settings: TokenizerSettings, _: Special) -> Tokenizer:
    tokenizer = Tokenizer(_bpe(words, fuse_unk=False))
    tokenizer.normalizer = normalizers.NFC()
    starts = bool(settings.choice("add_prefix_space"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(BY_DIGIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=starts, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _llama(words: Vocabulary, settings: TokenizerSettings, _: Special) -> Tokenizer:
    model = BPE(words.pieces, words.merges, fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    stated = settings.choice("add_prefix_space")
    starts = True if stated is None else stated
    scheme = "never" if not starts else "always" if settings.flag("legacy", False) else "first"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme, split=False)
    strip = [decoders.Strip(content=" ", left=1)] if starts else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def _gemma(words: Vocabulary, _: TokenizerSettings, special: Special) -> Tokenizer:
    unknown = special["unk_token"]
    model = BPE(words.pieces, words.merges, fuse_unk=True, unk_token=unknown, byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


def _bpe(words: Vocabulary, *, fuse_unk: bool) -> BPE:
    return BPE(
        words.pieces,
        words.merges,
        continuing_subword_prefix="",
        end_of_word_suffix="",
        fuse_unk=fuse_unk,
    )


def _pieces(
    words: Vocabulary, unk_id: int, steps: list[normalizers.Normalizer], scheme: str
) -> Tokenizer:
    """SentencePiece's tokenizer by words, which all but one of its classes make."""
    tokenizer = Tokenizer(Unigram(words.pieces, unk_id=unk_id, byte_fallback=False))
    if words.charsmap is not None:
        steps = [*steps, normalizers.Precompiled(words.charsmap)]
    if steps:
        tokenizer.normalizer = steps[0] if len(steps) == 1 else normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme)]
    )
    tokenizer.decoder = decoders.Metaspace(SPACE, prepend_scheme=scheme)
    return tokenizer


def _scheme(settings: TokenizerSettings, otherwise: str = "never") -> str:
    return "always" if settings.flag("add_prefix_space", True) else otherwise


def _xlm_roberta(words: Vocabulary, settings: TokenizerSettings, _: Special) -> Tokenizer:
    return _pieces(words, 3, [], _scheme(settings))


def _camembert(words: Vocabulary, settings: TokenizerSettings, special: Special) -> Tokenizer:
    unknown = special["unk_token"]
    unk_id = next((i for i, (piece, _) in enumerate(words.pieces) if piece == unknown), 0)
    return _pieces(words, unk_id, [], _scheme(settings))


def _albert(words: Vocabulary, settings: TokenizerSettings, _: Special) -> Tokenizer:
    steps: list[normalizers.Normalizer] = [
        normalizers.Replace("``", '"'),
        normalizers.Replace("''", '"'),
    ]
    if not settings.flag("keep_accents", False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if settings.flag("do_lower_case", True):
        steps.append(normalizers.Lowercase())
    return _pieces(words, 1, steps, _scheme(settings))


def _deberta(words: Vocabulary, settings: TokenizerSettings, special: Special) -> Tokenizer:
    unknown = (special["unk_token"], 0.0)
    stated = int(settings.values.get("unk_id", 1))
    unk_id = words.pieces.index(unknown) if unknown in words.pieces else stated
    tokenizer = Tokenizer(Unigram(words.pieces, unk_id=unk_id, byte_fallback=False))
    lower = [normalizers.Lowercase()] if settings.flag("do_lower_case", False) else []
    tokenizer.normalizer = normalizers.Sequence(
        [
            *lower,
            normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "),
            normalizers.NFC(),
            normalizers.Strip(left=False, right=True),
        ]
    )
    scheme = _scheme(settings, "first")
    marks = settings.flag("split_by_punct", False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *([pre_tokenizers.Punctuation(behavior="isolated")] if marks else []),
            pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme),
        ]
    )
    tokenizer.decoder = decoders.Metaspace(SPACE, prepend_scheme=scheme)
    return tokenizer


def _numbered_by_fairseq(pieces: Scored, _: TokenizerSettings, special: Special) -> Scored:
    first = [special[f"{role}_token"] for role in ("cls", "pad", "eos", "unk")]
    return [*((each, 0.0) for each in first), *pieces[3:], (special["mask_token"], 0.0)]


def _numbered_by_camembert(pieces: Scored, _: TokenizerSettings, special: Special) -> Scored:
    pad, unknown, mask = (special[f"{role}_token"] for role in ("pad", "unk", "mask"))
    first = [("<s>NOTUSED", 0.0), (pad, 0.0), ("</s>NOTUSED", 0.0), (unknown, 0.0)]
    return [*first, ("<unk>NOTUSED", -100.0), *pieces[1:], (mask, 0.0)]


def _with_extra_ids(pieces: Scored, settings: TokenizerSettings, _: Special) -> Scored:
    return [*pieces, *((each, 0.0) for each in reversed(_extra_ids(settings)))]


def _extra_ids(settings: TokenizerSettings) -> tuple[str, ...]:
    stated = settings.values.get("extra_ids")
    number = NUM_EXTRA if stated is None else stated
    if not isinstance(number, int) or not 0 <= number <= NUM_EXTRA:
        raise CheckpointError(
            f"{settings.path}: extra_ids is {shown(number)}, but must be at most {NUM_EXTRA}"
        )
    return tuple(f"<extra_id_{each}>" for each in range(number))


def _t5(words: Vocabulary, _: TokenizerSettings, __: Special) -> Tokenizer:
    return _pieces(words, 2, [], "always")


def _template(tokenizer: Tokenizer, single: str, pair: str, special: list[str]) -> Any:  # noqa: ANN401
    ids = [_numbered(tokenizer, token) for token in dict.fromkeys(special)]
    return TemplateProcessing(single=single.split("\n"), pair=pair.split("\n"), special_tokens=ids)


def _numbered(tokenizer: Tokenizer, token: str) -> tuple[str, int]:
    """A token and its id; raises `CheckpointError` for one that the vocabulary lacks."""
    token_id = tokenizer.token_to_id(token)
    if token_id is None:
        raise CheckpointError(f"the vocabulary lacks {shown(token)}, which is put around texts")
    return token, token_id


def _around_bert(tokenizer: Tokenizer, special: Special, _: TokenizerSettings) -> Any:  # noqa: ANN401
    cls, sep = special["cls_token"], special["sep_token"]
    single = f"{cls}:0\n$A:0\n{sep}:0"
    return _template(tokenizer, single, f"{single}\n$B:1\n{sep}:1", [cls, sep])


def _around_albert(tokenizer: Tokenizer, special: Special, _: TokenizerSettings) -> Any:  # noqa: ANN401
    """The class writes these two spellings, and the ids of what the settings name."""
    ids = [
        ("[CLS]", _numbered(tokenizer, special["cls_token"])[1]),
        ("[SEP]", _numbered(tokenizer, special["sep_token"])[1]),
    ]
    single = ["[CLS]:0", "$A:0", "[SEP]:0"]
    pair = [*single, "$B:1", "[SEP]:1"]
    return TemplateProcessing(single=single, pair=pair, special_tokens=ids)


def _around_pieces(tokenizer: Tokenizer, special: Special, _: TokenizerSettings) -> Any:  # noqa: ANN401
    bos, eos = special["bos_token"], special["eos_token"]
    single = f"{bos}\n$A\n{eos}"
    return _template(tokenizer, single, f"{single}\n{eos}\n$B\n{eos}", [bos, eos])


def _around_t5(tokenizer: Tokenizer, special: Special, _: TokenizerSettings) -> Any:  # noqa: ANN401
    ids = [("</s>", _numbered(tokenizer, special["eos_token"])[1])]
    return TemplateProcessing(
        single=["$A", "</s>"], pair=["$A", "</s>", "$B", "</s>"], special_tokens=ids
    )


def _around_roberta(tokenizer: Tokenizer, special: Special, settings: TokenizerSettings) -> Any:  # noqa: ANN401
    sep, cls = (_numbered(tokenizer, special[role]) for role in ("sep_token", "cls_token"))
    trims = settings.flag("trim_offsets", True)
    starts = settings.flag("add_prefix_space", False)
    return RobertaProcessing(sep, cls, trim_offsets=trims, add_prefix_space=starts)


def _around_mpnet(tokenizer: Tokenizer, special: Special, _: TokenizerSettings) -> Any:  # noqa: ANN401
    sep, cls = (_numbered(tokenizer, special[role]) for role in ("sep_token", "cls_token"))
    return RobertaProcessing(sep, cls, trim_offsets=True, add_prefix_space=False)


def around_ends(tokenizer: Tokenizer, special: Special, settings: TokenizerSettings) -> Any:  # noqa: ANN401
    """Tokens that begin and end texts by `add_bos_token` and `add_eos_token`."""
    starts, ends = (
        special.get(f"{role}_token") if settings.flag(f"add_{role}_token", False) else None
        for role in ("bos", "eos")
    )
    parts = [
        "\n".join(f"{each}:{number}" for each in (starts, f"${name}", ends) if each)
        for number, name in enumerate("AB")
    ]
    added = [each for each in (starts, ends) if each]
    return _template(tokenizer, parts[0], "\n".join(parts), added)


def _named(**names: str | AddedToken) -> dict[str, str | AddedToken]:
    return {f"{role}_token": name for role, name in names.items()}


def _word(text: str) -> AddedToken:
    """A mask that takes the space before it."""
    return AddedToken(text, lstrip=True, special=True)


_BRACKETS = _named(unk="[UNK]", sep="[SEP]", pad="[PAD]", cls="[CLS]", mask="[MASK]")
_ANGLES = _named(
    bos="<s>", eos="</s>", unk="<unk>", sep="</s>", pad="<pad>", cls="<s>", mask="<mask>"
)
_END_OF_TEXT = "<|endoftext|>"
_PAIRS = ("vocab.json", "merges.txt")
_BERT = TokenizerClass(
    WordPiece, _bert, _BRACKETS, _around_bert, reads_types=True, files=("vocab.txt",)
)
_ROBERTA = TokenizerClass(BPE, _byte_pairs, _ANGLES, _around_roberta, files=_PAIRS)
CLASSES: Mapping[str, TokenizerClass] = {
    **dict.fromkeys(
        (
            *("BertTokenizer", "ElectraTokenizer", "ConvBertTokenizer", "MobileBertTokenizer"),
            *("LayoutLMTokenizer", "SqueezeBertTokenizer", "LxmertTokenizer"),
        ),
        _BERT,
    ),
    "DistilBertTokenizer": TokenizerClass(
        WordPiece, _bert, _BRACKETS, _around_bert, files=("vocab.txt",)
    ),
    "MPNetTokenizer": TokenizerClass(
        WordPiece,
        _bert,
        {
            name: _word(text) if name == "mask_token" else AddedToken(text)
            for name, text in {**_ANGLES, "unk_token": "[UNK]"}.items()
            if isinstance(text, str)
        },
        _around_mpnet,
        files=("vocab.txt",),
    ),
    **dict.fromkeys(
        (
            *("RobertaTokenizer", "BartTokenizer", "LEDTokenizer", "LongformerTokenizer"),
            "MvpTokenizer",
        ),
        _ROBERTA,
    ),
    "GPT2Tokenizer": TokenizerClass(
        BPE,
        _byte_pairs,
        _named(bos=_END_OF_TEXT, eos=_END_OF_TEXT, unk=_END_OF_TEXT),
        files=_PAIRS,
    ),
    "Qwen2Tokenizer": TokenizerClass(
        BPE,
        _qwen,
        _named(eos=_END_OF_TEXT, unk=_END_OF_TEXT, pad=_END_OF_TEXT),
        files=_PAIRS,
        adds_special_again=True,
    ),
    "LlamaTokenizer": TokenizerClass(BPE, _llama, _named(bos="<s>", eos="</s>", unk="<unk>")),
    "GemmaTokenizer": TokenizerClass(
        BPE, _gemma, _named(bos="<bos>", eos="<eos>", unk="<unk>", pad="<pad>", mask="<mask>")
    ),
    "XLMRobertaTokenizer": TokenizerClass(
        Unigram, _xlm_roberta, _ANGLES, _around_pieces, numbering=_numbered_by_fairseq
    ),
    "CamembertTokenizer": TokenizerClass(
        Unigram,
        _camembert,
        {**_ANGLES, "mask_token": _word("<mask>")},
        _around_pieces,
        further=lambda _: ("<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"),
        numbering=_numbered_by_camembert,
    ),
    "AlbertTokenizer": TokenizerClass(
        Unigram,
        _albert,
        _named(
            bos="[CLS]",
            eos="[SEP]",
            unk="<unk>",
            sep="[SEP]",
            pad="<pad>",
            cls="[CLS]",
            mask="[MASK]",
        ),
        _around_albert,
    ),
    "DebertaV2Tokenizer": TokenizerClass(
        Unigram,
        _deberta,
        {**_named(bos="[CLS]", eos="[SEP]"), **_BRACKETS},
        _around_bert,
        reads_types=True,
    ),
    "T5Tokenizer": TokenizerClass(
        Unigram,
        _t5,
        _named(eos="</s>", unk="<unk>", pad="<pad>"),
        _around_t5,
        further=_extra_ids,
        numbering=_with_extra_ids,
    ),
}
# What takes tokenizer.json as it is.
AS_IT_IS = ("TokenizersBackend", "PreTrainedTokenizer", "PythonBackend", "BloomTokenizer")
# Classes that have rules of their own there and none here, by what can be done about it.
WITHOUT_RULES = tuple(
    f"{name}Tokenizer"
    for name in (
        *("Barthez", "BigBird", "Blenderbot", "CLIP", "CodeLlama", "Cohere", "DPRQuestionEncoder"),
        *("Deberta", "Esmc", "FNet", "Funnel", "GPTNeoX", "Herbert", "Lasr", "LayoutLMv2"),
        *("LayoutLMv3", "LayoutXLM", "Luke", "MBart", "MBart50", "MLuke", "MarkupLM", "Nllb"),
        *("Nougat", "OpenAIGPT", "Parakeet", "Pegasus", "Qwen3_5", "Reformer", "RemBert"),
        *("RoFormer", "SeamlessM4T", "Siglip2", "Splinter", "Udop", "VideoPrism", "Whisper"),
        *("XGLM", "XLNet", "DPRContextEncoder", "DPRReader", "LlavaNext"),
    )
)
IN_PYTHON = tuple(
    f"{name}Tokenizer"
    for name in (
        *("Bartpho", "BertJapanese", "Bertweet", "BioGpt", "BlenderbotSmall", "ByT5", "CTRL"),
        *("Canine", "Clvp", "Cpm", "CpmAnt", "Dia", "Esm", "FSMT", "Flaubert"),
        *("GPTNeoXJapanese", "M2M100", "Marian", "Mgpstr", "MyT5", "PLBart", "Perceiver"),
        *("Phobert", "ProphetNet", "Rag", "RoCBert", "Tapas", "Vits", "Wav2Vec2CTC"),
        *("Wav2Vec2PhonemeCTC", "XLM", "BertGeneration", "GPTSw3"),
    )
)
# The class that `transformers` takes for a network whose files name none.
BY_MODEL_TYPE: Mapping[str, str] = {
    "bert": "BertTokenizer",
    "distilbert": "BertTokenizer",
    "electra": "BertTokenizer",
    "nomic_bert": "BertTokenizer",
    "roberta": "RobertaTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "camembert": "CamembertTokenizer",
    "mpnet": "MPNetTokenizer",
    "albert": "AlbertTokenizer",
    "deberta-v2": "DebertaV2Tokenizer",
    "modernbert": "TokenizersBackend",
    "gte": "XLMRobertaTokenizer",
    "gpt2": "GPT2Tokenizer",
    "mistral": "TokenizersBackend",
    "qwen2": "Qwen2Tokenizer",
    "qwen3": "Qwen2Tokenizer",
    "gemma": "GemmaTokenizer",
    "gemma2": "GemmaTokenizer",
    "gemma3": "GemmaTokenizer",
    "gemma3_text": "GemmaTokenizer",
    "phi3": "TokenizersBackend",
    "olmo2": "TokenizersBackend",
    "olmo3": "TokenizersBackend",
    "granite": "TokenizersBackend",
    "bart": "RobertaTokenizer",
    "t5": "T5Tokenizer",
    "mt5": "T5Tokenizer",
}
# Networks whose folders name a class that is not theirs so often that it is passed over.
PASSED_OVER = ("modernbert", "phi3", "qwen2")
