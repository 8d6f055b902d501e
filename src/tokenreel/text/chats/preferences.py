"""Records of preferences, read as groups: answers to one prompt, and what is thought of each.

    chosen, rejected     a pair; the prompt in `prompt`, or what both begin with
    completion, label    one answer, true: desirable, false: undesirable
    answers, responses   a list, the best first; or with `scores` (the highest is the best) or
                         `ranks` (the lowest is)

Prompts and answers are texts or lists of messages, as TRL has them. Beside them stand `system`,
`history` and `tools`, as in a chat (shapes.py). A text is the message of the user, or of the
assistant. Without a `prompt`, or with one that is a text where the answers are conversations
that begin with another's message, the prompt is what `chosen` and `rejected` have in common:
messages, as TRL has it, or whole words, where TRL takes letters. A token of which half is prompt
could not be trained, and DPO's loss is the same, since what both answers begin with cancels out.

The promise: a record becomes a group, or an InputError that names file, line and field; nothing
is guessed. Only answers weigh; what a prompt says of its own weight is not asked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenreel.text.chats.messages import Chat, Place, type_name
from tokenreel.text.chats.shapes import UNKNOWN, read_answer
from tokenreel.text.provenance import Provenance
from tokenreel.text.turns import MAX_ANSWERS, NO_LABEL, PREFERRED, REJECTED

SHAPES = "prompt, chosen and rejected; prompt, completion and label; or prompt and answers"
LISTS = ("answers", "responses")
SAME_ANSWERS = "answers of a group that are the same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Answers to one prompt, each a chat with the prompt before it, and the label of each."""

    answers: tuple[Chat, ...]
    labels: tuple[int, ...]

    @property
    def provenance(self) -> Provenance:
        """Where the record is."""
        return self.answers[0].provenance

    @property
    def unrendered(self) -> tuple[str, ...]:
        """What some answer or the prompt has that no template renders."""
        return tuple(dict.fromkeys(part for chat in self.answers for part in chat.unrendered))

    @property
    def has_same_answers(self) -> bool:
        """Whether two of the answers are the same, so that nothing is to be learned of them."""
        said = [chat.messages for chat in self.answers]
        return any(answer in said[:number] for number, answer in enumerate(said))


def read_group(record: object, provenance: Provenance = UNKNOWN) -> Group:
    """Return the group of one record.

    >>> group = read_group({"prompt": "2+2?", "chosen": "4", "rejected": "5"})
    >>> [chat.messages[1].content for chat in group.answers], group.labels
    (['4', '5'], (1, 2))
    """
    place = Place(provenance=provenance)
    if not isinstance(record, Mapping):
        raise place.error("not a group of answers", expected="an object", actual=type_name(record))
    if record.get("chosen") is not None or record.get("rejected") is not None:
        return _read_pair(record, place)
    listed = next((name for name in LISTS if record.get(name) is not None), None)
    if listed is not None:
        return _read_ranked(record, place, listed)
    if record.get("completion") is not None:
        return _read_labelled(record, place)
    raise place.error(
        "no known shape of preferences",
        expected=SHAPES,
        actual=", ".join(map(str, record)) or "no keys",
        remedy="name the field that holds the record with text_key",
    )


def _read_pair(record: Mapping, place: Place) -> Group:
    chosen, rejected = (
        _answer(record.get(name), place.at(name)) for name in ("chosen", "rejected")
    )
    prompt = record.get("prompt")
    if type_name(chosen) != type_name(rejected):
        raise place.at("rejected").error(
            "chosen and rejected are of different kinds",
            expected=f"{type_name(chosen)}, as chosen is",
            actual=type_name(rejected),
        )
    if prompt is None or (isinstance(prompt, str) and _is_whole(chosen) and _is_whole(rejected)):
        prompt, chosen, rejected = _split_prompt(chosen, rejected, place)
    answers = {"chosen": chosen, "rejected": rejected}
    return _group(record, place, prompt, answers, labels=(PREFERRED, REJECTED))


