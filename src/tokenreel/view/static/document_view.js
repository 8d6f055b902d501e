// A whole document: where it was read, where the run shows it, and its tokens; a chat is shown as the
// conversation it is, with the trained parts marked.

import { go, here, linkTo } from "./address.js";
import { ask, isExport, pathOf } from "./answers.js";
import { byId, counted, facts, grouped, make } from "./dom.js";
import { bigToken, watchTokens } from "./hover.js";
import { hitList } from "./panel.js";
import { markSteps } from "./reel.js";
import { CHUNK, DocumentSlots, documentBase } from "./slots.js";
import { Palette, chipsOf, spokenToken, tokenAt, tokenFacts } from "./tokens.js";
import { sourceName } from "./subject.js";
import { troubleCard, waitingLine } from "./trouble.js";
import { showText, textSpan } from "./visible.js";
import { VirtualList } from "./virtual.js";

const LINE_PX = 26;
const MOST_RECORD = 4000; // characters of what else is known of a document

/** The view of the document that the address names. */
export class DocumentView {
  constructor(host, about) {
    this.host = host;
    this.about = about;
    this.load();
  }

  end() {
    this.base = null; // answers that are still on their way are for nobody
    this.clear();
  }

  clear() {
    this.list?.end();
    this.unwatch?.();
    markSteps([]);
  }

  move(now, before) {
    const named = (state) => [state.source, state.document, state.store, state.split, state.target].join();
    if (named(now) !== named(before)) this.load();
    else if (now.slot !== before.slot) this.mark(now);
  }

  async load() {
    const now = here();
    const base = documentBase(now);
    this.base = base;
    if (!this.list) this.host.replaceChildren(waitingLine("Reading the document …"));
    try {
      this.slots = new DocumentSlots(base, 0, now.target);
      const first = await this.slots.load(0);
      if (base !== this.base) return;
      this.slots.tokens = first.tokens;
      this.draw(first);
      this.showWhere(now);
    } catch (trouble) {
      if (base === this.base) this.fail(trouble);
    }
  }

  fail(trouble) {
    this.clear();
    this.list = null;
    this.host.replaceChildren(documentNavigation(here(), null), troubleCard(trouble));
  }

  draw(first) {
    this.clear();
    scrollTo(0, 0);
    this.palette = new Palette(this.about, "loss");
    this.palette.linesBreak = true;
    this.where = make("section");
    this.token = make("section");
    this.text = make("div", { class: "document-text", role: "list", "aria-label": "Tokens of the document" });
    const aside = make("aside", { class: "panel document-panel", "aria-label": "About the document" },
      this.token, aboutDocument(first), this.where);
    this.host.replaceChildren(documentNavigation(here(), first),
      make("div", { class: "columns" }, make("section", { class: "column" }, this.text), aside));
    this.list = new VirtualList(this.text, {
      build: (item) => this.buildChunk(item),
      guess: () => LINE_PX * 14,
      inset: () => Math.max(0, byId("top").getBoundingClientRect().bottom),
    });
    const select = (chip) => go({ slot: Number(chip.dataset.slot) });
    this.unwatch = watchTokens(this.text, (chip) => this.tokenOf(chip), select);
    const items = [];
    for (let start = 0; start < first.tokens; start += CHUNK) items.push({ key: String(start), start });
    this.list.setItems(items);
    if (!items.length) this.text.replaceChildren(waitingLine("This document has no tokens."));
    this.mark(here());
    this.reveal();
  }

  buildChunk({ start }) {
    const element = make("div", { class: "document-chunk", role: "listitem" });
    const part = this.slots.here(start);
    if (part) this.fill(element, part, start);
    else {
      element.style.minHeight = `${LINE_PX * 14}px`;
      this.slots.load(start).then(
        (answer) => {
          this.fill(element, answer, start);
          if (here().slot >= start && here().slot < start + CHUNK) this.reveal();
        },
        (trouble) => element.replaceChildren(troubleCard(trouble)),
      );
    }
    return element;
  }

  // One block for each turn that reaches into the chunk; text outside turns is a block of its own.
  fill(element, part, chunk) {
    element.style.minHeight = "";
    const [start, stop] = [lineBorder(part, chunk), lineBorder(part, Math.min(chunk + CHUNK, part.stop))];
    const blocks = turnBlocks(part.turns, start, stop);
    element.replaceChildren(...blocks.map((block) => {
      const chips = make("div", { class: "chips" });
      chips.append(chipsOf(part, block.start, Math.min(block.stop, part.stop), this.palette));
      chips.tokens = part;
      return block.role === null ? chips : turnElement(block, chips);
    }));
    this.mark(here());
  }

  tokenOf(chip) {
    const holder = chip.closest(".chips");
    return holder?.tokens ? tokenAt(holder.tokens, Number(chip.dataset.slot)) : null;
  }

