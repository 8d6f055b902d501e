"""From records of prompts to batches, against an oracle of bytes and lists.

An epoch, on any number of ranks, broken off in the middle and gone on with on another, shows each
prompt that fits `repeats` times side by side, with the rest of its record: to the letter, the
order of keys and the type of every number included.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.feed.making import scratch

from tokenreel import Feed, Recipe, Source, build
from tokenreel.text.tokenizers import byte_tokenizer

BYTES = byte_tokenizer(["<|im_start|>", "<|im_end|>"])
START, END = BYTES.control_ids["<|im_start|>"], BYTES.control_ids["<|im_end|>"]
PAD = 7
LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff")
TEXTS = st.text(LETTERS, min_size=1, max_size=8).filter(str.strip)
NUMBERS = st.integers() | st.sampled_from([2**63, 2**64, -(2**70), 10**40, 2**53 + 1])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | NUMBERS
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(LETTERS, max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(LETTERS, max_size=3), inner)
    ),
    max_leaves=5,
)
# Names that neither a prompt nor a chat has.
NAMES = st.text(st.sampled_from("zyxé_1"), min_size=1, max_size=3)
RECORDS = st.lists(
    st.tuples(TEXTS, st.none() | TEXTS, st.dictionaries(NAMES, VALUES, max_size=4)),
    min_size=1,
    max_size=8,
)


def asked(question: str, begun: str | None) -> list[int]:
    """Return a question as ChatML asks it: up to where an answer begins, or goes on."""
    user = [START, *b"user\n", *question.encode(), END, *b"\n"]
    return [*user, START, *b"assistant\n", *(begun or "").encode()]


@given(
    RECORDS,
    st.integers(28, 60),
    st.sampled_from([1, 2, 4]),
    st.sampled_from(["left", "right"]),
    st.sampled_from([None, "keep_last"]),
    st.tuples(st.sampled_from([1, 2, 3, 5]), st.sampled_from([1, 2, 3, 5])),
    st.booleans(),
    st.data(),
)
@settings(max_examples=25, deadline=None)
def test_an_epoch_shows_each_prompt_with_its_record_to_the_letter(
    records: list[tuple[str, str | None, dict[str, Any]]],
    seq_len: int,
    repeats: int,
    padding: Any,
    truncation: Any,
    world: tuple[int, int],
    is_chat: bool,
    data: st.DataObject,
) -> None:
    lines, wanted = [], []
    for question, begun, rest in records:
        prompt: Any = question
        if is_chat and begun is not None:
            prompt = [{"role": "user", "content": question}]
            prompt.append({"role": "assistant", "content": begun})
        ids = asked(question, begun) if is_chat else [*question.encode()]
        lines.append(json.dumps({"prompt": prompt, **rest}) + "\n")
        if truncation or len(ids) <= seq_len:
            wanted.append((ids[-seq_len:], json.dumps(rest)))
    if not wanted:
        return
    with scratch() as folder:
        (folder / "a.jsonl").write_text("".join(lines))
        build(
            [folder / "a.jsonl"],
            out=folder / "s",
            tokenizer=BYTES,
            prompts=True,
            chat=is_chat or None,
            shuffle="global",
            shard_size=2000,
            progress=False,
        )
        rows = Source(
            name="q",
            path=folder / "s",
            rows="prompts",
            repeats=repeats,
            padding=padding,
            truncation=truncation,
        )
        facts: dict[str, Any] = {"seq_len": seq_len, "global_batch_size": 2 * repeats}
        recipe = Recipe(**facts, passes=1, pad_id=PAD, sources=[rows])
        feed = Feed(recipe)
        broken = data.draw(st.integers(0, len(feed) - 1))
        state = json.loads(json.dumps({**feed.state_dict(), "step": broken}))
        parts: dict[tuple[int, int], Any] = {}
        for rank in range(world[0]):
            for step in range(broken):
                parts[step, rank] = feed.batch(
                    step, rank=rank, world_size=world[0], extra=("records",)
                )
        for rank in range(world[1]):
            other = Feed(recipe)
            other.load_state_dict(state)
            for batch in other.stream(rank=rank, world_size=world[1], extra=("records",)):
                parts[batch.step, rank] = batch
        shown = []
        for key in sorted(parts):
            batch = parts[key]
            columns = (batch.input_ids, batch.segment_ids, batch.source_ids, batch.records)
            for ids, segments, source, record in zip(*columns, strict=True):
                assert (record is not None) == (source >= 0)
                if record is None:
                    continue
                held = ids[segments > 0].tolist()
                empty = [PAD] * (seq_len - len(held))
                assert ids.tolist() == (empty + held if padding == "left" else held + empty)
                shown.append((held, json.dumps(record)))
        groups = [shown[at : at + repeats] for at in range(0, len(shown), repeats)]
        assert all(group == [group[0]] * repeats for group in groups)
        assert sorted(group[0] for group in groups) == sorted(wanted)
        ledger = feed.plans[0].ledger
        assert ledger["too_long"] == len(records) - len(wanted)
