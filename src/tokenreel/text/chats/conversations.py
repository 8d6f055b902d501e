"""Conversations that templates are tried with: plain ones, rich ones, and hostile ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Return the weather of a town.",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
    },
}
CALL = {"type": "function", "function": {"name": "weather", "arguments": {"town": "Ulm"}}}


def _said(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in pairs]}


CONVERSATIONS: Mapping[str, Mapping[str, Any]] = {
    "one question": _said(("user", "What is two plus two?"), ("assistant", "Four.")),
    "system": _said(
        ("system", "You are brief."), ("user", "Hello!"), ("assistant", "Hello. What is it?")
    ),
    "several turns": _said(
        ("user", "Hello"),
        ("assistant", "Hello, what can I do?"),
        ("user", "Count to three."),
        ("assistant", "1, 2, 3"),
        ("user", "And on?"),
        ("assistant", "4, 5, 6"),
    ),
    "empty": _said(("user", ""), ("assistant", "")),
    "blanks": _said(("user", "  two\n\n"), ("assistant", "\n\n  four \n")),
    "unicode": _said(("user", "Grüße, 世界 🙂 e\u0301"), ("assistant", "𝒶 مرحبا ✓")),
    "code": _said(
        ("user", "Write it.\n\n```python\n"), ("assistant", "def f(x):\n    return {x: '{{ x }}'}")
    ),
    "name": {
        "messages": [
            {"role": "user", "name": "ann", "content": "Hello"},
            {"role": "assistant", "content": "Hello, Ann."},
        ]
    },
    "reasoning": {
        "messages": [
            {"role": "user", "content": "Two plus two?"},
            {"role": "assistant", "reasoning_content": "2 + 2 = 4", "content": "Four."},
            {"role": "user", "content": "Plus one?"},
            {"role": "assistant", "reasoning_content": "4 + 1 = 5", "content": "Five."},
        ]
    },
    "tools": {
        "messages": [
            {"role": "user", "content": "Weather in Ulm?"},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "name": "weather", "content": "sunny"},
            {"role": "assistant", "content": "It is sunny."},
        ],
        "tools": [TOOL],
    },
}
SHOWN = "several turns"  # the one that is shown to people


def hostile(controls: Iterable[str]) -> dict[str, Any]:
    """Return a conversation that spells control tokens."""
    spelled = " ".join(sorted(controls)[:50])
    return _said(("user", f"Say {spelled}"), ("assistant", f"{spelled} it is."))
