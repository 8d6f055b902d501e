// The batch in a notebook: a slider over the steps, and rows of one of them as chips. There is no
// server: questions go to Python through the notebook, and its answers come back the same way.

import { counted, facts, grouped, make, percent } from "./dom.js";
import { sourceHue, sourceName } from "./subject.js";
import { COLOURS, Palette, chipsOf, tokenAt, tokenFacts } from "./tokens.js";
import { textSpan } from "./visible.js";

const SVG = "http://www.w3.org/2000/svg";
const MORE_ROWS = 8;
const BANDS = 100; // units of the height of all bands

/** Called by the notebook for each place that shows the widget. */
export function render({ model, el }) {
  const pane = new BatchPane(model);
  el.append(pane.host);
  return () => pane.end();
}

class BatchPane {
  constructor(model) {
    this.model = model;
    this.about = model.get("about");
    this.last = this.about.steps === null ? Number.MAX_SAFE_INTEGER : this.about.steps - 1;
    this.numRows = model.get("num_rows");
    this.asked = new Map();
    this.name = Math.random().toString(36).slice(2); // of this place, among others of the widget
    // A tree of its own: the notebook's style does not reach into it, and ours not out of it.
    this.host = make("div", { class: "tokenreel" });
    this.root = this.host.attachShadow({ mode: "open" });
    this.root.append(make("style", { text: model.get("look") }), this.build());
    this.takeAnswer = (message) => this.take(message);
    this.followStep = () => this.go(model.get("step"));
    this.followColour = () => this.recolour(model.get("colour"));
    model.on("msg:custom", this.takeAnswer);
    model.on("change:step", this.followStep);
    model.on("change:colour", this.followColour);
    this.recolour(model.get("colour"));
    this.go(model.get("step"));
  }

  end() {
    this.model.off("msg:custom", this.takeAnswer);
    this.model.off("change:step", this.followStep);
    this.model.off("change:colour", this.followColour);
  }

  build() {
    this.field = make("input", {
      class: "field", type: "number", min: 0, max: this.about.steps === null ? null : this.last,
      "aria-label": "step", onchange: () => this.go(Number(this.field.value)),
    });
    this.slider = make("input", {
      class: "slider", type: "range", min: 0, max: Math.max(this.about.reel.borders.at(-1) - 1, 0),
      "aria-label": "step", oninput: () => this.go(Number(this.slider.value)),
    });
    const back = make("button", { type: "button", text: "◀", "aria-label": "step back", onclick: () => this.go(this.wanted - 1) });
    const on = make("button", { type: "button", text: "▶", "aria-label": "step on", onclick: () => this.go(this.wanted + 1) });
    const end = this.about.steps === null ? "without end" : `of ${grouped(this.about.steps)}`;
    this.colours = COLOURS.map((colour) =>
      make("button", { type: "button", text: colour, "data-colour": colour, onclick: () => this.choose(colour) }));
    this.told = make("span", { class: "told", "aria-live": "polite" });
    this.legend = make("div", { class: "chip-legend" });
    this.rows = make("div", { class: "rows" });
    this.token = make("div", { class: "token", hidden: true });
    this.more = make("button", { class: "more", type: "button", hidden: true, onclick: () => this.showMore() });
    this.rows.addEventListener("pointerover", (event) => this.pointAt(event.target));
    this.rows.addEventListener("click", (event) => this.select(event.target.closest?.(".chip")));
    this.rows.addEventListener("keydown", (event) => this.walk(event));
    return make("div", { class: "pane" },
      make("div", { class: "bar" }, back, this.field, on, make("span", { class: "soft", text: end }),
        make("div", { class: "choice", role: "group", "aria-label": "colour by" }, ...this.colours), this.told),
      make("div", { class: "reel" }, this.drawReel(), this.slider),
      this.legend, this.rows, this.more, this.token);
  }

