// The header: what is looked at, its views, the step, the search, the theme and the keys.

import { go, here } from "./address.js";
import { isExport } from "./answers.js";
import { choice } from "./batch_bar.js";
import { byId, grouped, make } from "./dom.js";
import { showHelp } from "./keys.js";
import { lastStep, windTo } from "./reel.js";
import { searchBox } from "./search.js";
import { nextTheme, onTheme, theme } from "./theme.js";
import { plainText, showText } from "./visible.js";

const THEMES = { auto: "◐", light: "○", dark: "●" };

/** Fill the header; return {update(state), focusStep(), focusSearch()}. */
export function startToolbar(about) {
  const views = viewChoice(about);
  const targets = targetChoice(about);
  const step = about.sources.length ? stepField(about) : null;
  const search = searchBox(about);
  const parts = [title(about), targets?.element, views?.element, step?.element, search.element, icons()];
  byId("bar").replaceChildren(...parts.filter(Boolean));
  return {
    update(now) {
      views?.set(now.view === "document" ? null : now.view);
      targets?.set(now.target);
      step?.update(now);
      document.title = pageTitle(about, now);
    },
    focusStep: () => step?.field.select(),
    focusSearch: () => search.focus(),
  };
}

function title(about) {
  const name = showText(make("span", { class: "name" }), about.title, 80);
  return make("h1", {}, name, make("small", { text: about.fingerprint.slice(0, 12), title: about.fingerprint }));
}

function pageTitle(about, now) {
  const named = { document: `document ${now.document}`, batch: `step ${now.step}` };
  return `${named[now.view] ?? now.view} · ${plainText(about.title, 60)} · tokenreel`;
}

function viewChoice(about) {
  const views = [];
  if (about.sources.length) views.push(["batch", "batch"]);
  const hasStores = about.stores.length && (!isExport() || about.kind === "store");
  if (hasStores) views.push(["store", about.stores.length > 1 ? "stores" : "store"]);
  if (about.kind === "stream_state") views.push(["state", "state"]);
  if (about.targets.length > 1) views.push(["compare", "compare"]);
  if (views.length < 2) return null;
  return choice("View", views, (view) => go({ view, slot: null }));
}

function targetChoice(about) {
  if (about.targets.length < 2) return null;
  const options = about.targets.map(({ title: name }, index) => [index, `${"AB"[index]} ${plainText(name, 28)}`]);
  const targets = choice("Which of the two", options, (target) => go({ target }));
  targets.element.classList.add("targets");
  return targets;
}

function stepField(about) {
  const field = make("input", {
    class: "step-field", inputmode: "numeric", "aria-label": "Step", autocomplete: "off",
    onchange: () => {
      const number = Number(field.value.replace(/[\s,._]/g, ""));
      if (Number.isFinite(number) && field.value.trim()) windTo(number);
      field.value = grouped(here().step);
    },
    onfocus: () => field.select(),
    readonly: isExport(),
  });
  const button = (by, words, sign) => {
    const wind = () => windTo(here().step + by);
    return make("button", { type: "button", "aria-label": words, text: sign, onclick: wind });
  };
  const before = button(-1, "the step before", "◀");
  const after = button(1, "the next step", "▶");
  const steps = about.steps === null ? "without end" : `of ${grouped(about.steps)}`;
  const element = make("div", { class: "step", role: "group", "aria-label": "Step" },
    before, field, after, make("span", { class: "quiet", text: steps }));
  const update = ({ step }) => {
    if (document.activeElement !== field || field.value === "") field.value = grouped(step);
    else if (Number(field.value.replace(/\D/g, "")) !== step) field.value = grouped(step);
    field.style.width = `${Math.max(3, grouped(about.steps ?? step).length) + 2}ch`;
    before.disabled = step <= 0;
    after.disabled = step >= lastStep();
  };
  return { element, field, update };
}

function icons() {
  const sun = make("button", { type: "button", class: "icon", onclick: nextTheme });
  const tell = () => {
    sun.textContent = THEMES[theme()];
    const words = theme() === "auto" ? "colours as the system has them" : `${theme()} colours`;
    sun.title = words;
    sun.setAttribute("aria-label", `${words}; press for others`);
  };
  onTheme(tell);
  tell();
  const help = make("button", { type: "button", class: "icon", text: "?", title: "keys", onclick: showHelp });
  help.setAttribute("aria-label", "Keys");
  return make("div", { class: "icons" }, sun, help);
}
