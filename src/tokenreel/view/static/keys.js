// The keyboard: everything the pointer can do.

import { go, here } from "./address.js";
import { byId, make } from "./dom.js";
import { hideHover } from "./hover.js";
import { windTo, zoomBy, zoomOut } from "./reel.js";
import { COLOURS } from "./tokens.js";
import { nextTheme } from "./theme.js";
import { openDocument, stepRow, stepSegment, stepToken } from "./walk.js";

const HELP = [
  ["← →", "a step back, a step on"],
  ["PgUp PgDn", "100 steps on, 100 steps back"],
  ["Home End", "the first step, the last step"],
  ["+ − 0", "zoom the reel in, out, to the whole run"],
  ["↑ ↓", "the row above, the row below"],
  ["Enter", "open the row, or close it"],
  ["Shift ← →", "the token before, the token after"],
  ["Shift ↑ ↓", "the segment before, the segment after"],
  ["d", "the document of the token; there, n and p: the next, the previous"],
  ["c", "colour by loss, segment, source, turn"],
  ["r", "all ranks, then each"],
  ["g", "type a step"],
  ["/", "search"],
  ["b s x", "the batch, the store, the comparison"],
  ["t", "light, dark, or as the system has it"],
  ["?", "these keys"],
  ["Esc", "close what is open"],
];

/** Listen to keys; `page` has the parts they act on: batch(), focusStep(), focusSearch(), about. */
export function startKeys(page) {
  buildHelp();
  document.addEventListener("keydown", (event) => {
    hideHover();
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const isTyping = event.target.matches("input, textarea, select");
    if (isTyping) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const isPressing = event.target.matches("button, a, summary") && (event.key === "Enter" || event.key === " ");
    if (isPressing || byId("keys").open) return;
    const act = action(event, page);
    if (!act) return;
    event.preventDefault();
    act();
  });
}

function action(event, page) {
  const { key } = event;
  const batch = page.batch();
  // Elsewhere these keys scroll.
  if (batch || here().view === "compare") {
    const wind = windingKey(event);
    if (wind) return wind;
  }
  if (batch?.summary) {
    const walk = batchKey(event, batch);
    if (walk) return walk;
  }
  const simple = {
    g: page.focusStep, "/": page.focusSearch, "?": showHelp, t: nextTheme,
    b: () => go({ view: "batch" }), s: () => go({ view: "store" }), x: () => go({ view: "compare" }),
    Escape: () => go({ slot: null }),
    n: () => document.querySelector('[data-key="n"]')?.click(),
    p: () => document.querySelector('[data-key="p"]')?.click(),
  };
  if ((key === "b" && !page.about.sources.length) || (key === "x" && page.about.targets.length < 2)) return null;
  return Object.hasOwn(simple, key) ? simple[key] : null;
}

function windingKey({ key, shiftKey }) {
  if (shiftKey && key.startsWith("Arrow")) return null;
  const { step } = here();
  const keys = {
    ArrowLeft: () => windTo(step - 1), ArrowRight: () => windTo(step + 1),
    PageUp: () => windTo(step + 100), PageDown: () => windTo(step - 100),
    Home: () => windTo(0), End: () => windTo(Number.MAX_SAFE_INTEGER),
    "+": () => zoomBy(0.8), "=": () => zoomBy(0.8), "-": () => zoomBy(1.25), "−": () => zoomBy(1.25), 0: zoomOut,
  };
  return Object.hasOwn(keys, key) ? keys[key] : null;
}

function batchKey({ key, shiftKey }, batch) {
  if (shiftKey) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[key];
    if (by) return () => stepToken(batch, by);
    const segment = { ArrowUp: -1, ArrowDown: 1 }[key];
    return segment ? () => stepSegment(batch, segment) : null;
  }
  const keys = {
    ArrowUp: () => stepRow(batch, -1), ArrowDown: () => stepRow(batch, 1),
    Enter: () => batch.toggle(here().row ?? 0), d: () => openDocument(batch),
    c: () => go({ colour: COLOURS[(COLOURS.indexOf(here().colour) + 1) % COLOURS.length] }),
    r: () => go({ rank: nextRank() }),
  };
  return Object.hasOwn(keys, key) ? keys[key] : null;
}

function nextRank() {
  const { rank, ranks } = here();
  if (rank === null) return ranks > 1 ? 0 : null;
  return rank + 1 < ranks ? rank + 1 : null;
}

/** Show what the keys do. */
export function showHelp() {
  byId("keys").showModal();
}

function buildHelp() {
  const list = make("dl");
  for (const [keys, words] of HELP) {
    const pressed = keys.split(" ").flatMap((key) => [make("kbd", { text: key }), " "]);
    list.append(make("dt", {}, ...pressed), make("dd", { text: words }));
  }
  const close = make("button", { type: "button", text: "close", onclick: () => byId("keys").close(), autofocus: true });
  byId("keys").replaceChildren(make("h2", { id: "keys-title", text: "Keys" }), list, close);
  byId("keys").addEventListener("click", (event) => {
    if (event.target === byId("keys")) byId("keys").close();
  });
}