  /** Ask Python, and return a promise of its answer. */
  ask(question) {
    const number = `${this.name}:${this.asked.size}`;
    return new Promise((resolve) => {
      this.asked.set(number, resolve);
      this.model.send({ ...question, number });
    });
  }

  take(message) {
    const resolve = this.asked.get(message?.number);
    if (!resolve) return; // the question of another place
    this.asked.set(message.number, null);
    resolve(message);
  }

  /** Go to a step. Steps that come faster than answers are left out, the last one never. */
  go(step) {
    if (!Number.isFinite(step)) step = this.wanted ?? 0;
    this.wanted = Math.min(Math.max(Math.trunc(step), 0), this.last);
    this.field.value = this.wanted;
    this.slider.value = this.wanted;
    this.needle.setAttribute("d", `M${this.wanted + 0.5} 0V${BANDS}`);
    if (!this.busy) this.load();
  }

  async load() {
    this.busy = true;
    while (this.shown !== this.wanted || this.numShown !== this.numRows) {
      const [step, rows] = [this.wanted, this.numRows];
      const answer = await this.ask({ ask: "step", step, rows });
      [this.shown, this.numShown] = [step, rows];
      if (answer.error) this.fail(answer.error);
      else this.draw(answer);
    }
    this.busy = false;
    if (this.model.get("step") !== this.shown) {
      this.model.set("step", this.shown);
      this.model.save_changes();
    }
  }

  fail(error) {
    this.answer = null;
    this.told.textContent = "";
    this.more.hidden = true;
    this.token.hidden = true;
    this.rows.replaceChildren(make("p", { class: "trouble", role: "alert" }, textSpan(error.message)));
  }

  draw(answer) {
    this.answer = answer;
    const { summary } = answer;
    this.told.textContent = `${percent(summary.filled)} filled, ${grouped(summary.trained)} trained of ${grouped(summary.slots)}`;
    this.rows.replaceChildren(...summary.rows.map((row, index) => this.rowElement(row, answer.parts[index])));
    const left = this.about.batch_rows - summary.rows.length;
    this.more.hidden = left <= 0;
    this.more.textContent = `… and ${counted(left, "more row")}`;
    this.token.hidden = true;
  }

  rowElement(row, part) {
    const swatch = make("span", { class: `swatch hue-${sourceHue(row.source, this.about)}`, "aria-hidden": "true" });
    const source = make("span", {}, swatch, " ", textSpan(sourceName(row.source, this.about)));
    const head = make("div", { class: "label" },
      make("b", { text: `row ${row.row}` }), source,
      row.epoch === null ? null : make("span", { text: `epoch ${row.epoch}` }),
      make("span", { text: counted(row.segments, "segment") }),
      make("span", { text: `${grouped(row.trained)} trained` }),
      row.provenance ? textSpan(row.provenance) : null);
    const chips = make("div", { class: "chips", tabindex: 0, "aria-label": `tokens of row ${row.row}` });
    this.addPart(chips, part);
    return make("article", { class: "row" }, head, chips);
  }

  // Put the chips of some slots behind those that are there, and a button if slots are left.
  addPart(chips, part) {
    const slots = make("span", { class: "slots" });
    slots.tokens = part;
    slots.append(chipsOf(part, part.start, part.stop, this.palette));
    chips.append(slots);
    if (part.stop >= part.width) return;
    const more = make("button", { type: "button", class: "more", text: `… ${counted(part.width - part.stop, "more slot")}` });
    more.addEventListener("click", async (event) => {
      event.stopPropagation();
      more.disabled = true;
      const answer = await this.ask({ ask: "row", step: this.shown, row: part.row, start: part.stop });
      more.remove();
      if (answer.error) this.fail(answer.error);
      else this.addPart(chips, answer.part);
    });
    chips.append(more);
  }

  showMore() {
    this.numRows += MORE_ROWS;
    if (!this.busy) this.load();
  }

  choose(colour) {
    this.model.set("colour", colour);
    this.model.save_changes();
    this.recolour(colour);
  }

