// The bar above the batch: how tokens are coloured, what the colours mean in words, which ranks.

import { go, here } from "./address.js";
import { make } from "./dom.js";
import { COLOURS, Palette } from "./tokens.js";
import { showText } from "./visible.js";

const MOST_BUTTONS = 8; // more ranks than that are chosen by number

/** Return the bar: {element, update(state)}. */
export function batchBar(about) {
  const colours = choice("Colour by", COLOURS.map((name) => [name, name]), (name) => go({ colour: name }));
  const legend = make("div", { class: "legend", role: "note", "aria-label": "What the colours mean" });
  const ranks = make("div", { class: "ranks" });
  const element = make("div", { class: "batch-bar" }, colours.element, legend, ranks);
  let drawn = "";
  const update = (now) => {
    colours.set(now.colour);
    const wanted = [now.colour, now.ranks, now.rank].join();
    if (wanted === drawn) return;
    drawn = wanted;
    legend.replaceChildren(...new Palette(about, now.colour).legend().map(legendEntry));
    ranks.replaceChildren(...rankParts(about, now));
  };
  return { element, update };
}

function legendEntry([names, word, meaning]) {
  const chip = showText(make("span", { class: names }), word);
  const words = meaning ? make("span", { class: "meaning", text: ` ${meaning}` }) : null;
  return make("span", { class: "entry" }, chip, words);
}

/** Return buttons of which one is pressed: {element, set(value)}. */
export function choice(label, options, chosen) {
  const buttons = options.map(([value, words]) => {
    const button = make("button", { type: "button", onclick: () => chosen(value) });
    button.optionValue = value;
    return showText(button, words);
  });
  const element = make("div", { class: "choice", role: "group", "aria-label": label }, ...buttons);
  const set = (value) => {
    for (const button of buttons) button.setAttribute("aria-pressed", button.optionValue === value ? "true" : "false");
  };
  return { element, set };
}

function rankParts(about, { ranks, rank }) {
  const field = make("input", {
    type: "number", min: 1, max: about.batch_rows, value: ranks, "aria-label": "Number of ranks", class: "small",
    onchange: (event) => {
      if (event.target.value === "") event.target.value = here().ranks;
      const number = Math.max(1, Math.min(about.batch_rows, Math.trunc(Number(event.target.value)) || 1));
      go({ ranks: number, rank: here().rank < number ? here().rank : null });
    },
  });
  const label = make("label", { class: "ranks-label" }, "ranks ", field);
  if (ranks < 2) return [label];
  if (ranks > MOST_BUTTONS) return [label, oneRank(ranks, rank)];
  const options = [[null, "all"], ...Array.from({ length: ranks }, (_, number) => [number, String(number)])];
  const buttons = choice("Rank", options, (value) => go({ rank: value }));
  buttons.set(rank);
  return [label, buttons.element];
}

function oneRank(ranks, rank) {
  const field = make("input", {
    type: "number", min: 0, max: ranks - 1, value: rank ?? "", placeholder: "all", "aria-label": "Rank", class: "small",
    onchange: (event) => {
      const word = event.target.value;
      go({ rank: word === "" ? null : Math.max(0, Math.min(ranks - 1, Math.trunc(Number(word)))) });
    },
  });
  return make("label", { class: "ranks-label" }, "rank ", field);
}
