"""From records of preferences to batches, against an oracle of bytes, lists and loops.

The oracle knows ChatML with a byte tokenizer: which groups there are, which answers each has, in
which order, which of their tokens are trained, and which groups fit into a row. A run over one
epoch, on any number of ranks, broken off in the middle and gone on with on another, shows each of
them once, whole, in one row.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.feed.making import scratch

from tokenreel import Feed, Recipe, Source, build
from tokenreel.errors import ConfigError
from tokenreel.feed.batch import Batch
from tokenreel.text.tokenizers import byte_tokenizer

BYTES = byte_tokenizer(["<|im_start|>", "<|im_end|>"])
START, END = BYTES.control_ids["<|im_start|>"], BYTES.control_ids["<|im_end|>"]
IGNORED = -100
PREFERRED, REJECTED, UNLABELLED = 1, 2, 0
Message = tuple[str, str]  # role, content


class Answer(NamedTuple):
    """An answer with its prompt: tokens, whether each is trained, label."""

    tokens: tuple[int, ...]
    trained: tuple[bool, ...]
    label: int


Group = tuple[Answer, ...]


def answer_of(prompt: list[Message], said: list[Message], label: int) -> Answer:
    """Return an answer as ChatML has it; of what the assistant says, text and end are trained."""
    tokens: list[int] = []
    trained: list[bool] = []
    for number, (role, content) in enumerate(prompt + said):
        is_answer = number >= len(prompt) and role == "assistant"
        for text, begins, ends, weighs in (
            (f"{role}\n", START, None, False),
            (content, None, END, is_answer),
            ("\n", None, None, False),
        ):
            part = [begins, *text.encode(), ends]
            tokens += [token for token in part if token is not None]
            trained += [weighs] * (len(tokens) - len(trained))
    return Answer(tuple(tokens), tuple(trained), label)


class Case(NamedTuple):
    """A record and the group that it is."""

    record: dict[str, Any]
    group: Group


TEXTS = st.text(st.sampled_from("ab ?ß\n<|im_end|>"), min_size=1, max_size=9)
ROLES = ("user", "assistant")


def messages(said: list[Message]) -> list[dict[str, Any]]:
    return [{"role": role, "content": content} for role, content in said]


@st.composite
def pair_cases(draw: st.DrawFn) -> Case:
    """A pair, its prompt beside the answers, inside them, or both; texts or messages."""
    asked = [("system", draw(TEXTS))] if draw(st.booleans()) else []
    asked += [(role, draw(TEXTS)) for _ in range(draw(st.integers(0, 1))) for role in ROLES]
    asked.append(("user", draw(TEXTS)))
    chosen = [("assistant", draw(TEXTS))]
    if draw(st.booleans()):
        chosen += [("user", draw(TEXTS)), ("assistant", draw(TEXTS))]
    rejected = [("assistant", draw(TEXTS.filter(lambda text: text != chosen[0][1])))]
    texts = len(asked) == len(chosen) == 1 and draw(st.booleans())
    sides = {"chosen": chosen, "rejected": rejected}
    if texts:
        record: dict[str, Any] = {"prompt": asked[0][1]}
        record |= {name: said[0][1] for name, said in sides.items()}
    else:
        whole = draw(st.booleans())
        record = {name: messages(asked * whole + said) for name, said in sides.items()}
        if not whole or draw(st.booleans()):
            record["prompt"] = messages(asked)
    labels = (PREFERRED, REJECTED)
    answers = zip(sides.values(), labels, strict=True)
    return Case(record, tuple(answer_of(asked, said, label) for said, label in answers))


@st.composite
def labelled_cases(draw: st.DrawFn) -> Case:
    prompt, completion, label = draw(TEXTS), draw(TEXTS), draw(st.booleans())
    said = answer_of(
        [("user", prompt)], [("assistant", completion)], PREFERRED if label else REJECTED
    )
    return Case({"prompt": prompt, "completion": completion, "label": label}, (said,))


@st.composite
def ranked_cases(draw: st.DrawFn) -> Case:
    prompt, answers = draw(TEXTS), draw(st.lists(TEXTS, min_size=2, max_size=6))
    record: dict[str, Any] = {"prompt": prompt, "answers": answers}
    order = list(range(len(answers)))
    if draw(st.booleans()):
        record["scores"] = draw(st.lists(st.integers(-3, 3), min_size=len(order), max_size=6))
        record["scores"] = record["scores"][: len(order)]
        for _ in order:  # bubbles: the best go up, equals stay in order
            for n in range(len(order) - 1):
                if record["scores"][order[n]] < record["scores"][order[n + 1]]:
                    order[n : n + 2] = order[n + 1], order[n]
    said = [answer_of([("user", prompt)], [("assistant", answers[n])], UNLABELLED) for n in order]
    return Case(record, tuple(said))


def shown(group: Group, *, capacity: int, limit: int, truncation: str | None) -> Group | None:
    """Return a group as it is shown in a row of so many tokens; None: it is left out."""
    lengths = [len(answer.tokens) for answer in group]
    if truncation is None:
        if max(lengths) > limit or sum(lengths) > capacity:
            return None
        most = limit
    else:
        most = limit
        while sum(min(length, most) for length in lengths) > capacity:
            most -= 1
    if most < 2:
        return None
    kept = slice(-most, None) if truncation == "keep_last" else slice(0, most)
    cut = tuple(Answer(said.tokens[kept], said.trained[kept], said.label) for said in group)
    return cut if all(any(answer.trained[1:]) for answer in cut) else None


class Seen(NamedTuple):
    """What a batch holds of an answer: inputs, labels, weights, and its label."""

    inputs: list[int]
    labels: list[int]
    weights: list[float]
    label: int


def groups_of(batch: Batch) -> list[list[Seen]]:
    """Return the groups of a batch in order, and check that each lies in one row."""
    assert batch.group_ids is not None and batch.answer_labels is not None
    width = batch.input_ids.shape[-1]
    arrays = [
        array.reshape(-1, width).tolist()
        for array in (
            batch.segment_ids,
            batch.group_ids,
            batch.answer_labels,
            batch.input_ids,
            batch.labels,
            batch.loss_weights,
        )
    ]
    found: dict[int, list[Seen]] = {}
    rows_of: dict[int, set[int]] = {}
    for row, columns in enumerate(zip(*arrays, strict=True)):
        slots = list(zip(*columns, strict=True))
        for segment in sorted({slot[0] for slot in slots} - {0}):
            mine = [slot for slot in slots if slot[0] == segment]
            (group,), (label,) = {slot[1] for slot in mine}, {slot[2] for slot in mine}
            inputs, labels, weights = (list(column) for column in list(zip(*mine, strict=True))[3:])
            seen = Seen(inputs, labels, weights, label)
            found.setdefault(group, []).append(seen)
            rows_of.setdefault(group, set()).add(row)
    assert all(len(rows) == 1 for rows in rows_of.values())
    assert list(found) == list(range(len(found)))
    return list(found.values())


def matches(seen: list[Seen], group: Group) -> bool:
    """Tell whether a batch holds this group: every input, every target, every label."""
    if len(seen) != len(group):
        return False
    for part, answer in zip(seen, group, strict=True):
        size = len(answer.tokens)
        following = [
            token if is_trained else IGNORED
            for token, is_trained in zip(answer.tokens[1:], answer.trained[1:], strict=True)
        ] + [IGNORED]
        # The last token of a row that is full is a label alone.
        if len(part.inputs) not in (size, size - 1) or part.label != answer.label:
            return False
        count = len(part.inputs)
        if tuple(part.inputs) != answer.tokens[:count] or part.labels != following[:count]:
            return False
        if part.weights != [float(label != IGNORED) for label in part.labels]:
            return False
    return True


@settings(max_examples=25, deadline=None)
@given(
    st.lists(pair_cases() | labelled_cases() | ranked_cases(), min_size=1, max_size=12),
    st.integers(40, 200),
    st.sampled_from([None, None, "keep_first", "keep_last"]),
    st.integers(20, 80) | st.none(),
    st.sampled_from(["best_fit", "first_fit", "sequential", "single"]),
    st.tuples(st.sampled_from([1, 2, 3, 5]), st.sampled_from([1, 2, 3, 5]), st.integers(1, 2)),
    st.booleans(),
    st.data(),
)
def test_an_epoch_shows_each_group_of_the_records_once_and_whole(
    cases: list[Case],
    seq_len: int,
    truncation: Any,
    answer_tokens: int | None,
    packing: Any,
    world: tuple[int, int, int],
    deduplicate: bool,
    data: st.DataObject,
) -> None:
    first_ranks, later_ranks, grad_accum = world
    capacity = seq_len + 1
    limit = min(answer_tokens or capacity, capacity)
    groups = [case.group for case in cases]
    if deduplicate:
        groups = list(dict.fromkeys(groups))
    wanted = [
        group
        for group in (
            shown(group, capacity=capacity, limit=limit, truncation=truncation) for group in groups
        )
        if group is not None
    ]
    with scratch() as folder:
        build(
            [case.record for case in cases],
            out=folder / "s",
            tokenizer=BYTES,
            pairs=True,
            deduplicate=deduplicate,
            shuffle="global",
            shard_size=2400,
            progress=False,
        )
        rows = Source(
            name="p",
            path=folder / "s",
            rows="pairs",
            packing=packing,
            truncation=truncation,
            answer_tokens=limit,
        )
        recipe = Recipe(
            seq_len=seq_len,
            global_batch_size=4,
            grad_accum=grad_accum,
            passes=1,
            seed=data.draw(st.integers(0, 9)),
            sources=[rows],
        )
        if not wanted:
            with pytest.raises(ConfigError, match="no document can be trained on"):
                Feed(recipe)
            return
        feed = Feed(recipe)
        broken = data.draw(st.integers(0, len(feed) - 1))
        found: list[list[Seen]] = []
        for step in range(broken):
            for rank in range(first_ranks):
                found += groups_of(feed.batch(step, rank=rank, world_size=first_ranks))
        state = json.loads(json.dumps({**feed.state_dict(), "step": broken}))
        for rank in range(later_ranks):
            other = Feed(recipe)
            other.load_state_dict(state)
            for batch in other.stream(rank=rank, world_size=later_ranks, prefetch=1):
                found += groups_of(batch)
        assert len(found) == len(wanted)
        for group in wanted:
            at = next((n for n, seen in enumerate(found) if matches(seen, group)), None)
            assert at is not None, group
            found.pop(at)
        counted = feed.plans[0].ledger
        assert counted["groups"] == len(wanted) and counted["documents"] == len(groups)
        assert counted["trained"] == sum(sum(a.trained[1:]) for group in wanted for a in group)
        assert np.isfinite(feed.batch(0).loss_weights).all()
