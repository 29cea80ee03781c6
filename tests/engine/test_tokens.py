"""The token boundary: joint encoding, one common rule, whatever the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from steelyard.core.errors import InputError
from steelyard.core.types import Tokens
from steelyard.engine.tokens import Encoded, encode_pair, encode_prompt


@dataclass
class Toy:
    """Characters as tokens, except for a few merges; <s> and </s> are tokens where they stand in a text."""

    merges: tuple[str, ...] = ("Answer", " the", ".\n\n", "ab", "😀", "  ", "wer", "Ans")
    adds_bos: bool = False
    bos_id: int | None = 0
    eos_id: int | None = 1
    with_spans: bool = True
    special: ClassVar[tuple[str, ...]] = ("<s>", "</s>")

    def encode(self, text: str) -> Encoded:
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        at = 0
        while at < len(text):
            pieces = [*self.special, *self.merges]
            found = next((p for p in pieces if text.startswith(p, at)), text[at])
            ids.append(pieces.index(found) if found in pieces else 100 + ord(found))
            spans.append((at, at + len(found)))
            at += len(found)
        return Encoded(tuple(ids), tuple(spans) if self.with_spans else None)

    def decode(self, ids: Sequence[int]) -> str:
        pieces = [*self.special, *self.merges]
        return "".join(pieces[i] if i < len(pieces) else chr(i - 100) for i in ids)


PIECES = (
    *(
        " ",
        "  ",
        "\n",
        "\t",
        "a",
        "ab",
        "Ans",
        "wer",
        ".",
        ".\n\n",
        "18",
        "1,000",
        "\u00e9",
        "e\u0301",
        "你",
        "😀",
    ),
    *(
        "👩\u200d👩\u200d👧",
        "\u200b",
        "\ufeff",
        "\x00",
        "<s>",
        "</s>",
        "<|im_end|>",
        " the",
        "'s",
        "\u0661",
        "\u00a0",
    ),
)
NASTY = st.lists(st.sampled_from(PIECES) | st.characters(exclude_categories=["Cs"]), max_size=12).map("".join)


def text_of(tokenizer, tokens: Tokens, context: str, continuation: str) -> tuple[str, str]:
    """What is read and what is scored, by the joint encoding's own spans."""
    spans = tokenizer.encode(context + continuation).spans
    extra = len(tokens.ids) - len(spans)
    first = tokens.start - extra
    start = spans[first][0]
    return (context + continuation)[:start], (context + continuation)[start:]


def check_pair(tokenizer, context: str, continuation: str) -> Tokens:
    tokens = encode_pair(tokenizer, context, continuation)
    joint = tokenizer.encode(context + continuation)
    extra = len(tokens.ids) - len(joint.ids)
    assert extra in {0, 1}
    assert tokens.ids[extra:] == joint.ids  # the text is the joint encoding, nothing lost and nothing added
    assert 1 <= tokens.start < len(tokens.ids)
    assert tokens == encode_pair(tokenizer, context, continuation)
    first = tokens.start - extra
    boundary = len(context.rstrip())
    assert all(end <= boundary for _, end in joint.spans[:first]) or joint.ids[:1] == tokens.ids[:first]
    inside = [end <= boundary for _, end in joint.spans]
    longest = inside.index(False) if False in inside else len(inside)
    if longest == len(inside):
        assert tokens.moved
        assert first == len(inside) - 1 or len(inside) == 1
    else:
        assert first == longest or (first == 1 and longest == 0 and extra == 0)
        assert tokens.moved == (joint.spans[longest][0] < boundary)
    return tokens


@settings(max_examples=100, deadline=None)
@given(context=NASTY, continuation=NASTY.filter(bool), adds_bos=st.booleans())
@example(context="Ans", continuation="wer", adds_bos=False)
@example(context="done.", continuation="\n\nNext", adds_bos=True)
@example(context="  ", continuation=" ", adds_bos=False)
@example(context="<s>", continuation="a", adds_bos=True)
@example(context="", continuation="<s>", adds_bos=True)
def test_any_pair_of_texts_is_split_at_the_last_common_boundary_of_a_toy_tokenizer(
    context, continuation, adds_bos
):
    tokens = check_pair(Toy(adds_bos=adds_bos), context, continuation)
    if adds_bos:
        assert 0 in tokens.ids[:2]


