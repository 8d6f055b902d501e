"""Folders for small stores, and a store of which some rows train nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.feed.making import write_store
from tests.rows.corpora import Place
from tests.rows.planning import CHAT_LENGTHS

from tokenreel import open_store
from tokenreel.store.store import Store


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Folders for stores; the user's cache folder is one of them."""
    fresh = Place()
    monkeypatch.setenv("XDG_CACHE_HOME", str(fresh.root / "cache"))
    yield fresh
    fresh.remove()


@pytest.fixture
def chats(place: Place) -> Store:
    """Chats of which some windows, and some documents, train nothing."""
    path = place()
    write_store(path, CHAT_LENGTHS, sidecar="turns", shard_tokens=40, seed=3)
    return open_store(path)