  mark({ slot }) {
    for (const chip of this.text.querySelectorAll(".chip.selected")) chip.classList.remove("selected");
    const chip = slot === null ? null : this.text.querySelector(`.chip[data-slot="${slot}"]`);
    chip?.classList.add("selected");
    const token = chip && this.tokenOf(chip);
    if (!token) return this.token.replaceChildren();
    byId("spoken").textContent = spokenToken(token);
    return this.token.replaceChildren(make("h3", { text: "token" }), bigToken(token), facts(tokenFacts(token)));
  }

  // The chosen token may be in a chunk that is not drawn yet, below chunks that are not measured yet.
  reveal(frames = 4) {
    const { slot } = here();
    if (slot === null || !this.list) return;
    const chip = this.text.querySelector(".chip.selected");
    if (chip) this.list.revealBox(chip.getBoundingClientRect());
    else this.list.reveal(String(slot - (slot % CHUNK)), 60);
    if (frames) requestAnimationFrame(() => this.reveal(frames - 1));
  }

  async showWhere({ source, document, target }) {
    if (source === null) return;
    const base = this.base;
    try {
      const answer = await ask(pathOf(`api/where/${source}/${document}`, {}, target));
      if (base !== this.base) return;
      this.where.replaceChildren(...hitList(answer, 40));
      markSteps(answer.hits.map((hit) => hit.step));
    } catch (trouble) {
      if (base === this.base && !isExport()) this.where.replaceChildren(troubleCard(trouble));
    }
  }
}

/** Return where the first line at or behind a token begins, so that no line is cut between chunks. */
function lineBorder(part, token) {
  if (token === part.start) return token;
  let border = token;
  while (border < part.stop && !part.texts[border - 1 - part.start]?.endsWith("\n")) border++;
  return border;
}

/** Return blocks {role|null, weight, start, stop, begins} that cover start to stop. */
function turnBlocks(turns, start, stop) {
  const blocks = [];
  let free = start;
  for (const turn of turns) {
    if (turn.stop <= start || turn.start >= stop) continue;
    const first = Math.max(start, turn.start);
    if (first > free) blocks.push({ role: null, start: free, stop: first });
    free = Math.min(stop, turn.stop);
    blocks.push({ role: turn.role, weight: turn.weight ?? 0, start: first, stop: free, begins: turn.start >= start });
  }
  if (free < stop) blocks.push({ role: null, start: free, stop });
  return blocks;
}

function turnElement(block, chips) {
  const label = make("div", { class: "role" });
  if (block.begins) {
    showText(label, block.role, 40);
    if (block.weight > 0) label.append(make("small", { text: "trained" }));
  }
  const names = `turn${block.weight > 0 ? " trained-turn" : ""}${block.begins ? "" : " goes-on"}`;
  return make("div", { class: names }, label, chips);
}

function aboutDocument(first) {
  const trained = first.weights.filter((weight) => weight > 0).length;
  const isWhole = first.ids.length === first.tokens;
  const section = make("section", {}, make("h3", { text: first.document === undefined ? "split" : "document" }), facts([
    ["number", first.document === undefined ? null : grouped(first.document)],
    ["source", first.source === undefined || first.source === null ? null : textSpan(sourceName(first.source))],
    ["split", first.split ? textSpan(first.split) : null],
    ["from", first.provenance && textSpan(first.provenance)],
    ["tokens", grouped(first.tokens)],
    ["trained", first.turns?.length && isWhole ? grouped(trained) : null],
    ["turns", first.turns?.length && isWhole ? grouped(first.turns.length) : null],
  ]));
  if (first.record) {
    section.append(make("h3", { text: "record" }),
      showText(make("pre", { class: "record" }), JSON.stringify(first.record, null, 1), MOST_RECORD));
  }
  return section;
}

function documentNavigation(now, first) {
  const name = now.document === null ? "tokens, end to end" : `document ${grouped(now.document)}`;
  const words = make("span", { text: name });
  if (now.source !== null) words.append(" of ", textSpan(sourceName(now.source)));
  const heading = make("h2", { class: "page-title" }, words);
  if (first) heading.append(make("small", { text: counted(first.tokens, "token") }));
  const step = (by, words, key) => {
    const href = linkTo({ document: Math.max(0, now.document + by), slot: null });
    return make("a", { class: "button", href, text: words, "data-key": key });
  };
  const back = now.source === null
    ? make("a", { class: "button", href: linkTo({ view: "store", slot: null }), text: "to the store" })
    : make("a", { class: "button", href: linkTo({ view: "batch", slot: null }), text: "to the batch" });
  return make("nav", { class: "page-bar", "aria-label": "Documents" }, heading,
    make("span", { class: "page-links" },
      now.document > 0 ? step(-1, "◀ previous", "p") : null,
      now.document === null ? null : step(1, "next ▶", "n"), back));
}
