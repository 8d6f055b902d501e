"""Prompts as ids: what a model is given, up to where its answer begins.

With a template the messages are followed by the header of the answer, as `add_generation_prompt`
has it, or, if the last of them is of the assistant, left open behind its text (prefill.py);
without one a prompt is its text. A prompt is one turn of the user's that weighs nothing.
Costs a rendering and a call of the tokenizer per prompt, some 100 µs, with a template; without,
one call for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenreel.errors import InputError
from tokenreel.text.chats.messages import Place
from tokenreel.text.chats.model_template import ModelTemplate
from tokenreel.text.chats.policy import Policy
from tokenreel.text.chats.prefill import check_prefill
from tokenreel.text.chats.prompt_shapes import Prompt
from tokenreel.text.chats.render import Rendered, render_prompt
from tokenreel.text.chats.template import Template
from tokenreel.text.tokenizers.tokenizer_protocol import Tokenizer
from tokenreel.text.turns import ROLE_CODES, TURN


def render_prompts(
    prompts: Sequence[Prompt],
    template: Template | ModelTemplate | None,
    *,
    tokenizer: Tokenizer,
    policy: Policy = "assistant",
) -> Rendered:
    """Render prompts; what `Rendered` says of chats holds for them. No `policy` trains any."""
    if template is None:
        encoded = tokenizer.encode_batch([prompt.messages[0].content for prompt in prompts])
        asked = [encoded[number] for number in range(len(prompts))]
    else:
        asked = [_asked(prompt, template, tokenizer) for prompt in prompts]
    lengths = np.array([len(ids) for ids in asked], np.int64)
    if not lengths.all():
        place = Place(provenance=prompts[int(np.argmin(lengths))].provenance)
        raise place.error("a prompt without a token", remedy="leave the record out")
    turns = np.zeros(len(prompts), TURN)
    turns["length"], turns["role"] = lengths, ROLE_CODES["user"]
    return Rendered(
        ids=np.concatenate(asked).astype(np.uint32, copy=False),
        offsets=np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))),
        turns=turns,
        turn_offsets=np.arange(len(prompts) + 1),
        unrendered=[()] * len(prompts),
    )


def _asked(prompt: Prompt, template: Template | ModelTemplate, tokenizer: Tokenizer) -> np.ndarray:
    """Return the ids of one prompt; an error names the place of its record."""
    chat, last = prompt.chat, prompt.messages[-1]
    continues = last.role == "assistant"
    if continues:
        place = Place(provenance=prompt.provenance, message=len(prompt.messages))
        check_prefill(last, place, controls=tokenizer.control_ids)
    try:
        if isinstance(template, ModelTemplate):
            return template.renderer(tokenizer).render_prompt(chat, continues=continues)
        return render_prompt(
            chat.messages, template, tokenizer=tokenizer, tools=chat.tools, continues=continues
        )
    except InputError as error:
        raise InputError(
            error.what,
            where=str(prompt.provenance),
            expected=error.expected,
            actual=error.actual,
            remedy=error.remedy,
        ) from error
