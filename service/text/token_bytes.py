"""The bytes that each token of a vocabulary stands for, whatever stands around it.

Two kinds of vocabularies have such bytes. GPT-2's spells each byte by a character of its own
(ByteLevel). SentencePiece's spells a space by U+2581 and, where it falls back to bytes, a byte as
`<0x0A>`; Metaspace is the same without bytes. Others, such as WordPiece, put spaces between tokens
by rules that look at neighbours.
"""

import json
import re
from dataclasses import dataclass

import tokenizers

SPACE = "\u2581"  # as SentencePiece spells it
BYTE = re.compile(r"<0x([0-9A-F]{2})>")
REPLACE = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
# Steps of a decoder that do not change what bytes a token stands for.
NEUTRAL = ({"type": "Fuse"}, {"type": "ByteFallback"}, STRIP)


@dataclass(frozen=True, slots=True)
class ByteKind:
    """Spelling of bytes in a vocabulary, and whether a whole text loses its first space."""

    is_byte_level: bool
    falls_back: bool = False  # to `<0x0A>`
    strips_space: bool = False


def kind_of_bytes(tokenizer: tokenizers.Tokenizer) -> ByteKind | None:
    """Kind of a tokenizer's bytes; None where the bytes of a token depend on its neighbours."""
    decoder = json.loads(tokenizer.to_str())["decoder"]
    if decoder is None:
        return None
    if decoder["type"] == "ByteLevel":
        return ByteKind(is_byte_level=True)
    if decoder["type"] == "Metaspace" and decoder["replacement"] == SPACE:
        return ByteKind(False, strips_space=decoder["prepend_scheme"] != "never")
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    if REPLACE not in steps or any(step != REPLACE and step not in NEUTRAL for step in steps):
        return None
    return ByteKind(False, {"type": "ByteFallback"} in steps, STRIP in steps)


def bytes_of_tokens(tokenizer: tokenizers.Tokenizer, kind: ByteKind) -> tuple[bytes, ...]:
    """By id; empty for special tokens, and for ids without a token."""
    added = tokenizer.get_added_tokens_decoder()
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    byte_of = _byte_of_character()
    tokens = [b""] * (max(vocabulary.values(), default=-1) + 1)
    for token, token_id in vocabulary.items():
        if token_id in added:  # spelled as it is; nothing where it is special
            tokens[token_id] = b"" if added[token_id].special else token.encode()
        elif kind.is_byte_level:
            known = all(character in byte_of for character in token)
            of_bytes = bytes(byte_of[character] for character in token) if known else b""
            tokens[token_id] = of_bytes or token.encode()
        else:
            byte = BYTE.fullmatch(token) if kind.falls_back else None
            tokens[token_id] = (
                bytes.fromhex(byte[1]) if byte else token.replace(SPACE, " ").encode()
            )
    return tuple(tokens)


def _byte_of_character() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 stands for itself, other bytes for 256 and upwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted(set(range(256)) - set(printable))
    characters = [*map(chr, printable), *(chr(256 + place) for place in range(len(others)))]
    return dict(zip(characters, [*printable, *others], strict=True))
