// The panel at the side: the chosen token, its document, where the document is shown, what the token
// sees, and the packing of the step.

import { go, here, linkTo } from "./address.js";
import { ask, isExport, pathOf } from "./answers.js";
import { attentionCanvas, attentionWords, drawAttention } from "./attention.js";
import { byId, counted, facts, grouped, make, percent } from "./dom.js";
import { bigToken } from "./hover.js";
import { drawPacking, isSorted, packingCanvas, segmentWords } from "./packing.js";
import { markSteps } from "./reel.js";
import { CHUNK } from "./slots.js";
import { sourceHue, sourceName } from "./subject.js";
import { spokenToken, tokenAt, tokenFacts } from "./tokens.js";
import { onTheme } from "./theme.js";
import { troubleCard } from "./trouble.js";
import { showText, textSpan } from "./visible.js";

const FIRST_HITS = 6;

/** Return the panel: {element, show(state, summary), clear(), end()}. */
export function startPanel(about, slotsOf) {
  return new Panel(about, slotsOf);
}

class Panel {
  constructor(about, slotsOf) {
    this.about = about;
    this.slotsOf = slotsOf;
    this.token = make("section");
    this.document = make("section");
    this.where = make("section");
    this.sees = make("section");
    this.step = make("section");
    const close = make("button", { class: "close", type: "button", text: "close", onclick: () => go({ slot: null }) });
    this.element = make("aside", { class: "panel", "aria-label": "Details" },
      close, this.token, this.document, this.where, this.sees, this.step);
    this.shown = "";
    this.whereOf = "";
    this.offTheme = onTheme(() => this.again());
  }

  end() {
    this.offTheme();
    markSteps([]);
  }

  /** Return how much of the window's foot the panel covers: on a phone it lies over the rows. */
  covers() {
    return getComputedStyle(this.element).position === "fixed" ? this.element.offsetHeight : 0;
  }

  clear() {
    for (const section of [this.token, this.document, this.where, this.sees, this.step]) section.replaceChildren();
  }

  again() {
    if (this.summary && this.element.isConnected) this.show(here(), this.summary);
  }

  async show(now, summary) {
    this.summary = summary;
    this.element.classList.toggle("has-token", now.slot !== null);
    this.showStep(summary, now.row);
    const turn = (this.turn = {});
    if (now.row === null || now.slot === null || now.slot >= this.about.seq_len || now.row >= summary.rows.length) {
      return this.showNothing(now);
    }
    const slots = this.slotsOf(now.row);
    const start = now.slot - (now.slot % CHUNK);
    try {
      const part = slots.here(start, start + CHUNK) ?? (await slots.load(start, start + CHUNK));
      if (turn !== this.turn) return undefined;
      const token = tokenAt(part, now.slot);
      if (!token) return this.showNothing(now); // behind what an exported file holds of the row
      this.showToken(token, now);
      this.showDocument(token);
      this.showSees(slots, now, turn);
    } catch (trouble) {
      if (turn === this.turn) this.token.replaceChildren(troubleCard(trouble));
    }
    return undefined;
  }

  showNothing(now) {
    this.token.replaceChildren(
      make("h3", { text: "token" }),
      make("p", { class: "quiet", text: "Choose a token: click it, or press Shift and an arrow key." }));
    this.document.replaceChildren();
    this.where.replaceChildren();
    this.whereOf = "";
    markSteps([]);
    if (now.row === null) this.sees.replaceChildren();
    else this.showSees(this.slotsOf(now.row), now, this.turn);
  }

  showToken(token, now) {
    const head = make("h3", { text: `token in row ${grouped(now.row)}` });
    this.token.replaceChildren(head, bigToken(token), facts(tokenFacts(token)));
    if (this.shown !== `${now.step}.${now.row}.${now.slot}`) byId("spoken").textContent = spokenToken(token);
    this.shown = `${now.step}.${now.row}.${now.slot}`;
  }

  showDocument(token) {
    const { segment } = token;
    if (!segment || segment.document === null || segment.document === undefined) {
      this.document.replaceChildren();
      this.where.replaceChildren();
      this.whereOf = "";
      return;
    }
    const head = make("h3", {}, `document ${grouped(segment.document)} of `, textSpan(sourceName(segment.source)));
    const link = make("a", { class: "more", text: "the whole document", href: linkTo(documentState(segment)) });
    const slots = `slots ${grouped(segment.start)} to ${grouped(segment.stop)}`;
    this.document.replaceChildren(head, facts([
      ["from", segment.provenance && textSpan(segment.provenance)],
      ["tokens", `${grouped(segment.from)} to ${grouped(segment.to)} are in ${slots}`],
    ]), link);
    this.showWhere(segment);
  }

