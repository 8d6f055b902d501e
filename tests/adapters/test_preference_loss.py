"""Log-probabilities of answers and DPO's loss: the same from packed rows, padded rows and alone."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.adapters.tiny_model import TinyModel, causal, segmented
from tests.builder.test_pairs import preferences

import tokenreel
from tokenreel import Feed, Recipe, Source
from tokenreel.errors import ConfigError
from tokenreel.store.split import Document
from tokenreel.torch import (
    FeedLoader,
    Tensors,
    answer_logps,
    dpo_losses,
    evaluate,
    kto_losses,
    mismatched_answers,
    padded_answers,
)
from tokenreel.torch.preference_loss import AnswerLogps

SEQ_LEN = 320
FIELDS = ("input_ids", "labels", "loss_weights", "segment_ids", "position_ids", "group_ids")
GROUPS: dict[str, Any] = {"seq_len": SEQ_LEN, "global_batch_size": 4, "seed": 3}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "s"
    pairs = [record for record in preferences(80) if "chosen" in record]
    tokenreel.build(pairs, out=path, tokenizer="byte", pairs=True, progress=False)
    return path


@pytest.fixture(scope="module")
def model() -> TinyModel:
    return TinyModel(259, SEQ_LEN, dtype=torch.float64)


def recipe(store: Path, **options: Any) -> Recipe:
    source = Source(name="p", path=store, rows="pairs")
    return Recipe(sources=[source], **{**GROUPS, **options})


def logps_alone(model: TinyModel, document: Document) -> list[torch.Tensor]:
    """Return the log-probability of each answer of a document, each run through the model alone."""
    assert document.turns is not None
    numbers, starts = document.turns["answer"].tolist(), document.turns["start"].tolist()
    borders = [starts[numbers.index(n)] for n in range(max(numbers) + 1)]
    found = []
    for begin, end in pairwise([*borders, len(document)]):
        ids = torch.from_numpy(document.tokens[begin:end].astype("int64"))[None]
        trained = torch.from_numpy(document.loss_weights[begin:end].copy())[1:] > 0
        logits = model(ids[:, :-1], torch.arange(ids.shape[1] - 1)[None], causal)
        each = logits.log_softmax(-1)[0].gather(1, ids[0, 1:, None])[:, 0]
        found.append(each[trained].sum())
    return found


@torch.no_grad()
def test_packed_padded_and_single_answers_have_the_same_log_probability(
    store: Path, model: TinyModel
) -> None:
    feed = Feed(recipe(store))
    split = tokenreel.open_store(store)["train"]
    for step in range(2):
        batch = Tensors((*FIELDS, "answer_labels", "source_ids"))(feed.batch(step))
        packed = answer_logps(segmented(model, batch), batch)
        documents = [s.document for row in feed.explain(step).rows for s in row.segments]
        alone = [
            logp
            for document in dict.fromkeys(documents)
            for logp in logps_alone(model, split.document(document or 0))
        ]
        assert len(alone) > 8
        torch.testing.assert_close(packed.sums, torch.stack(alone), rtol=1e-9, atol=1e-9)
        padded = padded_answers(batch)
        rows = answer_logps(segmented(model, padded), padded)
        torch.testing.assert_close(rows.sums, packed.sums, rtol=1e-9, atol=1e-9)
        for name in ("group_ids", "labels", "num_tokens"):
            assert torch.equal(getattr(rows, name), getattr(packed, name))


def test_tensors_are_padded_as_arrays_are(store: Path) -> None:
    names = (*FIELDS, "answer_labels", "source_ids")
    batch = Feed(recipe(store, grad_accum=2)).batch(0)
    expected = Tensors(names)(batch.padded(width=200))
    made = padded_answers(Tensors(names)(batch), width=200)
    assert made.keys() == set(names)
    for name in names:
        assert torch.equal(made[name], expected[name]), name


@torch.no_grad()
def test_the_dpo_loss_is_that_of_its_formula_on_pairs_alone(store: Path, model: TinyModel) -> None:
    frozen = TinyModel(259, SEQ_LEN, dtype=torch.float64)
    for weights in frozen.parameters():
        weights.mul_(0.9)
    feed, split = Feed(recipe(store)), tokenreel.open_store(store)["train"]
    batch = Tensors((*FIELDS, "answer_labels"))(feed.batch(1))
    policy = answer_logps(segmented(model, batch), batch)
    reference = answer_logps(segmented(frozen, batch), batch).sums
    documents = [s.document for row in feed.explain(1).rows for s in row.segments]
    for smoothing in (0.0, 0.2):
        expected = []
        for document in dict.fromkeys(documents):
            chosen, rejected = logps_alone(model, split.document(document or 0))
            fixed_chosen, fixed_rejected = logps_alone(frozen, split.document(document or 0))
            margin = 0.3 * ((chosen - rejected) - (fixed_chosen - fixed_rejected))
            likely = torch.sigmoid(margin)
            expected.append(-(1 - smoothing) * likely.log() - smoothing * (1 - likely).log())
        found = dpo_losses(policy, reference, beta=0.3, label_smoothing=smoothing)
        torch.testing.assert_close(found, torch.stack(expected), rtol=1e-8, atol=1e-9)


@torch.no_grad()
def test_the_mean_loss_of_a_step_does_not_depend_on_ranks_or_microbatches(
    store: Path, model: TinyModel
) -> None:
    zeros = TinyModel(259, SEQ_LEN, dtype=torch.float64)

    def total(feed: Feed, **part: Any) -> float:
        batch = Tensors((*FIELDS, "answer_labels"))(feed.batch(2, **part))
        flat = {name: values.reshape(-1, SEQ_LEN) for name, values in batch.items()}
        reference = answer_logps(segmented(zeros, flat), flat).sums * 0.5
        return float(dpo_losses(answer_logps(segmented(model, flat), flat), reference).sum())

    feed = Feed(recipe(store))
    pairs = feed.denominators(2).samples / 2
    whole = total(feed) / pairs
    shared = sum(total(feed, rank=rank, world_size=3) for rank in range(3)) / pairs
    accumulated = total(Feed(recipe(store, grad_accum=2))) / pairs
    assert shared == pytest.approx(whole, rel=1e-12) == accumulated


def test_a_loader_hands_on_groups_and_labels_of_pairs_unless_told_otherwise(store: Path) -> None:
    batch = next(iter(FeedLoader(recipe(store))))
    assert batch["group_ids"].max() > 0 and set(batch["answer_labels"].unique().tolist()) <= {
        0,
        1,
        2,
    }
    assert "group_ids" not in next(iter(FeedLoader(recipe(store), fields=["input_ids"])))


@pytest.mark.parametrize("labels", [[1, 1, 2, 2], [0, 0, 0, 0], [1, 2, 1, 1]])
def test_groups_that_are_no_pairs_have_no_dpo_loss(labels: list[int]) -> None:
    sums = torch.zeros(4)
    groups = torch.tensor([0, 1, 1, 2])
    answers = AnswerLogps(
        sums=sums, num_tokens=sums.long(), group_ids=groups, labels=torch.tensor(labels)
    )
    with pytest.raises(ConfigError, match="compares pairs"):
        dpo_losses(answers, sums)
    with pytest.raises(ConfigError, match="other answers"):
        pair = AnswerLogps(
            sums=sums[:2], num_tokens=sums[:2], group_ids=groups[1:3], labels=torch.tensor([1, 2])
        )
        dpo_losses(pair, sums)


def test_a_batch_that_is_all_padding_has_no_answers() -> None:
    zeros = torch.zeros(2, 3, dtype=torch.long)
    batch = {"labels": zeros - 100, "segment_ids": zeros, "loss_weights": zeros.float()}
    batch |= {"group_ids": zeros - 1, "answer_labels": zeros}
    logits = torch.zeros(2, 3, 5, requires_grad=True)
    found = answer_logps(logits, batch)
    assert found.sums.shape == (0,)
    loss = dpo_losses(found, found.sums.detach()).sum() + kto_losses(found, found.sums).sum()
    loss.backward()  # as on ranks that have rows
    assert float(loss.detach()) == 0 and logits.grad is not None and not logits.grad.any()
    assert len(mismatched_answers(batch)["labels"]) == 0


@torch.no_grad()
def test_rows_of_other_sources_beside_pairs_are_no_answers(
    store: Path, model: TinyModel, tmp_path: Path
) -> None:
    text = ["a text of some length " * 9] * 40
    tokenreel.build(texts=text, out=tmp_path / "text", tokenizer="byte", progress=False)
    sources = [
        Source(name="p", path=store, rows="pairs"),
        Source(name="t", path=tmp_path / "text", rows="packed"),
    ]
    recipe = Recipe(sources=sources, mixed_tokenizers=True, **GROUPS)
    mixed = Tensors((*FIELDS, "answer_labels", "source_ids"))(Feed(recipe).batch(0))
    is_pair = mixed["source_ids"] == 0
    assert 0 < int(is_pair.sum()) < 4
    found = answer_logps(segmented(model, mixed), mixed)
    pairs = {name: values[is_pair] for name, values in mixed.items()}
    alone = answer_logps(segmented(model, pairs), pairs)
    assert len(alone.sums) > 1
    for one, other in zip(found, alone, strict=True):
        assert torch.equal(one, other)
    assert len(dpo_losses(found, alone.sums)) * 2 == len(alone.sums)
    others = mismatched_answers(mixed)
    for name, values in mismatched_answers(pairs).items():
        assert torch.equal(others[name], values), name


LABELLED = AnswerLogps(
    sums=torch.tensor([-4.0, -2.0, -3.0], requires_grad=True),
    num_tokens=torch.tensor([2, 1, 1]),
    group_ids=torch.tensor([0, 1, 2]),
    labels=torch.tensor([1, 2, 1]),
)


def test_the_kto_loss_is_that_of_its_formula_and_kl_has_no_gradient() -> None:
    kl = torch.tensor(0.5, requires_grad=True)
    reference = torch.tensor([-5.0, -1.0, -3.0])
    losses = kto_losses(
        LABELLED, reference, kl=kl, beta=0.3, desirable_weight=2.0, undesirable_weight=0.7
    )
    gains = [0.3 * (1 - 0.5), 0.3 * (0.5 - -1), 0.3 * (0 - 0.5)]
    weights = [2.0, 0.7, 2.0]
    expected = [w * (1 - 1 / (1 + math.exp(-g))) for w, g in zip(weights, gains, strict=True)]
    assert losses.tolist() == pytest.approx(expected, rel=1e-6)
    losses.sum().backward()
    assert kl.grad is None and LABELLED.sums.grad is not None


def test_answers_without_a_label_have_no_kto_loss() -> None:
    ranked = LABELLED._replace(labels=torch.tensor([1, 0, 0]))
    with pytest.raises(ConfigError, match="got 2 ranked of 3"):
        kto_losses(ranked, torch.zeros(3))
    with pytest.raises(ConfigError, match="other answers"):
        kto_losses(LABELLED, torch.zeros(2))


@pytest.mark.parametrize("options", [{}, {"grad_accum": 2}])
def test_mismatched_answers_stand_behind_the_prompt_of_the_next_group(
    store: Path, options: dict[str, Any]
) -> None:
    names = (*FIELDS, "answer_labels", "attention_mask")
    batch = Tensors(names)(Feed(recipe(store, **options)).batch(1, extra=("attention_mask",)))
    # By loops: the prompt and the answer of each segment, as tokens and whether they are trained.
    told: list[tuple[list[int], list[int], list[int], int]] = []
    flat = {name: values.reshape(-1, SEQ_LEN) for name, values in batch.items()}
    for row in range(len(flat["segment_ids"])):
        for segment in range(1, int(flat["segment_ids"][row].max()) + 1):
            here = flat["segment_ids"][row] == segment
            ids, labels = (flat[name][row][here].tolist() for name in ("input_ids", "labels"))
            first = next(slot for slot, label in enumerate(labels) if label >= 0)
            group = int(flat["group_ids"][row][here][0])
            told.append((ids[: first + 1], ids[first + 1 :], labels[first:], group))
    mixed = mismatched_answers(batch)
    assert mixed["input_ids"].shape[0] == len(told) > 4
    for number, (prompt, _, _, group) in enumerate(told):
        _, answer, labels, other = told[number - 2]  # groups are pairs
        assert other != group
        filled = len(prompt) + len(answer)
        held = {name: values[number] for name, values in mixed.items()}
        assert held["input_ids"][:filled].tolist() == prompt + answer
        assert held["labels"][:filled].tolist() == [-100] * (len(prompt) - 1) + labels
        assert held["loss_weights"].tolist() == (held["labels"] >= 0).float().tolist()
        assert held["attention_mask"].tolist() == (held["segment_ids"] == 1).tolist()
        assert int(held["segment_ids"].sum()) == filled
        assert held["position_ids"][:filled].tolist() == list(range(filled))
        assert set(held["group_ids"][:filled].tolist()) == {group}
        for name, value in (("labels", -100), ("group_ids", -1), ("position_ids", 0)):
            assert set(held[name][filled:].tolist()) <= {value}


@torch.no_grad()
def test_an_evaluation_over_pairs_is_the_mean_over_the_tokens_of_all_answers(
    store: Path, model: TinyModel
) -> None:
    found = evaluate(model, recipe(store, passes=1), forward=segmented)
    split = tokenreel.open_store(store)["train"]
    documents = [item for item in split.documents() if len(item) <= SEQ_LEN + 1]  # which fit
    assert 0 < len(documents) < (split.num_documents or 0)
    total = sum(float(sum(logps_alone(model, document))) for document in documents)
    tokens = sum(int((document.loss_weights > 0).sum()) for document in documents)
    assert found.loss == pytest.approx(-total / tokens, rel=1e-9)
