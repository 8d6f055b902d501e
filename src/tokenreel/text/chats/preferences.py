"""Records of preferences, read as groups: answers to one prompt, and what is thought of each.

    chosen, rejected     a pair; the prompt in `prompt`, or what both begin with
    answers, responses   a list, the best first; or with `scores` (the highest is the best) or
                         `ranks` (the lowest is)
    completion, label    one answer, true: desirable, false: undesirable

A record with several of these is read by the first of them. Prompts and answers are texts or
lists of messages, as TRL has them. Beside them stand `system`, `history` and `tools`, as in a
chat (shapes.py). A text is the message of the user, or of the assistant.

Datasets repeat the prompt inside their answers: without a `prompt`, or with one that is a text
where the answers are conversations that somebody else than the assistant begins, the prompt is
what `chosen` and `rejected` have in common; where `prompt` is a list of messages that answers
begin with, the answers are what follows. In common are whole messages, as TRL has it, or
of texts whole words, where TRL takes letters: a token of which half is prompt could not be
trained, and DPO's loss is the same, since what both answers begin with cancels out. Messages are
the same whether a field is null or missing, because Parquet fills what is missing with nulls.

The promise: a record becomes a group, or an InputError that names file, line and field; nothing
is guessed. Only answers weigh; what a prompt says of its own weight is not asked. An answer in
which the assistant says nothing is refused: it would teach silence. Fields that are none of these
(a margin, a score) go into no group: it names them, and a build counts them.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from tokenreel.errors import InputError
from tokenreel.text.chats.messages import Chat, Place, shorten, type_name
from tokenreel.text.chats.shapes import ROLE_NAMES, SYSTEM_KEYS, UNKNOWN, read_answer
from tokenreel.text.provenance import Provenance
from tokenreel.text.turns import MAX_ANSWERS, NO_LABEL, PREFERRED, REJECTED

SHAPES = "prompt, chosen and rejected; prompt, completion and label; or prompt and answers"
LISTS = ("answers", "responses")
SCORES, RANKS = "scores", "ranks"
BESIDE = ("prompt", *SYSTEM_KEYS, "history", "tools", "documents", "chat_template_kwargs")
SAME_ANSWERS = "answers of a group that are the same"
NOT_KEPT = ", not kept"  # how a remark on a field of records ends
SOME_FIELD = f"some field{NOT_KEPT}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Answers to one prompt, each a chat with the prompt before it, and the label of each.

    `unkept`: the fields of the record that are in none of the answers.
    """

    answers: tuple[Chat, ...]
    labels: tuple[int, ...]
    unkept: tuple[str, ...] = ()

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
    try:
        return _read(record, place)
    except RecursionError:  # while messages were compared
        raise place.error("the record is nested too deeply", remedy="leave it out") from None


def _read(record: Mapping, place: Place) -> Group:
    if record.get("chosen") is not None or record.get("rejected") is not None:
        group, read = _read_pair(record, place), ("chosen", "rejected")
        return replace(group, unkept=_unkept(record, read, place))
    listed = next((name for name in LISTS if record.get(name) is not None), None)
    if listed is not None:
        group = _read_ranked(record, place, listed)
        return replace(group, unkept=_unkept(record, (listed, SCORES, RANKS), place))
    if record.get("completion") is not None:
        group = _read_labelled(record, place)
        return replace(group, unkept=_unkept(record, ("completion", "label"), place))
    raise place.error(
        "no known shape of preferences", expected=SHAPES, actual=_keys(record), remedy=_hint(record)
    )


def _unkept(record: Mapping, read: Sequence[str], place: Place) -> tuple[str, ...]:
    """Return the fields that are not null, were not read, and are not what provenance keeps."""
    name_kept = place.provenance.id
    return tuple(
        str(name)
        for name, value in record.items()
        if value is not None and name not in read and name not in BESIDE
        if not (isinstance(value, (str, int)) and str(value) == name_kept)
    )


def _hint(record: Mapping) -> str:
    """Return what to do with a record of another shape than preferences have."""
    if record.get("completions") is not None:
        return "labels of single steps (stepwise supervision) are not read"
    if any(record.get(name) is not None for name in ("messages", "conversations", "instruction")):
        return "build chats with chat=True"
    if record.get("prompt") is not None:
        return "build prompts without answers with prompts=True"
    return "name the field that holds the record with text_key"