  async showWhere({ source, document }) {
    const path = pathOf(`api/where/${source}/${document}`, {}, here().target);
    if (path === this.whereOf) return;
    this.whereOf = path;
    this.where.replaceChildren(make("h3", { text: "shown at" }), make("p", { class: "quiet", text: "looking …" }));
    try {
      const answer = await ask(path);
      if (path !== this.whereOf) return;
      this.where.replaceChildren(...hitList(answer, FIRST_HITS));
      markSteps(answer.hits.map((hit) => hit.step));
    } catch (trouble) {
      if (path === this.whereOf) {
        this.where.replaceChildren(make("h3", { text: "shown at" }),
          isExport() ? make("p", { class: "quiet", text: "Not in this exported file." }) : troubleCard(trouble));
      }
    }
  }

  async showSees(slots, now, turn) {
    try {
      const segments = await slots.segments();
      if (turn !== this.turn) return;
      const width = this.about.seq_len;
      const canvas = attentionCanvas();
      const words = attentionWords(segments, now.slot, width);
      canvas.setAttribute("aria-label", words);
      const head = make("h3", { text: `attention in row ${now.row}` });
      this.sees.replaceChildren(head, canvas, make("p", { class: "quiet", text: words }));
      const source = this.summary.rows[now.row]?.source;
      drawAttention(canvas, { segments, width, slot: now.slot, hueOf: ({ number }) =>
        here().colour === "segment" ? (number - 1) % 8 : sourceHue(source) });
    } catch (trouble) {
      if (turn === this.turn) this.sees.replaceChildren(isExport() ? "" : troubleCard(trouble));
    }
  }

  showStep(summary, chosen) {
    const canvas = packingCanvas();
    canvas.setAttribute("aria-label", `fill of ${summary.rows.length} rows: ${percent(summary.filled)}`);
    const pairs = [
      ["filled", percent(summary.filled)],
      ["trained", `${grouped(summary.trained)} of ${grouped(summary.slots)}`],
      ["segments", `${segmentWords(summary.rows)} a row`],
    ];
    const list = facts(pairs);
    this.about.sources.slice(0, 8).forEach((source, index) => {
      list.append(textTerm(source.name), make("dd", { text: counted(summary.by_source[index], "row") }));
    });
    const words = isSorted(summary.rows) ? "How full each row is, by source and fill." : "How full each row is.";
    this.step.replaceChildren(make("h3", { text: `step ${grouped(summary.step)}` }), make("div", {}, canvas),
      make("p", { class: "quiet", text: words }), list);
    drawPacking(canvas, { rows: summary.rows, width: this.about.seq_len, chosen, hueOf: sourceHue });
  }
}

function textTerm(text) {
  return showText(make("dt"), text, 60);
}

/** Return the state of the address that shows a segment's document. */
export function documentState({ source, document }) {
  return { view: "document", source, document, store: null, split: null };
}

/** Return the steps and rows that show a document, as links. */
export function hitList(answer, most) {
  const list = make("div", { class: "hits" });
  const show = (hits) => {
    for (const hit of hits) {
      const place = { source: answer.source, document: answer.document, token: hit.start };
      const state = { view: "batch", step: hit.step, row: hit.row, slot: null, from: null, to: null, ...place };
      const isHere = hit.step === here().step && hit.row === here().row;
      const link = make("a", { class: "hit", href: linkTo(state), text: `step ${grouped(hit.step)} · row ${hit.row}` });
      if (isHere) link.setAttribute("aria-current", "true");
      list.append(link);
    }
  };
  show(answer.hits.slice(0, most));
  const parts = [make("h3", { text: "shown at" }), list];
  if (!answer.hits.length) parts.push(make("p", { class: "quiet", text: "No step of this run shows it." }));
  if (answer.hits.length > most) {
    const more = make("button", { class: "more", type: "button", text: `${grouped(answer.hits.length - most)} more` });
    more.addEventListener("click", () => {
      show(answer.hits.slice(most));
      more.remove();
    });
    parts.push(more);
  }
  return answer.more && !isExport() ? [...parts, lookOn(answer, list, show)] : parts;
}

// A long run is looked through piece by piece.
function lookOn({ source, document, searched }, list, show) {
  const button = make("button", { class: "more", type: "button", text: `look on from step ${grouped(searched.stop)}` });
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const next = await ask(pathOf(`api/where/${source}/${document}`, { start: searched.stop }, here().target));
      show(next.hits);
      if (next.more) button.replaceWith(lookOn(next, list, show));
      else button.remove();
    } catch (trouble) {
      button.replaceWith(troubleCard(trouble));
    }
  });
  return button;
}
