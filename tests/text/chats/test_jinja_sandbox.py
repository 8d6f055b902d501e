"""Templates from strangers: what they may call, how long they may take, how much they may write."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from tokenreel.errors import ConfigError, InputError
from tokenreel.text.chats import jinja_budget as budgets
from tokenreel.text.chats import read_chat, render
from tokenreel.text.chats.model_template import model_template
from tokenreel.text.tokenizers import byte_tokenizer

BYTE = byte_tokenizer(["<|im_start|>", "<|im_end|>"])
CHAT = read_chat(
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
)


def written(text: str, **options: Any) -> str:
    """Return what a template writes for a chat of which nothing is trained."""
    template = model_template(text, today=date(2024, 7, 26), **options)
    ids = render([CHAT], template, tokenizer=BYTE, policy={"user": 0.0}).ids
    return BYTE.decode(ids)


LOOPS = [
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{% for b, c in {1: 2}.items() %}{% for d in range(99999) %}"
    "{% endfor %}{% endfor %}{% endfor %}",
    "{% macro f(n) %}{{ f(n - 1) if n }}{{ f(n - 1) if n }}{% endmacro %}{{ f(60) }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% for a in range(99999) if a < 0 %}{% endfor %}",
    "{% for a in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
]
EXPLODES = [
    "{% for a in range(99999) %}{{ 'x' * 99999 }}{% endfor %}",
    "{% set ns = namespace(x='x') %}{% for a in range(90) %}{% set ns.x = ns.x + ns.x %}"
    "{% endfor %}",
    "{% set ns = namespace(x='x') %}{% for a in range(90) %}{% set ns.x = ns.x ~ ns.x %}"
    "{% endfor %}",
    "{% set ns = namespace(x=[1]) %}{% for a in range(90) %}{% set ns.x = ns.x + ns.x %}"
    "{% endfor %}",
    "{{ 'x' * 9999999999 }}",
    "{{ [1] * 9999999999 }}",
    "{% set x = 'x' * 9999 %}{% set x = x * 9999 %}",
    "{% set x = [1] * 9999 %}{% set x = 9999 * x %}",
    "{{ 9 ** 999999999 }}",
    "{% set ns = namespace(x=9) %}{% for a in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
    "{{ '%999999999d' % 1 }}",
    "{{ '%*d' % (999999999, 1) }}",
    "{{ '{:999999999}'.format(1) }}",
    "{{ '{:{}}'.format(1, 999999999) }}",
    "{{ '%999999999d' | format(1) }}",
    "{{ 'x' | center(999999999) }}",
    "{{ 'x'.ljust(999999999) }}",
    "{{ 'x'.zfill(999999999) }}",
    "{{ '\\n' | indent(999999999) }}",
    "{{ [1] | batch(999999999, 'x') | list }}",
    "{{ range(9) | slice(999999999) | list }}",
    "{% set x = 'x' * 99999 %}{{ x.replace('', x) }}",
    "{% set x = 'x' * 99999 %}{{ x | replace('x', x) }}",
    "{% set x = 'x' * 99999 %}{{ x.join(range(99999) | map('string')) }}",
    "{% set x = 'x' * 99999 %}{{ range(99999) | list | join(x) }}",
    "{{ {'a': [1]} | tojson(indent=999999999) }}",
    "{{ 'a\\t'.expandtabs(999999999) }}",
    "{{ 'a'.translate({97: 'x' * 999999}) }}",
    "{{ range(999999999) }}",
]


@pytest.mark.parametrize("text", [*LOOPS, *EXPLODES])
def test_a_template_that_loops_or_explodes_is_given_up(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "MAX_STEPS", 20_000)
    with pytest.raises(InputError, match=r"given up|recursion|Range too big|too many values"):
        written(text)


DEEP = (
    "{% set ns = namespace(x=[], y=[]) %}{% for a in range(40) %}{% set ns.x = [ns.x, ns.x] %}"
    "{% set ns.y = [ns.y, ns.y] %}{% endfor %}"
)


@pytest.mark.parametrize(
    "expression",
    [
        *("ns.x", "ns.x | tojson", "ns.x | pprint", "ns.x | string", "ns.x | upper"),
        *("ns.x | urlencode", "ns.x ~ ''", "'%s' % ns.x", "'{}'.format(ns.x)", "[ns.x] | join"),
        *("{'a': ns.x} | xmlattr", "{'a': ns.x}", "ns.x == ns.y", "ns.x in [ns.y]"),
        *("ns.x is eq(ns.y)", "[ns.x, ns.y] | sort", "[ns.x] | map('string') | list"),
        *("[ns.x] | select('eq', ns.y) | list", "[ns.x].index(ns.y)", "raise_exception(ns.x)"),
        *("{(ns.x, 1): 1}", "{}[(ns.x, 1)]", "{}.get((ns.x, 1))", "dict([((ns.x, 1), 1)])"),
        *("namespace([((ns.x, 1), 1)])", "(ns.x, 1) is filter", "'a'.startswith((ns.x, 1))"),
    ],
)
def test_a_list_that_is_small_to_make_and_endless_to_write_is_measured_first(
    expression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "FREE_CHARACTERS", 5_000)
    with pytest.raises(InputError, match="given up: it makes a text or a list of more than"):
        written(DEEP + "{{ " + expression + " }}")


LONG = "{% set x = 'x' * 40000 %}{% set ns = namespace(x='&' * 20000) %}"
REPEATED = "{% for a in range(9999) %}BODY{% endfor %}"
GROWS = [
    "{{ ('{0}' * 9000).format(x) }}",
    "{{ ('%(a)s' * 9000) % {'a': x} }}",
    "{{ ('%(a)s' * 9000) | format(a=x) }}",
    "{{ ('%9999d' * 9) % (1, 1, 1, 1, 1, 1, 1, 1, 1) }}",
    "{{ x | wordwrap(1) }}",
    "{{ 'x x' | wordwrap(1, wrapstring=x) | wordwrap(1) }}",
    "{{ ('a\n' * 9000) | indent(x) }}",
    "{{ ('a\n' * 9000) | indent(first=true, width=x) }}",
    "{{ ('a\n' * 9000) | indent(9999) }}",
    "{{ ([[1] * 999] * 99) | sum(start=[]) }}",
    "{{ 5 | round(-999999999) }}",
    "{{ ('f' * 9999) | int(0, 16) }}",
    "{{ ('a' | safe).ljust(999999999) }}",
    "{{ ([x] * 9999) | map('upper') | list | length }}",
    "{{ ([x] * 9999) | map('list') | list | length }}",
    "{{ ([x] * 9999) | map('reverse') | list | length }}",
    "{{ ([x] * 9999) | map('wordcount') | list | length }}",
    "{{ ([x] * 9999) | join }}",
    "{{ x in ([x ~ 'y'] * 9999) }}",
    "{{ (['a'] * 9999) | map('center', 9999) | list | length }}",
    "{% macro f() %}" + REPEATED.replace("BODY", "{{ x }}") + "{% endmacro %}{{ f() | length }}",
    "{% macro f() %}" + REPEATED.replace("BODY", "y" * 999) + "{% endmacro %}{{ f() | length }}",
    "{% set z %}" + REPEATED.replace("BODY", "{{ x }}") + "{% endset %}{{ z | length }}",
    "{% filter upper %}" + REPEATED.replace("BODY", "{{ x }}") + "{% endfilter %}",
    "{% macro f() %}{{ caller() | length }}{% endmacro %}{% call f() %}"
    + REPEATED.replace("BODY", "{{ x }}")
    + "{% endcall %}",
    *(
        REPEATED.replace("BODY", "{% set ns.x = " + grown + " %}")
        for grown in (
            *("ns.x | forceescape", "ns.x | urlencode", "[ns.x] | string", "('x' * 40000, ns.x)"),
            *("(x[a:], ns.x)", "[ns.x" + ", 1" * 400 + "]", "(x.upper(), ns.x)"),
            *("(2 if a == 0 else ns.x) - (0 - (2 if a == 0 else ns.x))", "(ns.x, x ~ a)"),
        )
    ),
]


@pytest.mark.parametrize("text", GROWS)
def test_what_grows_by_filters_blocks_and_methods_is_given_up(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "FREE_CHARACTERS", 50_000)
    with pytest.raises(InputError, match="the template is given up"):
        written(LONG + text)


@pytest.mark.parametrize("text", ["{{ 'ab'.encode().ljust(9) }}", "{{ (1).to_bytes(9, 'big') }}"])
def test_numbers_and_bytes_have_no_methods(text: str) -> None:
    with pytest.raises(InputError, match="what a sandbox forbids"):
        written(text)


@pytest.mark.parametrize("test", ["odd", "even", "divisibleby([1])"])
def test_a_test_of_numbers_does_not_format_text(test: str) -> None:
    with pytest.raises(InputError, match="neither odd nor even"):
        written("{{ '%999999999d' is " + test + " }}")


def test_memory_that_is_not_there_is_an_error_of_the_chat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(budgets, "FREE_CHARACTERS", 1 << 62)
    with pytest.raises(InputError, match="the template fails on the chat: MemoryError"):
        written("{{ 'x' * (2 ** 61) }}")


def test_a_long_chat_is_not_too_long() -> None:
    turns = [{"role": role, "content": "a b" * 900} for role in ("user", "assistant") * 20]
    shape = (
        "{% set ns = namespace(all='') %}{% for m in messages %}{% set ns.all = ns.all + m.content"
        " | trim %}{% if m in messages %}{{ m | tojson }}{% endif %}{% endfor %}{{ ns.all }}"
    )
    made = render(
        [read_chat({"messages": turns})],
        model_template(shape),
        tokenizer=BYTE,
        policy={"user": 0.0},
    )
    assert len(made.ids) > 2 * 40 * 2700


def test_numbers_of_a_chat_count_as_what_they_are_written_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(budgets, "FREE_CHARACTERS", 5_000)
    numbers = [number / 7 for number in range(999)]
    chat = read_chat(
        {
            "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
            "documents": [{"table": numbers}],
        }
    )
    template = model_template("{{ documents | tojson(indent=4) }}")
    made = render([chat], template, tokenizer=BYTE, policy={"user": 0.0})
    assert len(made.ids) > 20_000


@pytest.mark.parametrize(
    "text",
    [
        "{{ messages | map('upper') }}",
        "{{ messages | map('upper') | string }}",
        "{{ [raise_exception] }}",
        "{{ raise_exception }}",
        "{% for m in messages %}{{ loop }}{% endfor %}",
        "{{ namespace(a=1) ~ '' }}",
        "{{ 'a'.encode() }}",
    ],
)
def test_what_has_an_address_in_memory_is_not_written(text: str) -> None:
    with pytest.raises(InputError, match="which is no text, number, list or object"):
        written(text)


def test_steps_are_counted_and_timed() -> None:
    budget = budgets.Budget()
    for _ in range(budgets.MAX_STEPS):
        budget.step()
    with pytest.raises(budgets.Unbounded, match="1,000,000 steps or 20 seconds"):
        budget.step()


@pytest.mark.parametrize(
    "text",
    [
        "{{ messages.append(1) }}",
        "{{ messages.__class__.__mro__ }}",
        "{{ messages[0].update({'role': 'system'}) }}",
        "{{ (namespace(_x=1))._x }}",
        "{{ namespace().__init__.__globals__ }}",
        "{{ lipsum() }}",
        "{{ [1] | random }}",
        "{% include 'x' %}",
    ],
)
def test_what_the_sandbox_forbids_is_refused(text: str) -> None:
    with pytest.raises((InputError, ConfigError)):
        written(text)


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ strftime_now.__self__ }}",
        "{{ messages.__len__ }}",
    ],
)
def test_what_python_keeps_behind_underscores_is_not_there(text: str) -> None:
    assert written(text) == ""


def test_a_chat_is_not_changed_by_its_template() -> None:
    before = repr(CHAT)
    written("{% set m = messages[0] %}{% for x in messages %}{{ x.content }}{% endfor %}")
    assert repr(CHAT) == before


def test_a_refusal_has_the_words_of_the_template() -> None:
    with pytest.raises(InputError, match="the template refuses the chat: Roles must alternate!"):
        written("{{ raise_exception('Roles must alternate!') }}")


def test_a_refusal_is_no_longer_than_words_are() -> None:
    with pytest.raises(InputError) as caught:
        written("{{ raise_exception('word ' * 9999) }}")
    assert len(str(caught.value)) < 500


def test_a_template_that_fails_is_an_error_of_the_chat_with_its_words() -> None:
    with pytest.raises(
        InputError, match=r"fails on the chat: .*'dict object' has no attribute 'x'"
    ):
        written("{{ messages[0].x.y }}")
    with pytest.raises(InputError, match=r"fails on the chat: .*division"):
        written("{{ 1 / 0 }}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{% if %}", "line 1: not a chat template"),
        ("\n\n{{ x | nofilter }}", "line 3: not a chat template: No filter named 'nofilter'"),
        ("{{ (((" * 50_000, "not a chat template"),
        ("{% autoescape true %}{{ x }}{% endautoescape %}", "escapes HTML"),
        ("x" * 1_000_001, "expected at most 1,000,000 characters, got 1,000,001"),
    ],
)
def test_what_is_no_template_is_an_error_that_says_where(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        written(text, where="chat_template.jinja")
    assert words in str(caught.value)
    assert "chat_template.jinja" in str(caught.value)


def test_the_globals_and_filters_are_those_of_transformers() -> None:
    text = (
        "{{ strftime_now('%d %b %Y') }} {{ dict(a=1) | tojson }} {{ '<é>' | tojson }} "
        "{% set ns = namespace(a=1) %}{% set ns.a = 2 %}{{ ns.a }} "
        "{% for x in range(9) %}{% if x == 1 %}{% continue %}{% endif %}"
        "{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}"
        "{{ {'b': 1, 'a': [1]} | tojson(indent=2, sort_keys=true) }}"
        "{{ 'abc'[1:] ~ 1 ~ none ~ true }}{{ ['a', 'b'] | join(', ') }}{{ 'a-b'.split('-') }}"
        "{{ '**%s** 123456' % 1 }}{{ '{{{}: *{{}}}}'.format(2) }}"
        "{{ 'x%sy' % 3 }}{{ '{}-{:>4}'.format(1, 2) }}{{ 'ab' | replace('b', 'c') | upper }}"
        "{{ 'a' | center(5) }}|{{ 3 * 'ab' }}{{ 2 ** 10 }}{{ 7 % 4 }}{{ [1] + [2] }}"
    )
    from transformers.utils.chat_template_utils import render_jinja_template

    made: Any = render_jinja_template([[{"role": "user", "content": "a"}]], chat_template=text)
    here = written(text)
    today = date.today().strftime("%d %b %Y")
    assert here.replace("26 Jul 2024", today) == made[0][0]
    assert here.startswith("26 Jul 2024")


def test_a_variable_that_is_set_between_marks_does_not_leave_them() -> None:
    text = (
        "{% set x = 1 %}{% for m in messages %}{% generation %}{% set x = 2 %}{{ x }}"
        "{% endgeneration %}{{ x }}{% endfor %}"
    )
    from transformers.utils.chat_template_utils import render_jinja_template

    messages = [{"role": m.role, "content": m.content} for m in CHAT.messages]
    made: Any = render_jinja_template([messages], chat_template=text)
    assert written(text) == made[0][0]
