// The batch of a step: rows of chips. A closed row shows its first lines; an open one all its slots,
// in chunks that are drawn and fetched as they come near the window.

import { go, here } from "./address.js";
import { ask, isExport } from "./answers.js";
import { counted, grouped, make, percent } from "./dom.js";
import { watchTokens } from "./hover.js";
import { startPanel } from "./panel.js";
import { CHUNK, FIRST_SLOTS, RowSlots, firstPath, stepPath } from "./slots.js";
import { Palette, chipsOf, tokenAt } from "./tokens.js";
import { batchBar } from "./batch_bar.js";
import { sourceHue, sourceName } from "./subject.js";
import { troubleCard } from "./trouble.js";
import { textSpan } from "./visible.js";
import { VirtualList } from "./virtual.js";

const LINE_PX = 25;
const CHARACTER_PX = 7.6;
const CLOSED_LINES = 3;

/** The view of a step's batch; `about` is what api/target answered. */
export class BatchView {
  constructor(host, about) {
    this.about = about;
    this.summary = null;
    this.palette = new Palette(about, here().colour);
    this.tokenPx = 4.2 * CHARACTER_PX; // a token's mean width, learned from what was drawn
    this.bar = batchBar(about);
    this.rows = make("div", { class: "rows", role: "list", "aria-label": "Rows of the batch" });
    this.crumb = make("button", { class: "crumb", type: "button", hidden: true, onclick: () => this.toCrumb() });
    this.panel = startPanel(about, (row) => this.slotsOf(row));
    this.column = make("section", { class: "column", "aria-label": "Batch" }, this.crumb, this.rows);
    host.replaceChildren(this.bar.element, make("div", { class: "columns" }, this.column, this.panel.element));
    this.list = new VirtualList(this.rows, {
      build: (item) => this.build(item),
      guess: (item) => this.guess(item),
      inset: () => this.inset(),
      foot: () => this.panel.covers(),
      moved: () => this.placeCrumb(),
    });
    this.barSize = new ResizeObserver(() =>
      document.body.style.setProperty("--bar-height", `${this.bar.element.offsetHeight}px`));
    this.barSize.observe(this.bar.element);
    this.unwatch = watchTokens(this.rows, (chip) => this.tokenOf(chip), (chip) => this.select(chip));
    this.move(here(), null);
  }

  end() {
    this.hasEnded = true;
    clearTimeout(this.ahead);
    this.list.end();
    this.panel.end();
    this.barSize.disconnect();
    this.unwatch();
  }

  /** Follow the address. Steps that come faster than answers are left out, the last one never. */
  move(now, before) {
    const data = (state) => state && [state.step, state.ranks, state.target, state.token].join();
    this.bar.update(now);
    if (now.row !== null && (now.row !== before?.row || now.slot !== before.slot)) this.wantsReveal = true;
    if (now.colour !== this.palette.colour) this.palette = new Palette(this.about, now.colour);
    if (data(now) !== data(before)) return this.load();
    if (!this.summary) return undefined;
    if (now.colour !== before.colour || now.rank !== before.rank || now.open !== before.open) {
      this.draw(now.colour === before.colour ? (key) => this.staysAsIs(key, now, before) : undefined);
    }
    if (now.row !== before.row || now.slot !== before.slot) {
      this.mark(now);
      this.reveal(now);
    }
    return undefined;
  }

  staysAsIs(key, now, before) {
    const row = key.split(":")[0];
    const isOpen = (state) => state.open.split(",").includes(row);
    return isOpen(now) === isOpen(before);
  }

  async load() {
    if (this.loading) {
      this.again = true;
      return;
    }
    this.loading = true;
    const { step, ranks, target } = here();
    try {
      const seen = isExport() ? [] : this.seenPaths(step, target);
      const [summary] = await Promise.all([ask(stepPath(step, ranks, target)), ...seen.map(ask)]);
      if (this.hasEnded) return;
      this.summary = summary;
      this.taken = { step, target };
      this.draw();
      this.mark(here());
      if (this.wantsReveal) this.reveal(here());
      if (here().token !== null) this.seek(here());
      this.lookAhead(step, ranks, target);
    } catch (trouble) {
      if (!this.hasEnded) this.fail(trouble);
    } finally {
      this.loading = false;
      if (this.again && !this.hasEnded) {
        this.again = false;
        this.load();
      }
    }
  }

  // Go to the slot that shows a token of a document: where a document is shown is told by its tokens.
  async seek({ row, source, document, token }) {
    const nowhere = { source: null, document: null, token: null };
    if (row === null || row >= this.summary.rows.length) return go(nowhere, { replace: true });
    const segments = await this.slotsOf(row).segments();
    const found = segments.find((one) =>
      one.source === source && one.document === document && one.from <= token && token < one.to);
    return go({ ...nowhere, slot: found ? found.start + token - found.from : null }, { replace: true });
  }

  /** Return the first row in the window. */
  firstRow() {
    return this.list.firstSeen()?.row ?? here().row ?? 0;
  }