def _is_whole(answer: Sequence[Any]) -> bool:
    """Tell whether an answer is a conversation that somebody else than the assistant begins."""
    if isinstance(answer, str) or not answer or not isinstance(answer[0], Mapping):
        return False
    return (answer[0].get("role") or answer[0].get("from")) not in ("assistant", "gpt", "model")


def _split_prompt(
    chosen: Sequence[Any], rejected: Sequence[Any], place: Place
) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    """Return what two answers have in common, and the rest of each, which is never empty.

    Of texts these are whole words; a blank between prompt and answers goes with the answers.
    """
    shorter = min(len(chosen), len(rejected))
    common = next((i for i in range(shorter) if chosen[i] != rejected[i]), shorter - 1)
    if isinstance(chosen, str):
        begun = len(re.split(r"\s", chosen[:common])[-1])  # letters of a word that differs later
        if begun < common:
            common -= begun + (chosen[common - begun - 1] == " ")
    if common < 1:
        raise place.error(
            "the prompt cannot be told: chosen and rejected do not begin alike",
            expected="the key prompt, or answers with a common beginning",
            actual="another first message" if isinstance(chosen, list) else "another first letter",
        )
    return chosen[:common], chosen[common:], rejected[common:]


def _read_labelled(record: Mapping, place: Place) -> Group:
    label = record.get("label")
    if not isinstance(label, bool):
        raise place.at("label").error(
            "not a label", expected="true (desirable) or false", actual=type_name(label)
        )
    answers = {"completion": record["completion"]}
    prompt = _prompt(record, place)
    return _group(record, place, prompt, answers, labels=(PREFERRED if label else REJECTED,))


def _read_ranked(record: Mapping, place: Place, listed: str) -> Group:
    answers = record[listed]
    if not isinstance(answers, (list, tuple)) or not 2 <= len(answers) <= MAX_ANSWERS:
        raise place.at(listed).error(
            "not a list of answers",
            expected=f"a list of 2 to {MAX_ANSWERS}",
            actual=f"{len(answers)}" if isinstance(answers, list) else type_name(answers),
        )
    order = _order(record, place, len(answers))
    named = {f"{listed}[{number}]": answers[number] for number in order}
    prompt = _prompt(record, place)
    return _group(record, place, prompt, named, labels=(NO_LABEL,) * len(answers))


def _order(record: Mapping, place: Place, count: int) -> list[int]:
    """Return the numbers of the answers, the best first; those that are equally good in order."""
    given = [name for name in ("scores", "ranks") if record.get(name) is not None]
    if not given:
        return list(range(count))
    name, values = given[0], record[given[0]]
    if len(given) == 2:
        raise place.error("scores and ranks of the same answers", remedy="leave out one of them")
    if (
        not isinstance(values, (list, tuple))
        or len(values) != count
        or not all(isinstance(v, (int, float)) and math.isfinite(v) for v in values)
    ):
        raise place.at(name).error(
            f"not the {name} of the answers",
            expected=f"a list of {count} numbers",
            actual=f"a list of {len(values)}" if isinstance(values, list) else type_name(values),
        )
    keys = -np.asarray(values, np.float64) if name == "scores" else np.asarray(values, np.float64)
    return np.argsort(keys, kind="stable").tolist()


def _group(
    record: Mapping,
    place: Place,
    prompt: object,
    answers: Mapping[str, object],
    *,
    labels: tuple[int, ...],
) -> Group:
    chats = tuple(
        read_answer(
            record,
            _answer(answer, place.at(field)),
            prompt=prompt,
            field=field,
            provenance=place.provenance,
        )
        for field, answer in answers.items()
    )
    return Group(answers=chats, labels=labels)


def _prompt(record: Mapping, place: Place) -> object:
    if record.get("prompt") is None:
        raise place.at("prompt").error(
            "no prompt", expected=SHAPES, actual=", ".join(map(str, record))
        )
    return record["prompt"]


def _answer(answer: object, place: Place) -> Sequence[Any]:
    """Return an answer if it is a text or a list of messages, and not empty."""
    if not isinstance(answer, (str, list, tuple)):
        raise place.error(
            "no answer", expected="a text or a list of messages", actual=type_name(answer)
        )
    if not answer:
        raise place.error("an empty answer", remedy="leave the record out")
    return answer
