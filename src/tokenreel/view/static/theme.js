// Light, dark, or as the system has it; and the colours of the style sheet for what is drawn on canvas.

const ORDER = ["auto", "light", "dark"];
const KEPT_AS = "tokenreel.theme";
const changed = new Set();

function stored() {
  try {
    return localStorage.getItem(KEPT_AS);
  } catch {
    return null; // a file opened from disk, or storage refused
  }
}

/** Return "auto", "light" or "dark". */
export function theme() {
  return document.documentElement.dataset.theme ?? "auto";
}

/** Apply the theme that was chosen on an earlier visit. */
export function startTheme() {
  if (ORDER.includes(stored())) setTheme(stored());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tellAll);
}

/** Go on to the next theme. */
export function nextTheme() {
  setTheme(ORDER[(ORDER.indexOf(theme()) + 1) % ORDER.length]);
}

function setTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  try {
    localStorage.setItem(KEPT_AS, name);
  } catch {
    // not kept: the choice holds for this page
  }
  tellAll();
}

function tellAll() {
  for (const listener of changed) listener();
}

/** Call `listener` after every change of colours; the function returned ends that. */
export function onTheme(listener) {
  changed.add(listener);
  return () => changed.delete(listener);
}

/** Return the colours of the style sheet as they are now. */
export function inks() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  return {
    paper: colour("--paper"), ink: colour("--ink"), soft: colour("--soft"), line: colour("--line"),
    needle: colour("--needle"), edge: colour("--edge"), chip: colour("--chip"), panel: colour("--panel"),
    hue: (index) => colour(`--hue-${index % 8}`),
  };
}