  // What must be here before a step is drawn, so that no row in the window is drawn empty.
  seenPaths(step, target) {
    const rows = [this.firstRow(), this.list.lastSeen()?.row ?? this.firstRow()];
    return [...new Set(rows.map((row) => firstPath(step, row, target)))];
  }

  fail(trouble) {
    this.summary = null;
    this.list.setItems([]);
    this.rows.style.height = "";
    this.rows.replaceChildren(troubleCard(trouble));
    this.panel.clear();
  }

  // The neighbours of a step are asked for when nothing else is: arrow keys find them here.
  lookAhead(step, ranks, target) {
    clearTimeout(this.ahead);
    if (isExport()) return;
    this.ahead = setTimeout(() => {
      for (const near of [step + 1, step - 1]) {
        if (near < 0 || (this.about.steps !== null && near >= this.about.steps)) continue;
        for (const path of [stepPath(near, ranks, target), ...this.seenPaths(near, target)]) {
          ask(path).catch(() => {}); // said when the step is gone to
        }
      }
    }, 120);
  }

  draw(keep) {
    if (!this.list.items.length) this.rows.replaceChildren();
    const focused = document.activeElement?.closest?.(".row")?.dataset.row;
    this.list.setItems(this.itemsOf(here()), keep);
    // A row that is built anew keeps the focus, which its button had.
    const button = focused && this.rows.querySelector(`.row[data-row="${focused}"] .row-name`);
    if (button && !this.rows.contains(document.activeElement)) button.focus({ preventScroll: true });
  }

  itemsOf({ rank, open }) {
    const opened = new Set(open.split(",").filter(Boolean).map(Number));
    const items = [];
    for (const about of this.summary.rows) {
      if (this.about.exported && !this.about.exported.rows.includes(about.row)) continue;
      if (rank !== null && about.rank !== rank) continue;
      const isOpen = opened.has(about.row);
      items.push({ key: `${about.row}:head`, row: about.row, about, isOpen, chunk: null });
      if (!isOpen) continue;
      for (let start = 0; start < this.about.seq_len; start += CHUNK) {
        items.push({ key: `${about.row}:${start}`, row: about.row, about, isOpen, chunk: start });
      }
    }
    return items;
  }

  slotsOf(row) {
    return new RowSlots(this.taken.step, row, this.about.seq_len, this.taken.target);
  }

  guess({ chunk, isOpen }) {
    if (chunk === null) return isOpen ? 38 : 56 + CLOSED_LINES * LINE_PX;
    const width = Math.max(200, this.rows.clientWidth - 90);
    return Math.ceil((Math.min(CHUNK, this.about.seq_len - chunk) * this.tokenPx) / width) * LINE_PX + 8;
  }

  build(item) {
    return item.chunk === null ? this.buildHead(item) : this.buildChunk(item);
  }

  buildHead({ row, about, isOpen }) {
    const toggle = () => this.toggle(row);
    const head = rowHead(about, { isOpen, numRanks: here().ranks, about: this.about, toggle });
    const names = `row${isOpen ? " open" : ""}${row === here().row ? " current" : ""}`;
    const element = make("article", { class: names, role: "listitem", "data-row": row }, head);
    element.setAttribute("aria-label", `row ${row}`);
    if (!isOpen) element.append(this.fillLater(row, 0, Math.min(FIRST_SLOTS, this.about.seq_len), true));
    return element;
  }

  buildChunk({ row, chunk }) {
    const stop = Math.min(chunk + CHUNK, this.about.seq_len);
    const number = make("span", { class: "slot-number", text: grouped(chunk), "aria-hidden": "true" });
    const names = stop === this.about.seq_len ? "chunk last" : "chunk";
    const chips = this.fillLater(row, chunk, stop, false);
    return make("div", { class: names, role: "none", "data-row": row }, number, chips);
  }

  // Return an element for the chips of these slots, which gets them now or when they have come.
  fillLater(row, start, stop, isClosed) {
    const element = make("div", { class: `chips${isClosed ? " closed" : ""}`, "data-row": row });
    const slots = this.slotsOf(row);
    const part = slots.here(start, stop);
    if (part) this.fill(element, part, start, stop, isClosed);
    else {
      element.classList.add("waiting");
      element.style.minHeight = `${isClosed ? CLOSED_LINES * LINE_PX : this.guess({ chunk: start }) - 8}px`;
      slots.load(start, stop).then(
        (answer) => this.fill(element, answer, start, stop, isClosed),
        (trouble) => element.replaceChildren(troubleCard(trouble)),
      );
    }
    return element;
  }

  fill(element, part, start, stop, isClosed) {
    const last = isClosed ? this.lastInLines(part, stop) : stop;
    element.classList.remove("waiting");
    element.style.minHeight = "";
    element.replaceChildren(chipsOf(part, start, Math.min(last, part.stop), this.palette));
    element.tokens = part;
    this.markIn(element, here());
    if (this.wantsChip) requestAnimationFrame(() => this.revealChip());
  }

