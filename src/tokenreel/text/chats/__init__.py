"""Chats: messages to ids, with a turn table that says who spoke and what is trained.

`read_chat` reads a record, `render` makes ids of many chats at once, `truncate` and
`drop_untrained` make them fit for training; the ledger accounts for every token.
"""

from tokenreel.text.chats.check import Finding, check_template
from tokenreel.text.chats.drop import drop_untrained
from tokenreel.text.chats.ledger import Ledger
from tokenreel.text.chats.messages import Chat, Message, ToolCall
from tokenreel.text.chats.policy import Policy
from tokenreel.text.chats.render import Rendered, render, render_prompt
from tokenreel.text.chats.shapes import read_chat
from tokenreel.text.chats.template import Control, Name, Template, Text, Wrapping
from tokenreel.text.chats.templates import (
    BUILT_IN,
    CHATML,
    DEFAULT_SYSTEM_TEXT,
    LLAMA3,
    NGPT,
    fitting_template,
    load_template,
)
from tokenreel.text.chats.truncate import (
    TRUNCATIONS,
    Cut,
    keep_first,
    keep_last,
    truncate,
    whole_turns,
)

__all__ = [
    "BUILT_IN",
    "CHATML",
    "DEFAULT_SYSTEM_TEXT",
    "LLAMA3",
    "NGPT",
    "TRUNCATIONS",
    "Chat",
    "Control",
    "Cut",
    "Finding",
    "Ledger",
    "Message",
    "Name",
    "Policy",
    "Rendered",
    "Template",
    "Text",
    "ToolCall",
    "Wrapping",
    "check_template",
    "drop_untrained",
    "fitting_template",
    "keep_first",
    "keep_last",
    "load_template",
    "read_chat",
    "render",
    "render_prompt",
    "truncate",
    "whole_turns",
]
