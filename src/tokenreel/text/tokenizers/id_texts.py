"""What each id of a row says, for people: ids to texts, one by one, without decoding prefixes.

A token by itself may be half a character, or lose the blank in front of it. So an id is decoded
behind another one, the anchor, and what that adds is its text; it is looked up from then on. Ids
that spell a character together are decoded together, and the last of them carries the text. A
row of 4,096 ids takes a millisecond, and some 20 µs more for each id that was not seen before.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from tokenreel.text.tokenizers.tokenizer_protocol import Tokenizer

REPLACEMENT = "\ufffd"  # what half a character is decoded to
# Ids that are decoded together: three that end a character whose beginning is missing, and the four
# of a whole one. So from the middle of a text on all is as from its beginning, after as many ids.
MOST_IDS = 8
# Characters of an id that may be joined with others: each join is a new text, so ids of a megabyte,
# which only a hostile vocabulary has, would fill the memory. Vocabularies in use have up to 128.
LONGEST_PART = 256
MOST_KEPT = 1 << 20  # texts of ids; vocabularies are smaller, ids of damaged files may not be


class IdTexts:
    """The texts of a tokenizer's ids; an id that it lacks is shown as ⟨2000⟩.

    >>> from tokenreel.text.tokenizers import load_tokenizer
    >>> texts = IdTexts(load_tokenizer("byte"))
    >>> texts.of([104, 195, 169, 256, 2000])
    ['h', None, 'é', '<|endoftext|>', '⟨2000⟩']
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.control_names = {number: name for name, number in tokenizer.control_ids.items()}
        self._known: dict[int, str] = {}
        self._anchor, self._prefix = _find_anchor(tokenizer)

    def of(self, ids: Sequence[int], *, begins: Container[int] = ()) -> list[str | None]:
        """Return what each id adds to the text.

        None: it is a part of the character that the next text ends. `begins` are the places
        where another text begins, over which no character reaches.
        """
        texts: list[str | None] = []
        held: list[int] = []
        for place, number in enumerate(ids):
            text = self._alone(number)
            is_whole = len(text) > LONGEST_PART or number in self.control_names
            if held and (is_whole or place in begins):
                texts[-1] = self._joined(held)
                held = []
            if held or (text.endswith(REPLACEMENT) and not is_whole):
                held.append(number)
                text = self._joined(held)
                if text.endswith(REPLACEMENT) and len(held) < MOST_IDS and place + 1 < len(ids):
                    texts.append(None)
                    continue
                held = []
            texts.append(text)
        return texts

    def _alone(self, number: int) -> str:
        text = self._known.get(number)
        if text is None:
            text = self.control_names.get(number)
            text = self._joined([number]) if text is None else text
            if len(self._known) < MOST_KEPT:
                self._known[number] = text
        return text

    def _joined(self, ids: list[int]) -> str:
        """Return what ids add to the anchor's text; their numbers where that is not known."""
        try:
            text = self.tokenizer.decode([*self._anchor, *ids])
            if text.startswith(self._prefix):
                return text[len(self._prefix) :]
            return self.tokenizer.decode(ids)
        except Exception:  # whatever the tokenizers of others raise for an id that they lack
            return "".join(f"⟨{number}⟩" for number in ids)


def _find_anchor(tokenizer: Tokenizer) -> tuple[list[int], str]:
    """Return an id in front of which no text changes, and its text; none where there is no such."""
    try:
        anchor = tokenizer.encode_batch(["a"]).ids[-1:].tolist()
        prefix = tokenizer.decode(anchor)
        is_kept = tokenizer.decode([*anchor, *anchor]).startswith(prefix)
    except Exception:  # a tokenizer that only decodes
        return [], ""
    return (anchor, prefix) if prefix and is_kept and REPLACEMENT not in prefix else ([], "")
