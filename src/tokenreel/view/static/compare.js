// Two targets side by side: what differs in what they are, the first step whose batch differs, and
// the rows of this step that do, from the first slot that differs.

import { here, linkTo } from "./address.js";
import { ask } from "./answers.js";
import { grouped, make } from "./dom.js";
import { CHUNK, RowSlots } from "./slots.js";
import { Palette, chipsOf, tokenAt } from "./tokens.js";
import { watchTokens } from "./hover.js";
import { troubleCard, waitingLine } from "./trouble.js";
import { showText, textSpan } from "./visible.js";

const ROWS_AT_ONCE = 12;

export class CompareView {
  constructor(host, about) {
    this.about = about;
    this.what = make("section", { class: "compare-what" }, waitingLine("Comparing …"));
    this.step = make("section", { class: "compare-step" });
    host.replaceChildren(make("div", { class: "compare" }, this.what, this.step));
    this.unwatch = watchTokens(this.step, tokenOf, () => {});
    this.loadWhat();
    this.loadStep();
  }

  end() {
    this.unwatch(); // late answers fill parts that are in no page
  }

  move(now, before) {
    if (now.step !== before.step) this.loadStep();
  }

  async loadWhat() {
    try {
      this.drawWhat(await ask("api/compare"));
    } catch (trouble) {
      this.what.replaceChildren(troubleCard(trouble));
    }
  }

  drawWhat({ titles, same, differences, first_step: first, searched }) {
    const rows = differences.map(({ field, a, b }) => make("tr", {},
      make("th", { scope: "row" }, textSpan(field)), make("td", {}, valueText(a)), make("td", {}, valueText(b))));
    const table = make("table", {}, make("thead", {}, make("tr", {}, make("th", { text: "what differs", scope: "col" }),
      ...titles.map((title) => make("th", { scope: "col" }, textSpan(title))))), make("tbody", {}, ...rows));
    const verdict = make("p", { class: "verdict" });
    if (first !== null) {
      const link = make("a", { class: "hit", href: linkTo({ step: first }), text: `step ${grouped(first)}` });
      verdict.append("The first step whose batch differs is ", link, ".");
    } else if (same) verdict.append("Both are the same: they give the same batches.");
    else if (searched) verdict.append(`No batch differs in the first ${grouped(searched)} steps.`);
    this.what.replaceChildren(make("h2", { class: "page-title", text: "What differs?" }), verdict,
      rows.length ? make("div", { class: "scroll" }, table) : "");
  }

  async loadStep() {
    if (this.about.steps === null && !this.about.sources.length) return;
    const { step } = here();
    try {
      const answer = await ask(`api/compare/step/${step}`);
      if (step === here().step) this.drawStep(step, answer);
    } catch (trouble) {
      if (step === here().step) this.step.replaceChildren(troubleCard(trouble));
    }
  }

  drawStep(step, answer) {
    const differing = answer.rows.filter((row) => !row.same);
    const words = differing.length
      ? `Step ${grouped(step)}: ${grouped(differing.length)} of ${grouped(answer.rows.length)} rows differ.`
      : `Step ${grouped(step)}: every row is the same.`;
    this.step.replaceChildren(make("h2", { class: "page-title", text: words }), rowMap(answer.rows));
    this.addRows(step, differing, 0);
  }

  addRows(step, differing, from) {
    for (const row of differing.slice(from, from + ROWS_AT_ONCE)) this.step.append(this.rowPair(step, row));
    const rest = differing.length - from - ROWS_AT_ONCE;
    if (rest <= 0) return;
    const more = make("button", { type: "button", class: "more", text: `${grouped(rest)} more rows differ` });
    more.addEventListener("click", () => {
      more.remove();
      this.addRows(step, differing, from + ROWS_AT_ONCE);
    });
    this.step.append(more);
  }

  rowPair(step, { row, first_slot: first, fields }) {
    const head = make("h3", {}, make("b", { text: `row ${row}` }));
    if (first !== null) head.append(make("span", { text: `from slot ${grouped(first)}` }));
    if (fields.length) head.append(make("span", { text: fields.join(", ") }));
    const sides = [0, 1].map((target) => this.side(step, row, first ?? 0, target));
    return make("article", { class: "pair" }, head, make("div", { class: "sides" }, ...sides));
  }

  side(step, row, first, target) {
    const chips = make("div", { class: "chips waiting", "data-row": row });
    const start = Math.max(0, first - (first % CHUNK));
    const slots = new RowSlots(step, row, this.about.seq_len, target);
    slots.load(start, start + CHUNK).then((part) => {
      chips.classList.remove("waiting");
      chips.tokens = part;
      chips.append(chipsOf(part, start, Math.min(start + CHUNK, part.stop), new Palette(this.about, "loss")));
      chips.querySelector(`.chip[data-slot="${first}"]`)?.classList.add("selected");
    }, (trouble) => chips.replaceChildren(troubleCard(trouble)));
    const title = make("h4", {}, showText(make("span"), `${"AB"[target]} · ${this.about.targets[target].title}`));
    return make("div", { class: "side" }, title, chips);
  }
}

function tokenOf(chip) {
  const holder = chip.closest(".chips");
  return holder?.tokens ? tokenAt(holder.tokens, Number(chip.dataset.slot)) : null;
}

// One mark a row: filled where it differs. Told in words above.
function rowMap(rows) {
  return make("div", { class: "row-map", "aria-hidden": "true" },
    ...rows.map(({ row, same }) => {
      const word = same ? "same" : "differs";
      return make("i", { class: word, title: `row ${row}: ${word}` });
    }));
}

function valueText(value) {
  if (value === null || value === undefined) return make("span", { class: "quiet", text: "none" });
  return textSpan(typeof value === "object" ? JSON.stringify(value) : String(value));
}