  // Slots that surely fill the lines of a closed row; and the mean width of a token, for guesses.
  lastInLines(part, stop) {
    const room = ((this.rows.clientWidth || 900) / CHARACTER_PX) * (CLOSED_LINES + 0.5);
    let used = 0;
    let slot = 0;
    while (slot < stop && used < room) used += (part.texts?.[slot++]?.length ?? 3) + 0.2;
    if (slot > 20) this.tokenPx = 0.9 * this.tokenPx + (0.1 * CHARACTER_PX * used) / slot;
    return slot;
  }

  tokenOf(chip) {
    const holder = chip.closest(".chips");
    const token = holder?.tokens && tokenAt(holder.tokens, Number(chip.dataset.slot));
    return token && { ...token, row: Number(holder.dataset.row) };
  }

  select(chip) {
    this.wantsChip = false;
    go({ row: Number(chip.closest(".chips").dataset.row), slot: Number(chip.dataset.slot) });
  }

  /** Open a row, or close it. */
  toggle(row, how = {}) {
    const open = new Set(here().open.split(",").filter(Boolean).map(Number));
    if (!open.delete(row)) open.add(row);
    go({ row, open: [...open].sort((a, b) => a - b).join(",") }, how);
  }

  mark(now) {
    for (const element of this.rows.querySelectorAll(".row")) {
      element.classList.toggle("current", Number(element.dataset.row) === now.row);
    }
    for (const element of this.rows.querySelectorAll(".chips")) this.markIn(element, now);
    this.panel.show(now, this.summary);
  }

  markIn(element, { row, slot }) {
    const before = element.querySelector(".chip.selected");
    const isHere = Number(element.dataset.row) === row && slot !== null;
    const chip = isHere ? chipAt(element, slot) : null;
    if (before !== chip) before?.classList.remove("selected");
    chip?.classList.add("selected");
  }

  /** Bring the chosen row, and its chosen slot, into the window; a closed row is opened for it. */
  reveal({ row, slot }) {
    this.wantsReveal = false;
    if (row === null) return;
    const isOpen = () => here().open.split(",").includes(String(row));
    if (!isOpen()) this.list.reveal(`${row}:head`);
    if (slot === null) return;
    const chip = this.rows.querySelector(".chip.selected");
    if (!isOpen() && (!chip || chip.offsetTop > CLOSED_LINES * LINE_PX)) this.toggle(row, { replace: true });
    if (isOpen()) this.list.reveal(`${row}:${slot - (slot % CHUNK)}`, 60);
    this.wantsChip = true;
    this.revealChip();
  }

  // Chunks above the chip are measured in the next frames, and its own chips may be on their way.
  revealChip(frames = 3) {
    const chip = this.rows.querySelector(".chip.selected");
    if (!this.wantsChip || !chip) return;
    this.list.revealBox(chip.getBoundingClientRect());
    if (frames) requestAnimationFrame(() => this.revealChip(frames - 1));
    else this.wantsChip = false;
  }

  inset() {
    return Math.max(0, this.bar.element.getBoundingClientRect().bottom);
  }

  placeCrumb() {
    const item = this.list.firstSeen();
    const isInside = item && item.chunk !== null;
    this.crumb.hidden = !isInside;
    this.crumbRow = item?.row;
    if (!isInside) return;
    const place = `from slot ${grouped(item.chunk)} of ${grouped(this.about.seq_len)}`;
    this.crumb.textContent = `row ${item.row} · ${place} · close`;
  }

  toCrumb() {
    this.toggle(this.crumbRow);
    this.list.reveal(`${this.crumbRow}:head`);
  }
}

function chipAt(element, slot) {
  const exact = element.querySelector(`.chip[data-slot="${slot}"]`);
  if (exact) return exact;
  return [...element.querySelectorAll(".chip.padding")].find(
    (chip) => Number(chip.dataset.slot) <= slot && slot < Number(chip.dataset.stop)) ?? null;
}

/** Return the line above a row's tokens: what it is, in words. */
function rowHead(row, { isOpen, numRanks, about, toggle }) {
  const dot = make("span", { class: `swatch hue-${sourceHue(row.source)}`, "aria-hidden": "true" });
  const button = make("button", {
    class: "row-name", type: "button", text: `row ${row.row}`, onclick: toggle,
    "aria-expanded": isOpen ? "true" : "false",
  });
  const source = make("span", { class: "source" }, dot, textSpan(sourceName(row.source)));
  return make("h2", {}, button, source,
    numRanks > 1 ? make("span", { text: `rank ${row.rank}` }) : null,
    about.grad_accum > 1 ? make("span", { text: `microbatch ${row.microbatch}` }) : null,
    row.epoch === null ? null : make("span", { text: `epoch ${row.epoch}` }),
    make("span", { text: counted(row.segments, "segment") }),
    make("span", { text: `${grouped(row.trained)} trained of ${grouped(about.seq_len)}` }),
    make("span", { text: `${percent(row.used / about.seq_len)} filled` }),
    row.provenance ? textSpan(row.provenance, "origin") : null);
}
