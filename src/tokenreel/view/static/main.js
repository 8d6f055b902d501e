// Begins the page: asks what it is about, and shows the view that the address names.

import { go, here, onMove } from "./address.js";
import { ask, isExport, onBusy, pathOf } from "./answers.js";
import { BatchView } from "./batch.js";
import { CompareView } from "./compare.js";
import { DocumentView } from "./document_view.js";
import { byId, make } from "./dom.js";
import { startKeys } from "./keys.js";
import { startReel } from "./reel.js";
import { StateView } from "./state_view.js";
import { StoreView } from "./store_view.js";
import { setSubject } from "./subject.js";
import { startTheme } from "./theme.js";
import { startToolbar } from "./toolbar.js";
import { troubleCard } from "./trouble.js";

const VIEWS = { batch: BatchView, document: DocumentView, store: StoreView, state: StateView, compare: CompareView };
const page = { about: null, toolbar: null, view: null, viewName: "" };

async function start() {
  startTheme();
  watchBusy();
  watchTop();
  await open(here().target);
  startKeys({
    get about() {
      return page.about;
    },
    batch: () => (page.viewName === "batch" ? page.view : null),
    focusStep: () => page.toolbar.focusStep(),
    focusSearch: () => page.toolbar.focusSearch(),
  });
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("main").focus();
  });
  onMove(moved);
}

async function open(target) {
  const about = await ask(pathOf("api/target", {}, target));
  page.about = about;
  setSubject(about);
  document.documentElement.toggleAttribute("data-export", isExport());
  const first = about.first_step && !location.hash.includes("step=") ? { step: about.first_step } : {};
  go({ ...first, ...corrected(about, { ...here(), ...first }) }, { replace: true });
  if (about.sources.length) startReel(about);
  byId("reel").hidden = !about.sources.length;
  page.toolbar = startToolbar(about);
  byId("foot").replaceChildren(...footer(about));
  page.view?.end();
  page.view = null;
  show(here(), null);
}

// What the address leaves open, or asks beyond what there is.
function corrected(about, now) {
  const changes = {};
  if (!viewsOf(about).includes(now.view)) [changes.view] = viewsOf(about);
  if (about.exported && now.step !== about.exported.step) changes.step = about.exported.step;
  else if (about.steps !== null && now.step >= about.steps) changes.step = Math.max(0, about.steps - 1);
  if (about.batch_rows !== null && now.ranks > about.batch_rows) Object.assign(changes, { ranks: 1, rank: null });
  if (now.ranks < 1) changes.ranks = 1;
  if (now.rank !== null && now.rank >= now.ranks) changes.rank = null;
  if (now.row !== null && now.row >= about.batch_rows) Object.assign(changes, { row: null, slot: null });
  return changes;
}

// The views there are of a target; the first is shown when the address names none.
function viewsOf(about) {
  const views = [];
  if (about.targets.length > 1) views.push("compare");
  if (about.sources.length) views.push("batch");
  if (about.stores.length) views.push("store", "document");
  if (about.kind === "stream_state") views.push("state");
  return views;
}

function moved(now, before) {
  if (now.target !== before.target) {
    open(now.target).catch(fail);
    return;
  }
  const changes = corrected(page.about, now);
  if (Object.keys(changes).length) {
    go(changes, { replace: true });
    return;
  }
  show(now, before);
}

function show(now, before) {
  page.toolbar.update(now);
  const host = byId("main");
  host.setAttribute("aria-busy", "false");
  if (page.view && page.viewName === now.view) {
    page.view.move(now, before ?? now);
    return;
  }
  page.view?.end();
  page.viewName = now.view;
  document.body.dataset.view = now.view;
  if (before) scrollTo(0, 0);
  page.view = new VIEWS[now.view](host, page.about);
}

function fail(trouble) {
  byId("main").setAttribute("aria-busy", "false");
  byId("main").replaceChildren(troubleCard(trouble));
}

// A hairline at the top, only for answers that take a while.
function watchBusy() {
  let later = 0;
  onBusy((isBusy) => {
    clearTimeout(later);
    if (isBusy) later = setTimeout(() => (byId("progress").hidden = false), 150);
    else byId("progress").hidden = true;
  });
}

// What sticks below the header needs its height; on a phone the header scrolls away.
function watchTop() {
  const measure = () => {
    const top = byId("top");
    const height = getComputedStyle(top).position === "sticky" ? top.offsetHeight : 0;
    document.body.style.setProperty("--top-height", `${height}px`);
  };
  new ResizeObserver(measure).observe(byId("top"));
  window.addEventListener("resize", measure);
}

function footer(about) {
  const key = (text) => make("kbd", { text });
  const winding = [key("←"), " ", key("→"), " step · ", key("↑"), " ", key("↓"), " row · ", key("Enter"), " open · ",
    key("c"), " colour · "];
  const keys = [...(about.sources.length ? winding : []), key("/"), " search · ", key("?"), " all keys"];
  const words = isExport() ? ["one view, exported by tokenreel ", about.version] : [`tokenreel ${about.version}`];
  return [make("span", { class: "foot-keys" }, ...keys, " · every view is a link"), make("span", {}, ...words)];
}

start().catch(fail);