@settings(max_examples=100, deadline=None)
@given(context=NASTY, continuation=NASTY.filter(bool), adds_bos=st.booleans())
def test_a_tokenizer_without_spans_is_split_where_one_with_spans_is(context, continuation, adds_bos):
    with_spans = encode_pair(Toy(adds_bos=adds_bos), context, continuation)
    without = encode_pair(Toy(adds_bos=adds_bos, with_spans=False), context, continuation)
    assert without == with_spans


def test_a_token_that_spans_the_join_is_scored_whole_and_flagged():
    tokens = encode_pair(Toy(), "Q: Ans", "wer")
    assert tokens == Tokens(Toy().encode("Q: Answer").ids, 3, moved=True)


def test_trailing_white_space_of_the_context_is_scored_with_the_continuation_and_is_no_move():
    toy = Toy()
    tokens = encode_pair(toy, "is ", "the end")
    assert text_of(toy, tokens, "is ", "the end") == ("is", " the end")
    assert not tokens.moved
    assert tokens == encode_pair(toy, "is", " the end")


def test_an_empty_context_gets_bos_else_eos_in_front_unscored():
    assert encode_pair(Toy(), "", "ab") == Tokens((0, 5), 1)
    assert encode_pair(Toy(bos_id=None), "", "ab") == Tokens((1, 5), 1)
    assert encode_pair(Toy(), "a", "b") == Tokens((0, 5), 1, moved=True)


def test_neither_bos_nor_eos_is_an_error_only_where_one_is_needed():
    bare = Toy(bos_id=None, eos_id=None)
    assert encode_pair(bare, "x", "y").start == 1
    with pytest.raises(InputError, match="neither BOS nor EOS"):
        encode_pair(bare, "", "y")
    with pytest.raises(InputError, match="neither BOS nor EOS"):
        encode_prompt(bare, "")


def test_bos_stands_exactly_once_also_when_the_text_brings_it():
    toy = Toy(adds_bos=True)
    assert encode_prompt(toy, "<s>a").ids == encode_prompt(toy, "a").ids == (0, 197)
    assert encode_pair(toy, "<s>a", "b").ids == encode_pair(toy, "a", "b").ids
    assert encode_pair(toy, "", "<s>a") == Tokens((0, 197), 1)
    assert encode_pair(toy, "<s>", "a") == Tokens((0, 197), 1)
    assert encode_prompt(Toy(adds_bos=False), "a").ids == (197,)


def test_a_continuation_that_is_the_bos_text_alone_is_scored_after_eos():
    assert encode_pair(Toy(adds_bos=True), "", "<s>") == Tokens((1, 0), 1)


def test_an_empty_prompt_is_one_token():
    assert encode_prompt(Toy(), "") == Tokens((0,), 1)
    assert encode_prompt(Toy(adds_bos=True), "") == Tokens((0,), 1)
    assert encode_prompt(Toy(bos_id=None), "") == Tokens((1,), 1)


def test_an_empty_continuation_is_refused_by_name():
    with pytest.raises(InputError, match="continuation is empty"):
        encode_pair(Toy(), "What is it?", "")


def test_a_lone_surrogate_is_an_error_that_says_where():
    with pytest.raises(InputError, match=r"Character 2 .* lone surrogate"):
        encode_prompt(Toy(), "ab\ud800c")
    with pytest.raises(InputError, match="lone surrogate"):
        encode_pair(Toy(), "a", "b\udfff")


def test_a_continuation_that_leaves_no_token_scores_the_last_one_of_the_context():
    class Deaf(Toy):
        """Drops zero-width spaces, as a normalizer may."""

        def encode(self, text):
            return super().encode(text.rstrip("\u200b"))

    assert encode_pair(Deaf(), "xy", "\u200b") == Tokens((220, 221), 1, moved=True)


@pytest.mark.parametrize(
    ("context", "continuation", "scored", "moved"),
    [
        ("cafe", "\u0301 noir", b"\xc3\xa9 noir", True),  # one letter that both texts made
        ("cafe", "\u0301", b"\xc3\xa9", True),
        ("e", "\u0301\u0301", b"\xc3\xa9\xcc\x81", True),
        ("caf\u1112", "\u1161\u11ab!", "한!".encode(), True),
        ("cafe\u0301", " noir", b" noir", False),
        ("cafe ", "\u0301x", b" \xcc\x81x", False),
        (
            "cafe",
            "\u200b\u0301",
            b"\xcc\x81",
            False,
        ),  # one is dropped and separates no more, yet nothing joins
    ],
)
def test_a_letter_that_a_normalizer_makes_of_both_texts_is_scored_whole(context, continuation, scored, moved):
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    inner.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace("\u200b", "")])
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()

    class Composing(Toy):
        """Byte-level, after NFC, whose composed letters claim the place of their first part alone."""

        def encode(self, text):
            found = inner.encode(text)
            return Encoded(tuple(i + 2 for i in found.ids), tuple(found.offsets))

        def decode(self, ids):
            return inner.decode([i - 2 for i in ids])

    tokens = encode_pair(Composing(), context, continuation)
    back = {c: b for b, c in _byte_letters().items()}
    assert bytes(back[alphabet[i - 2]] for i in tokens.ids[tokens.start :]) == scored
    assert tokens.moved is moved


