"""Chat templates in the shapes of real models, and a tokenizer that has their control tokens.

GENERATION is replaced by nothing, or by the tags that mark what an assistant says.
"""

# ruff: noqa: E501  a line of a template is as long as its model makes it
from __future__ import annotations

import re
from pathlib import Path

LLAMA3 = """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = '' %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{{- 'Today Date: ' + (date_string if date_string is defined else strftime_now('%d %b %Y')) }}
{{- '\\n\\n' + system_message + '<|eot_id|>' }}
{%- for message in messages %}
    {%- if 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception('This model only supports single tool-calls at once!') }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}<GEN>
        {{- '{"name": "' + tool_call.name + '", "parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- '}' }}
        {{- '<|eot_id|>' }}</GEN>
    {%- elif message.role == 'tool' %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
        {{- message.content | tojson if message.content is mapping else message.content }}
        {{- '<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
        {%- if message.role == 'assistant' %}<GEN>
            {{- message['content'] | trim + '<|eot_id|>' }}</GEN>
        {%- else %}
            {{- message['content'] | trim + '<|eot_id|>' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}"""

QWEN2 = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}{{- messages[0]['content'] + '\\n\\n' }}{%- endif %}
    {{- '# Tools\\n\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\\n</tools>\\nAnswer with <tool_call>\\n{...}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>' + message.role + '\\n' }}<GEN>
        {%- if message.content %}{{- message.content }}{%- endif %}
        {%- for tool_call in message.tool_calls or [] %}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}{{- tool_call.name }}
            {{- '", "arguments": ' }}
            {%- if tool_call.arguments is string %}{{- tool_call.arguments }}
            {%- else %}{{- tool_call.arguments | tojson }}{%- endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>' }}</GEN>{{- '\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

QWEN3 = """{%- set ns = namespace(open=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.open and message.role == 'user' %}
        {%- set ns.open = false %}{%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'assistant' %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>' + message.role + '\\n' }}<GEN>
        {%- if loop.index0 > ns.last and (loop.last or reasoning) %}
            {{- '<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- content }}
        {%- endif %}
        {{- '<|im_end|>' }}</GEN>{{- '\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""

GEMMA = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] %}
    {{- '<start_of_turn>' + role + '\\n' }}
    {%- if role == 'model' %}<GEN>{{- message['content'] | trim + '<end_of_turn>' }}</GEN>{{- '\\n' }}
    {%- else %}{{- message['content'] | trim + '<end_of_turn>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{%- endif %}"""

MISTRAL = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] %}{%- set rest = messages[1:] %}
{%- else %}{%- set rest = messages %}{%- endif %}
{%- for message in rest %}
    {%- if message['role'] == 'user' %}
        {%- if loop.first and system is defined %}{{- '[INST] ' + system + '\\n\\n' + message['content'] + '[/INST]' }}
        {%- else %}{{- '[INST] ' + message['content'] + '[/INST]' }}{%- endif %}
    {%- elif message['role'] == 'assistant' %}<GEN>
        {{- ' ' + message['content'] + eos_token }}</GEN>
    {%- else %}{{ raise_exception('Only user and assistant roles are supported') }}
    {%- endif %}
{%- endfor %}"""

DEEPSEEK = """{%- set ns = namespace(system='') %}
{%- for message in messages %}
    {%- if message['role'] == 'system' %}{%- set ns.system = message['content'] %}{%- endif %}
{%- endfor %}
{{- bos_token }}{{- ns.system }}
{%- for message in messages %}
    {%- if message['role'] == 'user' %}{{- '<｜User｜>' + message['content'] }}
    {%- elif message['role'] == 'assistant' %}
        {%- set content = message['content'] %}
        {%- if '</think>' in content %}{%- set content = content.split('</think>')[-1] %}{%- endif %}
        {{- '<｜Assistant｜>' }}<GEN>{{- content + '<｜end▁of▁sentence｜>' }}</GEN>
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<｜Assistant｜><think>\\n' }}{%- endif %}"""

HARMONY = """{%- macro preamble() %}
    {{- 'Knowledge cutoff: 2024-06\\nCurrent date: ' + strftime_now('%Y-%m-%d') + '\\n\\n' }}
    {{- 'Reasoning: ' + (reasoning_effort if reasoning_effort is defined else 'medium') }}
{%- endmacro %}
{{- '<|start|>system<|message|>' }}{{- preamble() }}{{- '<|end|>' }}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {%- if '<|channel|>final<|message|>' in message.content %}
            {{- raise_exception('You have passed a message containing <|channel|> tags.') }}
        {%- endif %}
        {{- '<|start|>assistant' }}<GEN>
        {%- if loop.last and not add_generation_prompt %}
            {%- if 'thinking' in message %}
                {{- '<|channel|>analysis<|message|>' + message.thinking + '<|end|><|start|>assistant' }}
            {%- endif %}
            {{- '<|channel|>final<|message|>' + message.content + '<|return|>' }}
        {%- else %}
            {{- '<|channel|>final<|message|>' + message.content + '<|end|>' }}
        {%- endif %}</GEN>
    {%- elif message.role == 'tool' %}
        {{- '<|start|>functions to=assistant<|message|>' + message.content|tojson + '<|end|>' }}
    {%- else %}
        {{- '<|start|>' + message.role + '<|message|>' + message.content + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}"""

PHI3 = """{% for message in messages %}
{%- if message['role'] == 'assistant' %}{{ '<|assistant|>\\n' }}<GEN>{{ message['content'] + '<|end|>' }}</GEN>{{ '\\n' }}
{%- else %}{{ '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"""

SHAPES = {
    "llama3": LLAMA3,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "gemma": GEMMA,
    "mistral": MISTRAL,
    "deepseek": DEEPSEEK,
    "harmony": HARMONY,
    "phi3": PHI3,
}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
CONTROLS = [
    *("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>"),
    *("</tool_call>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "[INST]"),
    *("[/INST]", "<start_of_turn>", "<end_of_turn>", "<｜User｜>", "<｜Assistant｜>"),
    *("<｜end▁of▁sentence｜>", "<|start|>", "<|message|>", "<|channel|>", "<|end|>"),
    *("<|return|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"),
]
NOT_SPECIAL = ("<think>", "</think>", "<tool_call>", "</tool_call>")
LLAMA_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WORDS = """the quick brown fox jumps over a lazy dog and says hello to you, what is two plus two?
it is four. user assistant system tool ipython model name add weather you are helpful\n\n\n!"""


def plain(name: str) -> str:
    """Return a shape without {% generation %}."""
    return re.sub(r"\n? *</?GEN>", "", SHAPES[name])


def marked(name: str) -> str:
    """Return a shape with {% generation %} around what an assistant says."""
    text = re.sub(r"\n? *<GEN>", "{%- generation %}", SHAPES[name])
    return re.sub(r"\n? *</GEN>", "{%- endgeneration %}", text)


def train_bpe(folder: Path, **flags: dict[str, bool]) -> Path:
    """Save a byte-level BPE with all CONTROLS; `flags` are those of control tokens, by name."""
    from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, trainers
    from tokenizers import Tokenizer as Model

    model = Model(models.BPE())
    model.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    model.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator([WORDS] * 5, trainer)
    for token in CONTROLS:
        added = AddedToken(
            token, special=token not in NOT_SPECIAL, normalized=False, **flags.get(token, {})
        )
        model.add_tokens([added])
    path = folder / "tokenizer.json"
    model.save(str(path))
    return path
