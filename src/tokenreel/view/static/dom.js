// Elements and numbers. Text enters the page by textContent alone: nothing here, and nothing in any
// other module, makes elements of strings.

import { showText } from "./visible.js";

/** Return an element: `parts` are its class, text, attributes and listeners, then its children. */
export function make(tag, parts = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(parts)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Return the element of this id, which index.html has. */
export function byId(id) {
  return document.getElementById(id);
}

/** Return a whole number with separators of thousands: 32,768. */
export function grouped(number) {
  return number === null || number === undefined ? "unknown" : Number(number).toLocaleString("en-US");
}

/** Return a number with its noun: "1 token", "2,000 tokens". */
export function counted(number, noun) {
  return `${grouped(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** Return a share of 1 as a percentage, with a decimal where it is not whole. */
export function percent(share) {
  const value = Math.round(share * 1000) / 10;
  return `${value.toLocaleString("en-US")} %`;
}

/** Return a weight or an epoch, with three digits at most. */
export function decimal(number, digits = 3) {
  return Number(number).toLocaleString("en-US", { maximumFractionDigits: digits });
}

/** Return a list of terms and what they mean; pairs whose value is null are left out. */
export function facts(pairs) {
  const list = make("dl", { class: "facts" });
  for (const [term, value] of pairs) {
    if (value === null || value === undefined || value === "") continue;
    const told = make("dd");
    told.append(value instanceof Node ? value : String(value));
    list.append(showText(make("dt"), term, 80), told);
  }
  return list;
}

/** Return a function that runs `act` once, in the next frame, however often it is called. */
export function eachFrame(act) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      act();
    });
  };
}
