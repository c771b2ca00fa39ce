"""A vocabulary of SentencePiece's kind, as Llama 2, Mistral and Gemma have one."""

from tokenizers import Tokenizer, decoders, normalizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing

WORDS = ("the", "cat", "sat", "on", "mat", "once", "upon", "time", "user", "system")


def sentencepiece_tokenizer(*special: str, strips_space: bool = True) -> Tokenizer:
    """Byte pairs over ▁ and letters, with bytes for all else; `<s>` begins every text."""
    vocabulary = {word: index for index, word in enumerate(("<unk>", "<s>", "</s>"))}
    for value in range(256):
        vocabulary[f"<0x{value:02X}>"] = len(vocabulary)
    for character in "▁abcdefghijklmnopqrstuvwxyz.,":
        vocabulary[character] = len(vocabulary)
    merges = []
    for word in WORDS:
        start = "▁"
        for letter in word:
            if start + letter not in vocabulary:
                merges.append((start, letter))
                vocabulary[start + letter] = len(vocabulary)
            start += letter
    unknown = "<unk>"
    model = BPE(vocabulary, merges, unk_token=unknown, byte_fallback=True, fuse_unk=True)
    tokenizer = Tokenizer(model)
    spaces = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    tokenizer.normalizer = normalizers.Sequence(spaces)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    stripped = [decoders.Strip(content=" ", left=1, right=0)] if strips_space else []
    tokenizer.decoder = decoders.Sequence([*steps, *stripped])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>", *special])
    begin = [("<s>", vocabulary["<s>"])]
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=begin)
    return tokenizer
