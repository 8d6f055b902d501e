// What is seen is in the address: every state of the page is a link, and the back button works.

const START = {
  view: "", step: 0, row: null, slot: null, open: "", colour: "loss", ranks: 1, rank: null,
  from: null, to: null, source: null, document: null, token: null, store: null, split: null, target: 0,
};
const WORDS = new Set(["view", "open", "colour"]); // all others are numbers
const COALESCE_MS = 700; // steps of one winding are one entry of the history

let current = parsed(location.hash);
let lastPush = 0;
const listeners = [];

function parsed(hash) {
  const state = { ...START };
  for (const [name, value] of new URLSearchParams(hash.replace(/^#/, ""))) {
    if (!(name in START)) continue;
    if (WORDS.has(name)) state[name] = value;
    else if (/^\d{1,15}$/.test(value)) state[name] = Number(value);
  }
  return state;
}

function written(state) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    if (value !== START[name] && value !== null && value !== "") words.set(name, String(value));
  }
  return `#${words}`;
}

/** Return what is seen now: a frozen record of the words of the address. */
export function here() {
  return current;
}

/** Return the link to what is seen now, with these changes. */
export function linkTo(changes) {
  return written({ ...current, ...changes });
}

/** Go to another state; changes in quick succession are one entry of the history. */
export function go(changes, { replace = false } = {}) {
  const next = { ...current, ...changes };
  const link = written(next);
  if (link === written(current)) return;
  const now = performance.now();
  if (replace || now - lastPush < COALESCE_MS) history.replaceState(null, "", link);
  else history.pushState(null, "", link);
  lastPush = now;
  moveTo(next);
}

/** Call `listener(now, before)` after every change of the address. */
export function onMove(listener) {
  listeners.push(listener);
}

function moveTo(next) {
  const before = current;
  current = Object.freeze(next);
  for (const listener of listeners) listener(current, before);
}

window.addEventListener("popstate", () => {
  lastPush = 0;
  moveTo(parsed(location.hash));
});