def _keys(record: Mapping) -> str:
    keys = [f"{name} (null)" if value is None else str(name) for name, value in record.items()]
    return ", ".join(keys) or "no keys"


def _read_pair(record: Mapping, place: Place) -> Group:
    chosen, rejected = (
        _answer(record.get(name), place.at(name)) for name in ("chosen", "rejected")
    )
    if type_name(chosen) != type_name(rejected):
        raise place.at("rejected").error(
            "chosen and rejected are of different kinds",
            expected=f"{type_name(chosen)}, as chosen is",
            actual=type_name(rejected),
        )
    prompt = record.get("prompt")
    repeated = _repeats(chosen, prompt)
    if repeated != _repeats(rejected, prompt):
        raise place.at("rejected").error(
            "only one of chosen and rejected repeats the prompt",
            expected="both of them to begin with the prompt, or neither",
            actual=f"{'chosen' if repeated else 'rejected'} does",
        )
    if repeated and not isinstance(prompt, str):
        start = len(prompt or ())
        chosen, rejected = chosen[start:], rejected[start:]
    elif prompt is None or repeated:
        prompt, chosen, rejected = _split_prompt(chosen, rejected, place)
    answers = {"chosen": chosen, "rejected": rejected}
    return _group(record, place, prompt, answers, labels=(PREFERRED, REJECTED))


def _behind(prompt: object, answer: object, place: Place) -> object:
    """Return an answer without the prompt's messages, if it begins with them."""
    if not isinstance(answer, (list, tuple)) or not _repeats(answer, prompt):
        return answer
    if isinstance(prompt, (list, tuple)):
        return answer[len(prompt) :]
    raise place.error(
        "a whole conversation beside a prompt that is a text",
        expected="the messages that answer it, the first of the assistant",
        actual=f"a message of the {answer[0].get('role') or answer[0].get('from')} first",
        remedy="leave out the messages of the prompt, or give the prompt as messages",
    )


def _repeats(answer: Sequence[Any], prompt: object) -> bool:
    """Tell whether an answer is a conversation that has the prompt, text or messages, in it."""
    if isinstance(answer, str) or not answer or not isinstance(answer[0], Mapping):
        return False
    if isinstance(prompt, str):
        said = answer[0].get("role") or answer[0].get("from")
        role = ROLE_NAMES.get(said) if isinstance(said, str) else None
        return role not in (None, "assistant")
    if not isinstance(prompt, (list, tuple)) or not 0 < len(prompt) <= len(answer):
        return False
    return all(map(_are_same, answer, prompt))


def _are_same(message: object, other: object) -> bool:
    return message == other or _without_nulls(message) == _without_nulls(other)


def _without_nulls(value: object) -> object:
    """Return a value without the fields that are null, at any depth; lists for tuples."""
    if isinstance(value, Mapping):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, (list, tuple)) else value


def _split_prompt(
    chosen: Sequence[Any], rejected: Sequence[Any], place: Place
) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    """Return what two answers have in common, and the rest of each, which is never empty.

    Of texts these are whole words; a blank between prompt and answers goes with the answers.
    """
    most = min(len(chosen), len(rejected)) - 1
    if not isinstance(chosen, str):
        pairs = zip(chosen[:most], rejected, strict=False)
        common = sum(1 for _ in takewhile(lambda pair: _are_same(*pair), pairs))
    else:
        # The first letter that differs, by halving: texts are long, and Python's loops slow.
        common = bisect_left(range(most), True, key=lambda i: chosen[: i + 1] != rejected[: i + 1])
        begun = len(re.split(r"\s", chosen[:common])[-1])  # letters of a word that differs later
        if begun < common:
            common -= begun + (chosen[common - begun - 1] == " ")
    if common < 1:
        raise place.error(
            "the prompt cannot be told: chosen and rejected do not begin alike",
            expected="the key prompt, or answers with a common beginning",
            actual="another first letter" if isinstance(chosen, str) else "another first message",
        )
    return chosen[:common], chosen[common:], rejected[common:]


