"""Chats: messages to ids, with a turn table that says who spoke and what is trained.

`read_chat` reads a record, `render` makes ids of many chats at once; how a chat that is too
long is cut is in truncate.py, what a template promises is tried in check.py.
"""

from tokenreel.text.chats.messages import Chat, Message, ToolCall
from tokenreel.text.chats.model_template import ModelTemplate
from tokenreel.text.chats.policy import Policy, by_answer
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

__all__ = [
    "BUILT_IN",
    "CHATML",
    "DEFAULT_SYSTEM_TEXT",
    "LLAMA3",
    "NGPT",
    "Chat",
    "Control",
    "Message",
    "ModelTemplate",
    "Name",
    "Policy",
    "Rendered",
    "Template",
    "Text",
    "ToolCall",
    "Wrapping",
    "by_answer",
    "fitting_template",
    "load_template",
    "read_chat",
    "render",
    "render_prompt",
]