def _byte_letters() -> dict[int, str]:
    """GPT-2's letters for the 256 bytes: printable ones stand for themselves, the others follow at 256."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(rest)}


def test_bytes_of_one_character_share_its_span_and_are_not_torn_by_the_boundary():
    class Bytes(Toy):
        """Every UTF-8 byte a token; "é" and the byte after it are merged across characters."""

        def encode(self, text):
            spans = [(i, i + 1) for i, c in enumerate(text) for _ in c.encode()]
            return Encoded(tuple(b + 2 for c in text for b in c.encode()), tuple(spans))

    tokens = encode_pair(Bytes(), "a😀", "😀b")
    assert (tokens.start, len(tokens.ids), tokens.moved) == (5, 10, False)


# ------------------------------------------------------------------------------------------- real tokenizers
@settings(max_examples=100, deadline=None)
@given(context=NASTY, continuation=NASTY.filter(bool))
@example(context="done.", continuation="\n\nNext")
@example(context="done.\n\n", continuation="Next")
@example(context="a😀", continuation="😀b")
def test_any_pair_of_texts_is_split_well_by_a_byte_level_tokenizer(tiny_tokenizers, context, continuation):
    for tokenizer in tiny_tokenizers:
        tokens = check_pair(tokenizer, context, continuation)
        if tokenizer.adds_bos:
            assert tokens.ids[0] == tokenizer.bos_id or tokens.ids == (tokenizer.eos_id, tokenizer.bos_id)


@pytest.fixture(scope="session")
def tiny_tokenizers(tiny, tiny_bos):
    from steelyard.engine.transformers.tokenizer import LocalTokenizer

    return [LocalTokenizer(tiny), LocalTokenizer(tiny_bos)]


def test_spans_are_not_trimmed_of_white_space(tiny_tokenizers):
    tokenizer = tiny_tokenizers[0]
    text = "The capital \n\n is"
    spans = tokenizer.encode(text).spans
    assert "".join(text[a:b] for a, b in spans) == text


def test_whether_a_tokenizer_adds_bos_is_seen_from_what_it_does(tiny_tokenizers):
    assert [t.adds_bos for t in tiny_tokenizers] == [False, True]


@pytest.fixture(scope="session")
def smollm2_tokenizer(smollm2):
    from steelyard.engine.transformers.tokenizer import LocalTokenizer

    return LocalTokenizer(smollm2)


@pytest.mark.model
@settings(max_examples=100, deadline=None)
@given(context=NASTY, continuation=NASTY.filter(bool))
@example(context="The answer is 1", continuation="8")
@example(context="Ans", continuation="wer")
def test_any_pair_of_texts_is_split_well_by_the_embedded_models_tokenizer(
    smollm2_tokenizer, context, continuation
):
    tokens = check_pair(smollm2_tokenizer, context, continuation)
    joint = smollm2_tokenizer.encode(context + continuation).ids
    text = smollm2_tokenizer._fast.decode(
        tokens.ids[len(tokens.ids) - len(joint) :], skip_special_tokens=False
    )
    # 21 of the 256 bytes are not in this vocabulary (13 never occur in UTF-8); it skips them
    if all(smollm2_tokenizer.decode(smollm2_tokenizer.encode(c).ids) == c for c in context + continuation):
        assert text == context + continuation


@pytest.mark.model
def test_the_embedded_models_tokenizer_adds_no_bos_and_splits_every_digit(smollm2_tokenizer):
    assert not smollm2_tokenizer.adds_bos
    assert encode_prompt(smollm2_tokenizer, "a").ids == smollm2_tokenizer.encode("a").ids
    # ids of the model's own vocabulary: two spaces are one token, also before a digit
    assert smollm2_tokenizer.encode("x  12 a").ids == (104, 256, 33, 34, 253)
