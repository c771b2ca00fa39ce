"""Text leaves as early as it is certain, whole characters only, and nothing from a stop on."""

from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from service.generation.text_stream import TextStream

BYTES = tuple(bytes([value]) for value in range(256))  # a vocabulary of single bytes


def stream_of(*stop: str) -> TextStream:
    return TextStream(BYTES, stop)


def push_text(stream: TextStream, text: str) -> list[str]:
    """What comes out for each byte of a text."""
    return [stream.push(value) for value in text.encode()]


def read(pieces: list[bytes], stop: tuple[str, ...] = ()) -> tuple[str, str | None]:
    """The whole text of pieces, each a token, and the stop string found."""
    stream = TextStream(pieces, stop)
    text = "".join([*(stream.push(token_id) for token_id in range(len(pieces))), stream.finish()])
    return text, stream.matched_stop


def test_ascii_leaves_at_once() -> None:
    stream = stream_of()
    assert push_text(stream, "abc") == ["a", "b", "c"]
    assert stream.finish() == ""


def test_a_character_leaves_with_its_last_byte() -> None:
    """Four bytes, of which three say nothing yet."""
    assert push_text(stream_of(), "\N{PARTY POPPER}!") == ["", "", "", "\N{PARTY POPPER}", "!"]


def test_a_cut_character_is_replaced_at_the_end_only() -> None:
    stream = stream_of()
    assert [stream.push(value) for value in "\u00e9".encode()[:1]] == [""]
    assert stream.finish() == "\ufffd"
    assert stream.finish() == ""


@given(st.lists(st.binary(max_size=4), max_size=12))
@example([b"\xf0\x9f", b"\x8e", b"\x89\xf0\x9f", b"a"])
@example([b"\xed\xa0\x80", b"\xc0", b"\xff"])
def test_the_pieces_add_up_to_decoding_all_at_once(pieces: list[bytes]) -> None:
    assert read(pieces) == (b"".join(pieces).decode("utf-8", "replace"), None)


def test_ids_beyond_the_tokenizers_are_of_no_text() -> None:
    """A vocabulary padded to a multiple of 64 has logits for ids that mean nothing."""
    stream = TextStream([b"a", b""])
    assert [stream.push(token_id) for token_id in (0, 1, 2, 99)] == ["a", "", "", ""]


def test_a_stop_string_is_found_across_tokens_and_never_sent() -> None:
    text, matched = read([b"one\n", b"\nUs", b"er", b": two"], ("\n\nUser:",))
    assert (text, matched) == ("one", "\n\nUser:")


def test_after_a_match_nothing_more_comes() -> None:
    stream = stream_of("b")
    assert push_text(stream, "abcb") == ["a", "", "", ""]
    assert stream.finish() == ""
    assert stream.matched_stop == "b"


def test_text_is_held_back_while_it_may_become_a_stop_string_and_no_longer() -> None:
    """At "aab" the stop string "aac" is over; "ab" of it may not begin another."""
    assert push_text(stream_of("aac"), "aaab.") == ["", "", "a", "aab", "."]


def test_what_was_held_back_comes_in_the_end() -> None:
    stream = stream_of("\n\n")
    assert push_text(stream, "a\n") == ["a", ""]
    assert stream.finish() == "\n"
    assert stream.matched_stop is None


def test_the_stop_string_that_is_complete_first_wins() -> None:
    assert read([b"xabcd"], ("abcd", "bc")) == ("xa", "bc")
    assert read([b"xabcd"], ("cd", "abc")) == ("x", "abc")


def test_of_two_that_end_together_the_first_listed_wins() -> None:
    assert read([b"xabc"], ("bc", "abc")) == ("xa", "bc")
    assert read([b"xabc"], ("abc", "bc")) == ("x", "abc")


def test_a_stop_string_of_several_bytes_per_character_is_found() -> None:
    pieces = [bytes([value]) for value in "caf\u00e9\N{PARTY POPPER}.".encode()]
    assert read(pieces, ("\u00e9\N{PARTY POPPER}",)) == ("caf", "\u00e9\N{PARTY POPPER}")


def test_a_stop_string_before_it_may_stop_is_text() -> None:
    """Whole within the first tokens, which `min_tokens` asked for."""
    stream = stream_of("END")
    assert "".join(stream.push(value, may_stop=False) for value in b"aENDb") == "aENDb"
    assert push_text(stream, "END") == ["", "", ""]
    assert stream.matched_stop == "END"


def test_a_stop_string_counts_where_it_is_complete() -> None:
    """Begun while it might not stop, and even overlapping one that did not count."""
    stream = stream_of("aa")
    assert [stream.push(ord("a"), may_stop=False) for _ in range(3)] == ["", "a", "a"]
    assert stream.push(ord("a")) == ""
    assert stream.matched_stop == "aa"


TEXTS = st.text(alphabet="ab\u00e9", max_size=30)
STOPS = st.lists(st.text(alphabet="ab\u00e9", min_size=1, max_size=4), min_size=1, max_size=4)


@given(TEXTS, STOPS, st.randoms(use_true_random=False))
def test_the_result_is_that_of_searching_the_whole_text(
    text: str, stops: list[str], random: Random
) -> None:
    """However the bytes are cut into tokens, and never a character held back in vain."""
    data, pieces = text.encode(), []
    while data:
        cut = random.randint(1, 3)
        pieces.append(data[:cut])
        data = data[cut:]
    ends = [
        (text.find(stop) + len(stop), place) for place, stop in enumerate(stops) if stop in text
    ]
    if not ends:
        assert read(pieces, tuple(stops)) == (text, None)
        return
    end, place = min(ends)
    assert read(pieces, tuple(stops)) == (text[: end - len(stops[place])], stops[place])


@given(TEXTS, STOPS)
def test_no_more_is_held_back_than_may_become_a_stop_string(text: str, stops: list[str]) -> None:
    stream, sent = TextStream([character.encode() for character in text], tuple(stops)), ""
    for place in range(len(text)):
        sent += stream.push(place)
        if stream.matched_stop is not None:
            return
        so_far = text[: place + 1]
        beginnings = [stop[:size] for stop in stops for size in range(len(stop))]
        longest = max(len(start) for start in beginnings if so_far.endswith(start))
        assert sent == so_far[: len(so_far) - longest]


def test_a_text_that_includes_its_stop_ends_with_it_however_its_tokens_cut_it() -> None:
    for pieces in (["one st", "op two"], ["one ", "s", "t", "o", "p", " two"], ["one stop two"]):
        tokens = [piece.encode() for piece in pieces]
        stream = TextStream(tokens, ("stop", "never"), includes_stop=True)
        text = "".join(map(stream.push, range(len(tokens)))) + stream.finish()
        assert (text, stream.matched_stop) == ("one stop", "stop")


def test_special_tokens_are_spelled_where_the_text_has_them() -> None:
    tokens = [b"a", b"", b"b"]
    assert "".join(map(TextStream(tokens).push, (0, 1, 2))) == "ab"
    spelled = TextStream(tokens, special_bytes={1: b"<end>"})
    assert "".join(map(spelled.push, (0, 1, 2))) == "a<end>b"
