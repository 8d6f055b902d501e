"""feed.widget(): the batch in a notebook, with a slider over the steps.

The same facts and the same modules as the viewer's, without its server: the page's part asks
through the notebook, and the answers come from the feed itself. A step of 8 rows of 512 slots is
some hundred kilobytes; more rows and slots are sent when somebody wants to see them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from os import PathLike
from typing import Any

from tokenreel.display.style_sheet import notebook_palette, shadow_style
from tokenreel.errors import ConfigError, MissingExtraError, TokenreelError
from tokenreel.feed.feed import Feed
from tokenreel.feed.shown_batch import load_tokenizer
from tokenreel.feed.trace import check_within
from tokenreel.text.tokenizers import Tokenizer
from tokenreel.view.batch_facts import step_facts
from tokenreel.view.bundle import bundle_modules
from tokenreel.view.page_files import page_files
from tokenreel.view.row_facts import row_facts, rows_facts
from tokenreel.view.run_facts import reel_facts, reel_stop, target_facts
from tokenreel.view.subject import Subject, subject_of

SLOTS = 512  # of a row in one answer
MOST_ROWS = 64  # in one answer
COLUMNS = 300  # of the bands
COLOURS = ("loss", "segment", "source", "turn")
ENTRY = "widget.js"


def batch_widget(
    feed: Feed,
    step: int | None,
    *,
    tokenizer: str | PathLike[str] | Tokenizer | None = None,
    force: bool = False,
    rows: int = 8,
) -> Any:
    """Return the widget; MissingExtraError without the package anywidget.

    >>> import tempfile, tokenreel
    >>> out = tempfile.mkdtemp() + "/s"
    >>> built = tokenreel.build(texts=["one", "two"], out=out, tokenizer="byte", progress=False)
    >>> source = tokenreel.Source(name="a", path=out, rows="packed")
    >>> feed = tokenreel.Feed(tokenreel.Recipe(seq_len=8, global_batch_size=2, sources=[source]))
    >>> widget = feed.widget(step=5)
    >>> widget.step, widget.colour
    (5, 'loss')
    """
    kind = _widget_kind()
    given = None if tokenizer is None else load_tokenizer(tokenizer)
    subject = subject_of(feed, title="feed", tokenizer=given, force_tokenizer=force)
    first = min(feed.step, (feed.num_steps or feed.step + 1) - 1) if step is None else step
    check_within(feed, first)
    if not 1 <= rows <= MOST_ROWS:
        raise ConfigError("bad rows", expected=f"1 to {MOST_ROWS}", actual=rows)
    return kind(Questions(subject), step=first, num_rows=rows)


class Questions:
    """What the page's part asks, and the answers of a feed."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    @property
    def about(self) -> dict[str, Any]:
        """What does not change from step to step: names, colours, the shares over the run."""
        feed = self._subject.feed
        reel = reel_facts(feed, start=0, stop=reel_stop(feed), columns=COLUMNS)
        del reel["epochs"]  # which nothing here draws
        return {**target_facts([self._subject]), "reel": reel}

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a question, ready for JSON; an error is an answer too."""
        number = question.get("number")
        try:
            return {"number": number, **self._answered(question)}
        except TokenreelError as error:
            return {"number": number, "error": {"message": str(error), **error.as_dict()}}

    def _answered(self, question: Mapping[str, Any]) -> dict[str, Any]:
        step = _whole(question, "step")
        if question.get("ask") == "step":
            return self._step(step, min(_whole(question, "rows"), MOST_ROWS))
        if question.get("ask") == "row":
            row, start = _whole(question, "row"), _whole(question, "start")
            return {"part": row_facts(self._subject, step, row, start=start, stop=start + SLOTS)}
        raise ConfigError("no such question", expected="step or row", actual=question.get("ask"))

    def _step(self, step: int, num_rows: int) -> dict[str, Any]:
        summary = step_facts(self._subject.feed, step)
        summary["rows"] = summary["rows"][:num_rows]
        rows = [row["row"] for row in summary["rows"]]
        return {"summary": summary, "parts": rows_facts(self._subject, step, rows, stop=SLOTS)}


def _whole(question: Mapping[str, Any], name: str) -> int:
    value = question.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"bad {name}", expected="a whole number from 0 on", actual=repr(value))
    return value


@cache
def _widget_kind() -> Any:
    """Return the class of widgets; it is made here because its base is an optional package."""
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise MissingExtraError("anywidget", extra="widget", purpose="feed.widget()") from None

    class BatchWidget(anywidget.AnyWidget):
        """A slider over the steps of a feed, and the rows of one of them as chips.

        `step` and `colour` (loss, segment, source, turn) follow the page, and it follows them.
        """

        _esm = script()
        _css = notebook_palette()
        about = traitlets.Dict().tag(sync=True)
        look = traitlets.Unicode(look()).tag(sync=True)
        num_rows = traitlets.Int(8).tag(sync=True)
        step = traitlets.Int(0, min=0).tag(sync=True)
        colour = traitlets.Enum(COLOURS, default_value=COLOURS[0]).tag(sync=True)

        def __init__(self, questions: Questions, **traits: Any) -> None:
            self._questions = questions
            super().__init__(about=questions.about, **traits)
            self.on_msg(self._take)

        def _take(self, _: Any, question: Any, __: Any) -> None:
            if isinstance(question, Mapping):
                self.send(self._questions.answer(question))

    return BatchWidget


@cache
def script() -> str:
    """Return the page's part as one module: widget.js, and what it takes of the viewer's."""
    modules = {
        name: file.content.decode() for name, file in page_files().items() if name.endswith(".js")
    }
    return f"{bundle_modules(modules, ENTRY)}\nexport default {{ render: module_widget.render }};\n"


@cache
def look() -> str:
    """Return the style of the inside: chips, and what widget.css adds."""
    return shadow_style() + page_files()["widget.css"].content.decode()
