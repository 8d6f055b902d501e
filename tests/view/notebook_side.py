"""The notebook's side of a widget: what a kernel would send to the page, and takes from it."""

from __future__ import annotations

import json
from typing import Any

import comm
import pytest
from comm.base_comm import BaseComm

from tokenreel.feed.feed import Feed


class Notebook(BaseComm):
    """The other end of a widget's messages, as JSON would carry them."""

    def __init__(self, **given: Any) -> None:
        self.state: dict[str, Any] = {}
        self.answers: list[dict[str, Any]] = []
        super().__init__(**given)

    def publish_msg(
        self,
        msg_type: str,
        data: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        buffers: list[bytes] | None = None,
        **keys: Any,
    ) -> None:
        """Take a message of the kernel."""
        sent = json.loads(json.dumps(data or {}))
        if sent.get("method") == "custom":
            self.answers.append(sent["content"])
        self.state |= sent.get("state", {})

    def say(self, method: str, **content: Any) -> None:
        """Send a message to the kernel."""
        data = {"method": method, **content}
        self.handle_msg({"content": {"data": json.loads(json.dumps(data))}, "buffers": []})

    def ask(self, **question: Any) -> dict[str, Any]:
        """Ask as the page does, and return the answer."""
        self.say("custom", content=question)
        return self.answers.pop()


def open_widget(
    feed: Feed, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[Any, Notebook]:
    """Return a widget of a feed, and the notebook that shows it."""
    made: list[Notebook] = []

    def create(**given: Any) -> Notebook:
        made.append(Notebook(**given))
        return made[-1]

    monkeypatch.setattr(comm, "create_comm", create)
    widget = feed.widget(**options)
    notebook = next(item for item in made if "look" in item.state)
    return widget, notebook
