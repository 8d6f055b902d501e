"""Draw the pictures of docs/understand: SVG made of real stores, plans, orders and batches.

    python scripts/draw_docs.py            writes docs/drawings/*.svg and docs/style/drawings.css

What is drawn is asked of the package, so a picture cannot say what the code does not do; a test
draws again and compares. Colours are variables: a file by itself follows the reader's system; in
the site, staging takes the <style> out, and drawings.css follows the site's own switch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from html import escape
from pathlib import Path

import numpy as np

from tokenreel import Feed, Phase, Recipe, Source, StoreWriter, build
from tokenreel.order.order import Order, SourceRows
from tokenreel.text.tokenizers import load_tokenizer

ROOT = Path(__file__).resolve().parents[1]
LENGTHS = (9, 4, 14, 6, 3, 11, 5, 8)  # of the documents that are drawn
SEQ_LEN = 15  # rows of 16 slots
# After Okabe and Ito, whose colours the colour-blind tell apart; pale ones for the dark.
LIGHT = {
    "ink": "#1c1f24", "soft": "#6b7280", "line": "#d5d9e0", "pad": "#eef0f3", "on": "#ffffff",
    "h0": "#0072b2", "h1": "#c77f00", "h2": "#009e73", "h3": "#cc79a7", "h4": "#2e86b8",
    "h5": "#d55e00", "h6": "#8a7d00", "h7": "#882255", "trained": "#009e73", "control": "#0072b2",
}  # fmt: skip
DARK = {
    "ink": "#e6e8eb", "soft": "#9aa3af", "line": "#3b424d", "pad": "#252a31", "on": "#101216",
    "h0": "#4aa3d9", "h1": "#e8b04a", "h2": "#3cc29a", "h3": "#d99bbd", "h4": "#8ccdf0",
    "h5": "#ea8650", "h6": "#d9ca3a", "h7": "#c06a92", "trained": "#3cc29a", "control": "#4aa3d9",
}  # fmt: skip
CLASSES = """\
.d-text{fill:var(--d-ink);font:13px system-ui,sans-serif}
.d-small{fill:var(--d-soft);font:11px system-ui,sans-serif}
.d-chip{fill:var(--d-ink);font:12px ui-monospace,monospace}
.d-on{fill:var(--d-on);font:600 11px system-ui,sans-serif}
.d-box{fill:none;stroke:var(--d-line)}
.d-pad{fill:var(--d-pad);stroke:var(--d-line)}
.d-path{fill:none;stroke-width:2}
.d-axis{stroke:var(--d-line)}
"""


def declared(colours: dict[str, str]) -> str:
    """Return colours as declarations of variables."""
    return "".join(f"--d-{name}:{value};" for name, value in colours.items())


class Drawing:
    """Shapes, and the text they become."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, fill: str, **more: str) -> None:
        """Add a box: the name of a colour, or "pad" or "box" for what is empty."""
        look = f'class="d-{fill}"' if fill in ("pad", "box") else f'fill="var(--d-{fill})"'
        rest = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
        place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self._parts.append(f'<rect {place} rx="2" {look}{rest}/>')

    def text(
        self, x: float, y: float, words: str, kind: str = "text", anchor: str = "start"
    ) -> None:
        """Add words."""
        place = f'x="{x:g}" y="{y:g}" class="d-{kind}" text-anchor="{anchor}"'
        self._parts.append(f"<text {place}>{escape(words)}</text>")

    def line(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """Add a straight line of an axis."""
        self._parts.append(f'<path class="d-axis" d="M{x:g} {y:g}L{to_x:g} {to_y:g}"/>')

    def path(self, points: Iterable[tuple[float, float]], colour: str) -> None:
        """Add a line through points."""
        through = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self._parts.append(f'<path class="d-path" stroke="var(--d-{colour})" d="M{through}"/>')

    def svg(self) -> str:
        """Return the file."""
        dark = f"@media (prefers-color-scheme:dark){{svg{{{declared(DARK)}}}}}"
        style = f"<style>svg{{{declared(LIGHT)}}}\n{dark}\n{CLASSES}</style>"
        size = f'viewBox="0 0 {self.width} {self.height}" width="{self.width}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
        return "\n".join([head, style, *self._parts, "</svg>"]) + "\n"


def small_store(folder: Path) -> Path:
    """Write a store of documents of LENGTHS; ids tell the document and the place."""
    with StoreWriter(folder / "small", vocab_size=1000) as writer:
        for number, length in enumerate(LENGTHS):
            writer.add([number * 20 + place for place in range(length)])
    return folder / "small"


def recipe_of(path: Path, **settings: object) -> Recipe:
    """Return a recipe of the small store."""
    source = Source(name="small", path=path, **settings)  # type: ignore[arg-type]
    return Recipe(seq_len=SEQ_LEN, global_batch_size=2, seed=7, sources=[source])


def draw_document(
    drawing: Drawing, number: int, x: float, y: float, slots: int, unit: float
) -> None:
    """Draw some slots of a document in its colour, with its number if there is room."""
    drawing.box(x, y, slots * unit - 1, 22, f"h{number % 8}")
    if slots * unit > 12:
        drawing.text(x + (slots * unit - 1) / 2, y + 15, str(number), "on", "middle")


def rows(path: Path) -> Drawing:
    """Draw the same documents as each kind of rows."""
    unit, left = 20.0, 150
    drawing = Drawing(660, 620)
    drawing.text(0, 16, "documents")
    x = float(left)
    for number, length in enumerate(LENGTHS):
        draw_document(drawing, number, x, 2, length, unit * 0.4)
        x += length * unit * 0.4
    y = 52.0
    for kind in ("windows", "document_windows", "packed", "episodes"):
        y = _rows_of_kind(drawing, path, kind, left, y, unit)
    drawing.text(
        left, y + 6, "a number is a document; grey is padding; every row has 16 slots", "small"
    )
    drawing.height = int(y + 18)
    return drawing


def _rows_of_kind(
    drawing: Drawing, path: Path, kind: str, left: float, y: float, unit: float
) -> float:
    feed = Feed(recipe_of(path, rows=kind, shuffle=False))
    plan = feed.plans[0]
    drawing.text(0, y + 15, kind)
    share = sum(LENGTHS) / (plan.num_rows * (SEQ_LEN + 1))
    drawing.text(0, y + 31, f"{plan.num_rows} rows, {100 * min(share, 1):.0f} % full", "small")
    for number in range(plan.num_rows):
        row = feed.explain(number // 2).rows[number % 2]
        segments = int(feed.batch(number // 2).segment_ids[number % 2].max())
        told = f"{segments} segment{'s' * (segments > 1)}"
        drawing.text(left + (SEQ_LEN + 1) * unit + 10, y + 15, told, "small")
        drawing.box(left, y, (SEQ_LEN + 1) * unit - 1, 22, "pad")
        x = left
        for segment in row.segments:
            slots = segment.stop - segment.start
            draw_document(drawing, segment.document or 0, x, y, slots, unit)
            x += slots * unit
        y += 25
    return y + 18


def order(path: Path) -> Drawing:
    """Draw the way from documents to rows, to the order of two epochs, to steps and ranks."""
    unit = 10.5
    drawing = Drawing(660, 380)
    feed = Feed(recipe_of(path, rows="packed"))
    plan = feed.plans[0]
    drawing.text(0, 16, "1. documents of a store")
    x = 0.0
    for number, length in enumerate(LENGTHS):
        draw_document(drawing, number, x, 26, length, unit)
        x += length * unit + 2
    drawing.text(0, 84, f"2. rows: {plan.num_rows} of {SEQ_LEN + 1} slots, planned once")
    straight = Feed(recipe_of(path, rows="packed", shuffle=False))
    for number in range(plan.num_rows):
        _draw_row(drawing, straight, number, number * 163, 94, 9.8)
    y = 140
    drawing.text(
        0, y + 18, "3. order: each epoch shows every row once, shuffled by a keyed permutation"
    )
    located = feed.order.locate(0, 2 * plan.num_rows)
    cell = 640 / (2 * plan.num_rows)
    for position in range(2 * plan.num_rows):
        epoch, row = int(located.epoch[position]), int(located.row[position])
        x = position * cell
        drawing.box(x, y + 28, cell - 3, 26, "h0" if epoch == 0 else "h2")
        drawing.text(x + cell / 2 - 1, y + 45, f"row {row}", "on", "middle")
        drawing.text(x + cell / 2 - 1, y + 68, f"position {position}", "small", "middle")
    drawing.text(
        0, y + 100, "4. step s is positions 2s and 2s + 1 of a batch of 2: a division, no replay"
    )
    for step in range(plan.num_rows):
        drawing.box(step * 2 * cell, y + 110, 2 * cell - 3, 24, "box")
        drawing.text(step * 2 * cell + cell - 1, y + 126, f"step {step}", "text", "middle")
    drawing.height = int(y + 142)
    return drawing


def _draw_row(drawing: Drawing, feed: Feed, number: int, x: float, y: float, unit: float) -> None:
    drawing.box(x, y, (SEQ_LEN + 1) * unit - 1, 22, "pad")
    drawing.text(x, y + 36, f"row {number}", "small")
    for segment in feed.explain(number // 2).rows[number % 2].segments:
        slots = segment.stop - segment.start
        draw_document(drawing, segment.document or 0, x, y, slots, unit)
        x += slots * unit


def parts(path: Path) -> Drawing:
    """Draw one global batch, shared out over 1, 2, 3 and 4 ranks."""
    source = Source(name="small", path=path, rows="document_windows")
    feed = Feed(Recipe(seq_len=4, global_batch_size=8, seed=7, sources=[source]))
    batch = feed.batch(3)
    first = {batch.input_ids[row].tobytes(): row for row in range(8)}
    drawing = Drawing(660, 190)
    for line, world_size in enumerate((1, 2, 3, 4)):
        y = 8 + 44 * line
        drawing.text(0, y + 17, f"{world_size} rank{'s' * (world_size > 1)}")
        x = 90.0
        for rank in range(world_size):
            part = feed.batch(3, rank=rank, world_size=world_size)
            for row in range(part.input_ids.shape[0]):
                seat = first.get(part.input_ids[row].tobytes())
                is_row = seat is not None and bool(part.segment_ids[row].any())
                drawing.box(x, y, 50, 26, f"h{rank}" if is_row else "pad")
                words = f"row {seat}" if is_row else "empty"
                drawing.text(x + 25, y + 17, words, "on" if is_row else "small", "middle")
                x += 53
            x += 12
    return drawing


def mixture() -> Drawing:
    """Draw how far counts of a source are from its share: the mixture, and independent draws."""
    steps, batch = 1500, 8
    shares = np.array([0.73, 0.27])
    named = [SourceRows(name=name, num_rows=10**6) for name in ("web", "chat")]
    order = Order(named, shares=shares.tolist(), seed=3)
    ours = np.cumsum(order.locate(0, steps * batch).source == 1)
    drawn = np.cumsum(np.random.default_rng(3).random(steps * batch) < shares[1])
    expected = np.arange(1, steps * batch + 1) * shares[1]
    drawing = Drawing(660, 260)
    top, height, left, width = 16, 190, 44, 600
    largest = 90.0
    for value in (-80, -40, 0, 40, 80):
        y = top + height * (1 - (value + largest) / (2 * largest))
        drawing.line(left, y, left + width, y)
        drawing.text(left - 6, y + 4, f"{value:+d}" if value else "0", "small", "end")
    for counts, colour in ((drawn, "h1"), (ours, "h0")):
        off = (counts - expected)[:: 4 * batch]
        points = [
            (left + width * n / (len(off) - 1), top + height * (1 - (v + largest) / (2 * largest)))
            for n, v in enumerate(off.clip(-largest, largest))
        ]
        drawing.path(points, colour)
    for step in (0, 500, 1000, 1500):
        anchor = "end" if step == steps else "middle"
        x = left + width * step / steps
        drawing.text(x, top + height + 18, f"step {step:,}", "small", anchor)
    worst = np.abs(ours - expected).max()
    drawing.box(left, top + height + 30, 12, 12, "h0")
    drawing.text(
        left + 18, top + height + 41, f"tokenreel: never more than {worst:.2f} rows off", "small"
    )
    drawing.box(left + 300, top + height + 30, 12, 12, "h1")
    drawing.text(left + 318, top + height + 41, "independent draws", "small")
    return drawing


def phases() -> Drawing:
    """Draw the counts of sources in every batch of a run with a ramp."""
    with tempfile.TemporaryDirectory() as folder:
        path = small_store(Path(folder))
        sources = [
            Source(name=name, path=path, weight=weight)
            for name, weight in (("web", 0.75), ("code", 0.125), ("chat", 0.125))
        ]
        phase = Phase(
            start_step=40, ramp_steps=30, weights={"web": 0.25, "code": 0.25, "chat": 0.5}
        )
        recipe = Recipe(seq_len=4, global_batch_size=16, seed=7, sources=sources, phases=[phase])
        feed = Feed(recipe)
        counts = [np.bincount(feed.locate(step).source, minlength=3) for step in range(100)]
    drawing = Drawing(660, 200)
    unit, height = 6.0, 144
    for step, each in enumerate(counts):
        y = 10.0
        for number, count in enumerate(each):
            drawing.box(40 + step * unit, y, unit - 1, height * count / 16, f"h{(0, 2, 1)[number]}")
            y += height * count / 16
    for rows_counted in (0, 4, 8, 12, 16):
        drawing.text(34, 14 + height * rows_counted / 16, str(rows_counted), "small", "end")
    for step in (0, 40, 70, 99):
        drawing.text(40 + step * unit, 170, f"step {step}", "small", "middle" if step else "start")
    for number, name in enumerate(("web", "code", "chat")):
        drawing.box(40 + 90 * number, 182, 12, 12, f"h{(0, 2, 1)[number]}")
        drawing.text(58 + 90 * number, 193, name, "small")
    return drawing


def masks(folder: Path) -> Drawing:
    """Draw a chat token by token: control ids, context, what is trained."""
    chat = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "It is 4."}]
    store = build(chats=[chat], out=folder / "chat", tokenizer="byte", progress=False).store
    document = store["train"].document(0)
    weights, tokenizer = document.loss_weights, load_tokenizer("byte")
    drawing = Drawing(660, 170)
    x, y = 0.0, 8.0
    for token, weight in zip(document.tokens.tolist(), weights.tolist(), strict=True):
        words = tokenizer.decode([token]).replace("\n", "↵").replace(" ", "␣")
        is_control = len(words) > 1 and words != "␣"
        width = 8.0 * len(words) + 10
        if x + width > 650:
            x, y = 0.0, y + 36
        look = {"fill_opacity": "0.35"} if weight else {}
        drawing.box(x, y, width - 3, 26, "trained" if weight else "pad", **look)
        if is_control:
            drawing.box(x, y, width - 3, 26, "box", style="stroke:var(--d-control)")
        drawing.text(x + (width - 3) / 2, y + 17, words, "chip", "middle")
        x += width
    y += 46
    for left, words, kind in ((0, "trained", "trained"), (110, "context: seen, not trained", "pad"),
                              (310, "control id: from the template alone", "box")):  # fmt: skip
        look = {"fill_opacity": "0.35"} if kind == "trained" else {}
        look |= {"style": "stroke:var(--d-control)"} if kind == "box" else {}
        drawing.box(left, y, 14, 14, kind, **look)
        drawing.text(left + 20, y + 12, words, "small")
    drawing.height = int(y + 22)
    return drawing


def attention(path: Path) -> Drawing:
    """Draw which slot of a packed row may see which, by its segment ids."""
    feed = Feed(recipe_of(path, rows="packed", shuffle=False))
    batch = feed.batch(0)
    segments, positions = batch.segment_ids[1], batch.position_ids[1]
    documents = [segment.document or 0 for segment in feed.explain(0).rows[1].segments]
    unit, left, top = 17.0, 110.0, 40.0
    drawing = Drawing(480, 320)
    for slot, (segment, position) in enumerate(
        zip(segments.tolist(), positions.tolist(), strict=True)
    ):
        x = left + slot * unit
        drawing.text(x + unit / 2, 14, str(segment), "small", "middle")
        drawing.text(x + unit / 2, 30, str(position), "small", "middle")
        for seen in range(SEQ_LEN):
            allowed = seen <= slot and segment and segments[seen] == segment
            colour = f"h{documents[segment - 1] % 8}" if allowed else "pad"
            drawing.box(left + seen * unit, top + slot * unit, unit - 2, unit - 2, colour)
    drawing.text(left - 8, 14, "segment_ids", "small", "end")
    drawing.text(left - 8, 30, "position_ids", "small", "end")
    drawing.text(left - 8, top + 14, "may see →", "small", "end")
    drawing.height = int(top + SEQ_LEN * unit + 8)
    return drawing


def files() -> dict[str, str]:
    """Return every file that is drawn, by its path in docs/."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = small_store(folder)
        drawings = {
            "rows": rows(path),
            "order": order(path),
            "parts": parts(path),
            "mixture": mixture(),
            "phases": phases(),
            "masks": masks(folder),
            "attention": attention(path),
        }
    dark = f'[data-md-color-scheme="slate"]{{{declared(DARK)}}}'
    style = f"/* written by scripts/draw_docs.py */\n:root{{{declared(LIGHT)}}}\n{dark}\n{CLASSES}"
    made = {f"drawings/{name}.svg": drawing.svg() for name, drawing in drawings.items()}
    return {**made, "style/drawings.css": style}


def main() -> None:
    """Write what is drawn."""
    for name, text in files().items():
        path = ROOT / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
