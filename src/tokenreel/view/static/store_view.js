// A store: splits and shards, how long its documents are, its tokenizer, what its build reported,
// samples, and its documents one by one.

import { go, here, linkTo } from "./address.js";
import { ask, pathOf } from "./answers.js";
import { counted, decimal, facts, grouped, make } from "./dom.js";
import { choice } from "./batch_bar.js";
import { histogram } from "./histogram.js";
import { Palette, chipsOf } from "./tokens.js";
import { documentBase, SLICE, asPart } from "./slots.js";
import { troubleCard, waitingLine } from "./trouble.js";
import { plainText, textSpan } from "./visible.js";

const MOST_SHARDS = 200;
const MOST_LISTED = 50;
const SAMPLE_TOKENS = 160;
const MOST_SAMPLES = 4; // of each split

/** The view of the store that the address names. */
export class StoreView {
  constructor(host, about) {
    this.host = host;
    this.about = about;
    this.load();
  }

  end() {
    this.number = null; // an answer that is still on its way is for nobody
  }

  move(now, before) {
    if (now.store !== before.store || now.target !== before.target) this.load();
  }

  async load() {
    const { target } = here();
    const number = here().store ?? 0;
    this.number = number;
    this.host.replaceChildren(waitingLine("Opening the store …"));
    try {
      const store = await ask(pathOf(`api/store/${number}`, {}, target));
      if (number === this.number) this.draw(store, number);
    } catch (trouble) {
      if (number === this.number) this.host.replaceChildren(this.switcher(number), troubleCard(trouble));
    }
  }

  // The name of the store, and the others there are; a store by itself is named in the header.
  switcher(number) {
    const bar = make("nav", { class: "page-bar", "aria-label": "Stores" });
    if (this.about.stores.length < 2) return bar;
    const options = this.about.stores.map((store) => [store.index, store.title]);
    const stores = choice("Store", options, (index) => go({ store: index, split: null }));
    stores.set(number);
    bar.append(stores.element);
    return bar;
  }

  draw(store, number) {
    const short = make("small", { text: store.fingerprint.slice(0, 12) });
    const title = make("h2", { class: "page-title" }, textSpan(store.title), short);
    const bar = this.switcher(number);
    if (bar.childElementCount) bar.prepend(title);
    const left = make("div", { class: "card-column" },
      card("store", facts(wordPairs(store.facts))),
      card("splits", ...store.splits.map((split) => splitPart(split, number))),
      card("tokenizer", facts(wordPairs(store.tokenizer))));
    const right = make("div", { class: "card-column" },
      ...store.splits.map(lengthsPart),
      card("samples", this.samples(store, number)),
      store.report ? card("build report", facts(wordPairs(store.report))) : null);
    this.host.replaceChildren(bar, make("div", { class: "cards" }, left, right));
  }

  samples(store, number) {
    const list = make("div", { class: "samples" });
    for (const split of store.splits) {
      for (const document of split.samples.slice(0, MOST_SAMPLES)) list.append(this.sample(number, split, document));
    }
    return list.childElementCount ? list : quiet("No documents to show.");
  }

  sample(store, split, document) {
    const state = { view: "document", source: null, store, split: split.index, document, slot: null };
    const link = make("a", { href: linkTo(state) }, `document ${grouped(document)} of `, textSpan(split.name));
    const head = make("h4", {}, link);
    const chips = make("div", { class: "chips closed waiting" });
    const path = pathOf(documentBase(state), { start: 0, stop: SLICE }, here().target);
    ask(path).then((answer) => {
      const part = asPart(answer, 0);
      head.append(make("span", { text: counted(answer.tokens, "token") }));
      if (answer.provenance) head.append(textSpan(answer.provenance));
      chips.classList.remove("waiting");
      chips.append(chipsOf(part, 0, Math.min(SAMPLE_TOKENS, part.stop), new Palette(this.about, "loss")));
    }, (trouble) => chips.replaceChildren(troubleCard(trouble)));
    return make("div", { class: "sample" }, head, chips);
  }
}

/** Return a titled box. */
export function card(title, ...children) {
  return make("section", { class: "card" }, make("h3", { text: title }), ...children);
}

function quiet(words) {
  return make("p", { class: "quiet", text: words });
}

/** Return pairs of (word, value) from a record of any depth, ready for `facts`. */
export function wordPairs(record) {
  return Object.entries(record ?? {}).map(([name, value]) => {
    const words = /^[a-z_]+$/.test(name) ? name.replaceAll("_", " ") : name;
    if (value === null || value === undefined) return [words, null];
    if (typeof value === "number") return [words, Number.isInteger(value) ? grouped(value) : decimal(value)];
    if (typeof value === "boolean") return [words, value ? "yes" : "no"];
    if (Array.isArray(value) && !value.length) return [words, null];
    if (Array.isArray(value)) return [words, make("div", {}, ...value.slice(0, MOST_LISTED).map(listed))];
    if (typeof value === "object") return [words, Object.keys(value).length ? facts(wordPairs(value)) : null];
    return [words, textSpan(value)];
  });
}

function listed(one) {
  if (Array.isArray(one)) return make("div", {}, textSpan(one.join(", ")));
  return typeof one === "object" && one !== null ? facts(wordPairs(one)) : make("div", {}, textSpan(one));
}

function lengthsPart({ name, lengths }) {
  if (!lengths.counts.length) return null;
  const title = `tokens of a document, ${plainText(name)}${lengths.sampled ? " (sampled)" : ""}`;
  return card(title, histogram(lengths));
}

function splitPart(split, store) {
  const isKnown = split.documents !== null;
  const state = { view: "document", source: null, store, split: split.index, document: isKnown ? 0 : null, slot: null };
  const head = make("h4", {}, textSpan(split.name),
    make("span", { text: isKnown ? counted(split.documents, "document") : "documents unknown" }),
    make("span", { text: counted(split.tokens, "token") }),
    split.tokens ? make("a", { href: linkTo(state), text: isKnown ? "document by document" : "its tokens" }) : null,
    split.documents ? gotoField(state, split.documents) : null);
  const most = Math.max(1, ...split.shards.map((shard) => shard.tokens));
  const rows = split.shards.slice(0, MOST_SHARDS).map((shard) => {
    const bar = make("span", { class: "shard-bar", "aria-hidden": "true" });
    bar.style.setProperty("--share", shard.tokens / most);
    const numbers = [shard.tokens, shard.documents].map((number) => make("td", { class: "number", text: grouped(number) }));
    return make("tr", {}, make("td", {}, textSpan(shard.name)), ...numbers, make("td", { class: "wide" }, bar));
  });
  const more = split.shards.length - rows.length + split.more_shards;
  const heads = [["shard", ""], ["tokens", "number"], ["documents", "number"], ["", "wide"]].map(([text, names]) =>
    make("th", { text, scope: "col", class: names }));
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows));
  return make("div", { class: "split" }, head, make("div", { class: "scroll" }, table),
    more > 0 ? quiet(`… and ${grouped(more)} more shards`) : null);
}

function gotoField(state, documents) {
  const last = documents - 1;
  const field = make("input", {
    type: "number", class: "small", min: 0, max: last, placeholder: "go to", "aria-label": "Go to a document's number",
  });
  field.addEventListener("change", () => {
    const number = Math.trunc(Number(field.value));
    if (field.value !== "") go({ ...state, document: Math.max(0, Math.min(last, number)) });
  });
  return field;
}
