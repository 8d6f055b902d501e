"""Losses over answers: their log-probabilities, from packed or padded rows of pairs; DPO and KTO.

    logps = answer_logps(model(...), batch)                    # with gradients
    with torch.no_grad():
        reference = answer_logps(frozen(...), batch).sums
    loss = dpo_losses(logps, reference, beta=0.1).sum() / pairs_of_the_step

A rank has as many pairs as its rows hold. Summed, and divided by the pairs of the global step
(`feed.denominators(step).samples / 2`), losses of any number of ranks and microbatches add up to
the mean over the step. KTO's losses are one for each answer, so they are divided by `samples`:

    other = mismatched_answers(batch)
    with torch.no_grad():
        drift = answer_logps(model(...), other).sums - answer_logps(frozen(...), other).sums
    kl = drift.mean().clamp(min=0)                             # over all ranks, if there are more
    loss = kto_losses(logps, reference, kl=kl, beta=0.1).sum() / answers_of_the_step
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch.nn.functional import cross_entropy, logsigmoid

from tokenreel.errors import ConfigError
from tokenreel.feed.one_a_row import slots_of_segments
from tokenreel.text.turns import PREFERRED, REJECTED

IGNORED = -100  # the label of a token that is not trained
# What a field has where there is no token; others have 0.
PADDING = {"labels": IGNORED, "group_ids": -1, "document_ids": -1, "source_ids": -1}


class AnswerLogps(NamedTuple):
    """The answers of a batch in order, [n] each.

    sums: the log-probability of each, added up over its trained tokens, by their weights;
    num_tokens: how many these are; group_ids, labels: as in the batch.
    """

    sums: torch.Tensor
    num_tokens: torch.Tensor
    group_ids: torch.Tensor
    labels: torch.Tensor


def answer_logps(logits: torch.Tensor, batch: Mapping[str, torch.Tensor]) -> AnswerLogps:
    """Return the log-probability of each answer of a batch, packed or padded.

    logits: [B, T, V], or with accumulation [A, B, T, V]. What is in no group, as rows of other
    sources, is left out. Waits for the device once, for the number of answers.

    >>> batch = {"labels": torch.tensor([[1, 2, -100, 3]]), "group_ids": torch.tensor([[0] * 4]),
    ...     "loss_weights": torch.tensor([[1.0, 1.0, 0.0, 1.0]]),
    ...     "segment_ids": torch.tensor([[1, 1, 2, 2]]),
    ...     "answer_labels": torch.tensor([[1, 1, 2, 2]])}
    >>> found = answer_logps(torch.zeros(1, 4, 8), batch)
    >>> [round(logp, 4) for logp in found.sums.tolist()], found.labels.tolist()
    ([-4.1589, -2.0794], [1, 2])
    """
    segments = batch["segment_ids"].reshape(-1, batch["segment_ids"].shape[-1])
    is_answer = batch["group_ids"].reshape(segments.shape) >= 0
    # Slots that begin an answer, and their places among all slots.
    begins = is_answer.clone()
    begins[:, 1:] &= segments[:, 1:] != segments[:, :-1]
    first = begins.reshape(-1).nonzero().reshape(-1)
    # The answer of each slot. What is none counts to the one before it, and weighs nothing.
    owner = (begins.reshape(-1).long().cumsum(0) - 1).clamp(min=0)
    weights = (batch["loss_weights"].reshape(segments.shape) * is_answer).reshape(-1)
    flat = logits.reshape(-1, logits.shape[-1])
    wide = flat if flat.dtype == torch.float64 else flat.float()
    each = -cross_entropy(wide, batch["labels"].reshape(-1), reduction="none") * weights
    # A rank may have rows of padding alone: sums of no answers, whose gradient is zeros everywhere.
    sums = each.new_zeros(len(first)) + (0 if len(first) else 0 * each.sum())
    counts = torch.zeros(len(first), dtype=torch.long, device=each.device)
    if len(first):
        sums = sums.index_add(0, owner, each)
        counts = counts.index_add(0, owner, (weights > 0).long())
    return AnswerLogps(
        sums=sums,
        num_tokens=counts,
        group_ids=batch["group_ids"].reshape(-1)[first],
        labels=batch["answer_labels"].reshape(-1)[first],
    )


def dpo_losses(
    policy: AnswerLogps, reference: torch.Tensor, *, beta: float = 0.1, label_smoothing: float = 0.0
) -> torch.Tensor:
    """Return the DPO loss of each pair, [n / 2], in the order of the batch.

    reference: the sums of the same answers by the model that is held fixed, [n].

    >>> answers = AnswerLogps(sums=torch.tensor([-1.0, -3.0]), num_tokens=torch.tensor([2, 2]),
    ...     group_ids=torch.tensor([0, 0]), labels=torch.tensor([1, 2]))
    >>> round(float(dpo_losses(answers, torch.tensor([-1.0, -1.0]), beta=0.5)), 4)
    0.3133
    """
    chosen, rejected = policy.labels == PREFERRED, policy.labels == REJECTED
    pairs = policy.group_ids[chosen]
    is_paired = len(pairs) * 2 == len(policy.labels) and torch.equal(
        pairs, policy.group_ids[rejected]
    )
    if not is_paired:
        raise ConfigError(
            "DPO compares pairs, and this batch has other groups",
            expected="a preferred and a rejected answer in each group",
            actual=f"{int(chosen.sum())} preferred and {int(rejected.sum())} rejected of "
            f"{len(policy.labels)} answers",
            remedy="build the store of records with chosen and rejected alone",
        )
    _check_reference(policy, reference)
    gained = policy.sums - reference
    margin = beta * (gained[chosen] - gained[rejected])
    kept, flipped = logsigmoid(margin), logsigmoid(-margin)
    return -(1 - label_smoothing) * kept - label_smoothing * flipped


def _check_reference(policy: AnswerLogps, reference: torch.Tensor) -> None:
    if reference.shape != policy.sums.shape:
        raise ConfigError(
            "the reference has other answers than the policy",
            expected=f"{len(policy.sums)} sums",
            actual=tuple(reference.shape),
        )


def kto_losses(
    policy: AnswerLogps,
    reference: torch.Tensor,
    *,
    kl: torch.Tensor | float = 0.0,
    beta: float = 0.1,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
) -> torch.Tensor:
    """Return the KTO loss of each labelled answer, [n], in the order of the batch.

    reference: the sums of the same answers by the model that is held fixed, [n]. kl: how much
    likelier answers have become in general, from `mismatched_answers`; no gradient goes through
    it. With kl 0 this is TRL's apo_zero_unpaired.

    >>> answers = AnswerLogps(sums=torch.tensor([-1.0, -3.0]), num_tokens=torch.tensor([2, 2]),
    ...     group_ids=torch.tensor([0, 1]), labels=torch.tensor([1, 2]))
    >>> losses = kto_losses(answers, torch.tensor([-2.0, -2.0]), beta=1.0)
    >>> [round(loss, 4) for loss in losses.tolist()]
    [0.2689, 0.2689]
    """
    desirable, undesirable = policy.labels == PREFERRED, policy.labels == REJECTED
    if not bool((desirable | undesirable).all()):
        raise ConfigError(
            "KTO needs a label for each answer, and this batch has answers without one",
            expected="desirable or undesirable answers",
            actual=f"{int((~desirable & ~undesirable).sum())} ranked of {len(policy.labels)}",
            remedy="build the store of records with completion and label, or chosen and rejected",
        )
    _check_reference(policy, reference)
    point = kl.detach() if isinstance(kl, torch.Tensor) else kl
    gained = beta * (policy.sums - reference - point)
    losses = 1 - torch.where(desirable, gained, -gained).sigmoid()
    return losses * torch.where(desirable, desirable_weight, undesirable_weight)


def mismatched_answers(batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the prompts of a batch, each with an answer of the group before, one a row.

    The first group has answers of the last. How likely these are tells KTO what a policy does to
    answers in general. An answer begins with its first trained token; group and label of a row
    are those of its prompt. Waits for the device three times.

    >>> batch = {"segment_ids": torch.tensor([[1, 1, 1, 2, 2]]),
    ...     "group_ids": torch.tensor([[0, 0, 0, 1, 1]]),
    ...     "input_ids": torch.tensor([[10, 11, 12, 20, 21]]),
    ...     "labels": torch.tensor([[-100, 12, 13, 21, 22]])}
    >>> mixed = mismatched_answers(batch)
    >>> mixed["input_ids"].tolist(), mixed["labels"].tolist()
    ([[10, 11, 21], [20, 12, 0]], [[-100, 21, 22], [12, 13, -100]])
    """
    padded = padded_answers(batch)
    segments, labels, groups = (
        padded[name].reshape(-1, padded[name].shape[-1])
        for name in ("segment_ids", "labels", "group_ids")
    )
    # Rows of answers; others are padding at the end of a microbatch, or of other sources.
    row = (groups[:, 0] >= 0).nonzero().reshape(-1)
    if not len(row):
        return {name: values[:0] for name, values in padded.items()}
    # Of each row: how many slots it fills, and the slot whose label is the first of its answer.
    stops = segments[row].sum(1)
    begins = (labels[row] != IGNORED).int().argmax(1)
    # As many rows back as the largest group has answers, it is another group's.
    back = int(groups[row, 0].bincount().max())
    widths = begins + (stops - begins).roll(back)
    place = torch.arange(int(widths.max()), device=row.device)[None]
    # Where each slot comes from, in the flattened rows: as far as the prompt goes its own row,
    # then the row further back, from where its answer begins. [rows, width], -1: from nowhere.
    own = row[:, None] * segments.shape[1] + place
    others = (row.roll(back) * segments.shape[1] + begins.roll(back) - begins)[:, None] + place
    is_filled = place < widths[:, None]
    inputs = torch.where(place <= begins[:, None], own, others).where(is_filled, -1)
    targets = torch.where(place < begins[:, None], own, others).where(is_filled, -1)
    firsts = own[:, :1].where(is_filled, -1)
    sources = {"labels": targets, "loss_weights": targets}
    sources |= {"group_ids": firsts, "answer_labels": firsts}
    made = {
        name: _taken(values, sources.get(name, inputs), name)
        for name, values in padded.items()
        if name not in ("source_ids", "document_ids")
    }
    if "position_ids" in made:
        made["position_ids"] = (place * is_filled).to(made["position_ids"].dtype)
    return made