def _read_labelled(record: Mapping, place: Place) -> Group:
    label = record.get("label")
    if label is None:
        raise place.at("label").error(
            "a completion without a label",
            expected="true (desirable) or false",
            actual=_keys(record),
            remedy="build prompts and completions without labels with chat=True",
        )
    if not isinstance(label, bool):
        raise place.at("label").error(
            "not a label",
            expected="true (desirable) or false",
            actual=_told(label),
            remedy="write it as true or false",
        )
    prompt = _prompt(record, place)
    answers = {"completion": _behind(prompt, record["completion"], place.at("completion"))}
    return _group(record, place, prompt, answers, labels=(PREFERRED if label else REJECTED,))


def _told(value: object) -> str:
    is_huge = isinstance(value, int) and value.bit_length() > 64  # Python may refuse to write it
    return type_name(value) if is_huge else f"{type_name(value)}, {shorten(str(value))}"


def _read_ranked(record: Mapping, place: Place, listed: str) -> Group:
    answers = record[listed]
    if not isinstance(answers, (list, tuple)) or not 2 <= len(answers) <= MAX_ANSWERS:
        raise place.at(listed).error(
            "not a list of answers",
            expected=f"a list of 2 to {MAX_ANSWERS}",
            actual=_size(answers),
        )
    order = _order(record, place, len(answers))
    prompt = _prompt(record, place)
    fields = [(f"{listed}[{number}]", answers[number]) for number in order]
    named = {field: _behind(prompt, answer, place.at(field)) for field, answer in fields}
    return _group(record, place, prompt, named, labels=(NO_LABEL,) * len(answers))


def _size(value: object) -> str:
    is_list = isinstance(value, (list, tuple))
    return f"a list of {len(value)}" if is_list else type_name(value)  # type: ignore[arg-type]


def _order(record: Mapping, place: Place, count: int) -> list[int]:
    """Return the numbers of the answers, the best first; those that are equally good in order."""
    given = [name for name in (SCORES, RANKS) if record.get(name) is not None]
    if not given:
        return list(range(count))
    name, values = given[0], record[given[0]]
    if len(given) == 2:
        raise place.error("scores and ranks of the same answers", remedy="leave out one of them")
    if not isinstance(values, (list, tuple)) or len(values) != count:
        raise place.at(name).error(
            f"not the {name} of the answers",
            expected=f"a list of {count} numbers",
            actual=_size(values),
        )
    for number, value in enumerate(values):
        if not _is_number(value):
            raise place.at(f"{name}[{number}]").error(
                "not a number", expected="a finite number", actual=shorten(str(value))
            )
    best_first = -1 if name == SCORES else 1
    return sorted(range(count), key=lambda number: best_first * values[number])


def _is_number(value: object) -> bool:
    if isinstance(value, int):  # of any size: it is compared, never made a float
        return not isinstance(value, bool)
    return isinstance(value, float) and math.isfinite(value)


def _group(
    record: Mapping,
    place: Place,
    prompt: object,
    answers: Mapping[str, object],
    *,
    labels: tuple[int, ...],
) -> Group:
    chats = []
    for field, value in answers.items():
        answer = _answer(value, place.at(field))
        chat = read_answer(record, answer, prompt=prompt, field=field, provenance=place.provenance)
        said = chat.messages[-1:] if isinstance(answer, str) else chat.messages[-len(answer) :]
        spoken = [item for item in said if item.role == "assistant"]
        if not any(item.content or item.calls or item.reasoning for item in spoken):
            raise _empty(place.at(field))
        chats.append(chat)
    return Group(answers=tuple(chats), labels=labels)


def _prompt(record: Mapping, place: Place) -> object:
    if record.get("prompt") is None:
        raise place.at("prompt").error("no prompt", expected=SHAPES, actual=_keys(record))
    return record["prompt"]


def _answer(answer: object, place: Place) -> Sequence[Any]:
    """Return an answer if it is a text or a list of messages, and not empty."""
    if not isinstance(answer, (str, list, tuple)):
        raise place.error(
            "no answer", expected="a text or a list of messages", actual=type_name(answer)
        )
    if not answer:
        raise _empty(place)
    return answer


def _empty(place: Place) -> InputError:
    return place.error("an empty answer", remedy='leave the record out, or pass on_bad="skip"')