  recolour(colour) {
    if (this.palette?.colour === colour) return;
    this.palette = new Palette(this.about, colour);
    for (const button of this.colours) button.setAttribute("aria-pressed", button.dataset.colour === colour);
    const kinds = this.palette.legend().map(([css, word, meaning]) =>
      make("span", {}, css ? make("span", { class: css }, textSpan(word)) : null, meaning ? ` ${meaning}` : ""));
    this.legend.replaceChildren(...kinds);
    for (const slots of this.rows.querySelectorAll(".slots")) {
      slots.replaceChildren(chipsOf(slots.tokens, slots.tokens.start, slots.tokens.stop, this.palette));
    }
  }

  // What is pointed at is told, until a token is chosen; then that one is, until it is let go.
  pointAt(target) {
    const chip = target.closest?.(".chip[data-slot]");
    if (chip && !this.rows.querySelector(".chip.selected")) this.tell(chip);
  }

  select(chip) {
    const before = this.rows.querySelector(".chip.selected");
    before?.classList.remove("selected");
    if (!chip?.dataset.slot || chip === before) return;
    chip.classList.add("selected");
    this.tell(chip);
  }

  tell(chip) {
    const { tokens } = chip.closest(".slots");
    const token = tokenAt(tokens, Number(chip.dataset.slot));
    if (!token) return;
    const { segment } = token;
    const from = segment?.provenance ? textSpan(segment.provenance) : null;
    const known = segment && segment.document !== null;
    const text = token.text === null ? null : textSpan(JSON.stringify(token.text));
    const pairs = [["text", text], ...tokenFacts(token), ["document", known ? grouped(segment.document) : null], ["from", from]];
    this.token.replaceChildren(facts(pairs));
    this.token.hidden = false;
  }

  // Arrow keys go from token to token of the row that has the focus.
  walk(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const row = event.target.closest?.(".chips");
    if (!step || !row) return;
    event.preventDefault();
    const chips = [...row.querySelectorAll(".chip[data-slot]")];
    const at = chips.findIndex((chip) => chip.classList.contains("selected"));
    const next = chips[at < 0 ? 0 : Math.min(Math.max(at + step, 0), chips.length - 1)];
    if (next && !next.classList.contains("selected")) this.select(next);
    next?.scrollIntoView({ block: "nearest" });
  }

  /** Return the shares of sources over the steps as bands, with marks and the needle. */
  drawReel() {
    const { borders, shares, marks } = this.about.reel;
    const [first, stop] = [borders[0], borders.at(-1)];
    const picture = shape("svg", { viewBox: `${first} 0 ${stop - first} ${BANDS}`, preserveAspectRatio: "none", class: "bands", role: "img" });
    picture.setAttribute("aria-label", "shares of the sources over the steps");
    let above = new Array(borders.length - 1).fill(0);
    shares.forEach((share, source) => {
      const below = above.map((edge, column) => edge + share[column] * BANDS);
      const corners = (edges) => edges.flatMap((y, column) => [[borders[column], y], [borders[column + 1], y]]);
      const points = [...corners(above), ...corners(below).reverse()].map(([x, y]) => `${x} ${y.toFixed(2)}`);
      picture.append(shape("path", { class: `hue-${sourceHue(source, this.about)}`, d: `M${points.join("L")}Z` }));
      above = below;
    });
    for (const mark of marks.filter(({ kind }) => kind === "phase" || kind === "change")) {
      const line = shape("path", { class: "mark", d: `M${mark.step} 0V${BANDS}` });
      const title = shape("title", {});
      title.append(`step ${mark.step}: ${mark.text}`);
      line.append(title);
      picture.append(line);
    }
    this.needle = shape("path", { class: "needle" });
    picture.append(this.needle);
    return picture;
  }
}

function shape(tag, parts) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(parts)) element.setAttribute(name, value);
  return element;
}
