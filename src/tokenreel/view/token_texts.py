"""The texts of some ids of a store, and which of them are control ids."""

from __future__ import annotations

from collections.abc import Container, Mapping

import numpy as np

from tokenreel.view.clipped import clip_texts
from tokenreel.view.subject import Subject


def token_texts(
    subject: Subject,
    store: int,
    ids: list[int],
    *,
    begins: Container[int] = (),
    is_token: np.ndarray | None = None,
) -> tuple[list[str | None], list[int]]:
    """Return the text of each id, clipped, and the places of control ids.

    Without a tokenizer only control ids have a text, where the store records their names. Where
    `is_token` is False there is padding, which has none, whatever its id.
    """
    spelling = subject.id_texts[store]
    names = _recorded_names(subject, store) if spelling is None else spelling.control_names
    texts: list[str | None]
    if spelling is None:
        texts = [names.get(number) for number in ids]
    else:
        texts = spelling.of(ids, begins=begins)
    controls = [place for place, number in enumerate(ids) if number in names]
    if is_token is not None and not is_token.all():
        holds = is_token.tolist()
        texts = [text if holds[place] else None for place, text in enumerate(texts)]
        controls = [place for place in controls if holds[place]]
    return clip_texts(texts), controls


def _recorded_names(subject: Subject, store: int) -> dict[int, str]:
    recorded = (subject.stores[store].tokenizer or {}).get("control_ids")
    if not isinstance(recorded, Mapping):
        return {}
    return {number: str(name) for name, number in recorded.items() if isinstance(number, int)}