def padded_answers(
    batch: Mapping[str, torch.Tensor], *, width: int | None = None, rows: int | None = None
) -> dict[str, torch.Tensor]:
    """Return the same batch with one segment a row: what `Batch.padded` is to tensors.

    Waits for the device once, for the segments.

    >>> segments, labels = torch.tensor([[[1, 2, 2, 0]], [[5, 6, 7, 8]]])
    >>> padded_answers({"segment_ids": segments, "labels": labels})["labels"].tolist()
    [[5, -100], [6, 7]]
    """
    segments = batch["segment_ids"]
    slots, origin = (
        torch.from_numpy(found).to(segments.device)
        for found in slots_of_segments(segments.cpu().numpy(), width=width, rows=rows)
    )
    made = {
        name: _taken(values, origin if name == "source_ids" else slots, name)
        for name, values in batch.items()
        if isinstance(values, torch.Tensor)  # records are no tensors
    }
    made["segment_ids"] = (slots >= 0).to(segments.dtype)
    return made


def _taken(values: torch.Tensor, index: torch.Tensor, name: str) -> torch.Tensor:
    """Return the values of a field at these flattened places; where they are -1, its padding."""
    taken = values.reshape(-1)[index.clamp(min=0)]
    return taken.masked_fill(index < 0, PADDING.get(name, 0))
