"""Losses over answers: their log-probabilities, from packed or padded rows of pairs, and DPO's.

    logps = answer_logps(model(...), batch)                    # with gradients
    with torch.no_grad():
        reference = answer_logps(frozen(...), batch).sums
    loss = dpo_losses(logps, reference, beta=0.1).sum() / pairs_of_the_step

A rank has as many pairs as its rows hold. Summed, and divided by the pairs of the global step
(`feed.denominators(step).samples / 2`), losses of any number of ranks and microbatches add up to
the mean over the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch.nn.functional import cross_entropy, logsigmoid

from tokenreel.errors import ConfigError
from tokenreel.feed.one_a_row import slots_of_segments
from tokenreel.text.turns import PREFERRED, REJECTED

PADDING = {"labels": -100, "group_ids": -1, "document_ids": -1}  # all else is 0 where it is empty


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

    logits: [B, T, V], or with accumulation [A, B, T, V]. Waits for the device once, for the
    number of answers.

    >>> batch = {"labels": torch.tensor([[1, 2, -100, 3]]), "group_ids": torch.tensor([[0] * 4]),
    ...     "loss_weights": torch.tensor([[1.0, 1.0, 0.0, 1.0]]),
    ...     "segment_ids": torch.tensor([[1, 1, 2, 2]]),
    ...     "answer_labels": torch.tensor([[1, 1, 2, 2]])}
    >>> found = answer_logps(torch.zeros(1, 4, 8), batch)
    >>> [round(logp, 4) for logp in found.sums.tolist()], found.labels.tolist()
    ([-4.1589, -2.0794], [1, 2])
    """
    segments = batch["segment_ids"].reshape(-1, batch["segment_ids"].shape[-1])
    begins = torch.ones_like(segments, dtype=torch.bool)
    begins[:, 1:] = segments[:, 1:] != segments[:, :-1]
    begins &= segments > 0
    first = begins.reshape(-1).nonzero().reshape(-1)
    # The answer of each slot; padding comes after one, and weighs nothing.
    owner = (begins.reshape(-1).long().cumsum(0) - 1).clamp(min=0)
    flat = logits.reshape(-1, logits.shape[-1])
    wide = flat if flat.dtype == torch.float64 else flat.float()
    weights = batch["loss_weights"].reshape(-1)
    each = -cross_entropy(wide, batch["labels"].reshape(-1), reduction="none") * weights
    zeros = each.new_zeros(len(first))
    return AnswerLogps(
        sums=zeros.index_add(0, owner, each) if len(first) else zeros,
        num_tokens=zeros.index_add(0, owner, (weights > 0).to(each.dtype)).long()
        if len(first)
        else zeros.long(),
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
    if reference.shape != policy.sums.shape:
        raise ConfigError(
            "the reference has other answers than the policy",
            expected=f"{len(policy.sums)} sums",
            actual=tuple(reference.shape),
        )
    gained = policy.sums - reference
    margin = beta * (gained[chosen] - gained[rejected])
    kept, flipped = logsigmoid(margin), logsigmoid(-margin)
    return -(1 - label_smoothing) * kept - label_smoothing * flipped


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

    def moved(values: torch.Tensor, index: torch.Tensor, padding: int) -> torch.Tensor:
        taken = values.reshape(-1)[index.clamp(min=0)]
        return taken.masked_fill(index < 0, padding)

    made = {"source_ids": moved(batch["source_ids"], origin, -1)} if "source_ids" in batch else {}
    for name, values in batch.items():
        if name != "source_ids" and isinstance(values, torch.Tensor):  # records are no tensors
            made[name] = moved(values, slots, PADDING.get(name, 0))
    made["segment_ids"] = (slots >= 0).to(segments.dtype)
    return made
