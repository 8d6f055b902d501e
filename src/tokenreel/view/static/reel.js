// The reel: the whole run as a band that one drags. The needle is the step; wheel and keys zoom.

import { go, here, onMove } from "./address.js";
import { answered, ask, pathOf } from "./answers.js";
import { byId, decimal, eachFrame, grouped, make, percent } from "./dom.js";
import { axisTop, drawReel, reelHeight } from "./reel_picture.js";
import { inks, onTheme } from "./theme.js";
import { plainText } from "./visible.js";

const COLUMNS = 600;
const LEAST_STEPS = 12; // of a zoomed reel
const ZOOM = 1.25;
const MOST_TOLD = 4; // sources, where the pointer is
const MARK_PX = 4; // how near the pointer must be for a mark to be told

let target = null;
let hitSteps = [];
let parts = null;
let dragging = false;
const fingers = new Map(); // pointer -> where it is, while it is down
const redraw = eachFrame(draw);

/** Put the reel into the page, for a target that has steps. */
export function startReel(about) {
  target = about;
  const section = byId("reel");
  section.hidden = false;
  parts = {
    section,
    canvas: make("canvas", { "aria-hidden": "true" }),
    needle: make("div", { class: "needle", role: "slider", tabindex: "0", "aria-label": "step" }),
    told: make("div", { class: "reel-told", "aria-hidden": "true", hidden: true }),
    thumb: make("div", { class: "reel-thumb" }),
  };
  parts.track = make("div", { class: "reel-track" }, parts.canvas, parts.needle, parts.told);
  parts.overview = make("div", { class: "reel-overview", hidden: true }, parts.thumb);
  section.replaceChildren(parts.track, parts.overview);
  parts.canvas.style.height = `${reelHeight(target.sources.length)}px`;
  parts.needle.style.height = `${axisTop() + 4}px`;
  listen();
  new ResizeObserver(redraw).observe(parts.track);
  onTheme(redraw);
  onMove(redraw);
  askAgain();
  redraw();
}

/** Mark the steps that show the chosen document. */
export function markSteps(steps) {
  if (!parts || (steps.length === 0 && hitSteps.length === 0)) return;
  hitSteps = steps;
  redraw();
}

/** Return the last step that can be gone to. */
export function lastStep() {
  return target.steps === null ? Number.MAX_SAFE_INTEGER : target.steps - 1;
}

/** Go to a step, or to the nearest there is. */
export function windTo(step, how = {}) {
  if (target.steps === 0) return;
  go({ step: Math.max(0, Math.min(lastStep(), Math.round(step))) }, how);
}

function whole() {
  let stop = Math.max(1, target.steps ?? target.reel_stop);
  while (target.steps === null && stop <= here().step) stop *= 2;
  return { from: 0, to: stop };
}

/** Return the range of steps that the reel shows. */
function reelRange() {
  const all = whole();
  const { from, to } = here();
  if (from === null || to === null || to - from < 1) return all;
  return { from: Math.max(0, Math.min(from, all.to - 1)), to: Math.min(to, all.to) };
}

function reelPath({ from, to }) {
  return pathOf("api/reel", { start: from, stop: to, columns: COLUMNS }, here().target);
}

let asking = 0;
let askedFor = "";
function askAgain() {
  clearTimeout(asking);
  askedFor = reelPath(whole()) + reelPath(reelRange());
  asking = setTimeout(async () => {
    // A range that cannot be had (an exported file, a server gone) leaves the coarser picture.
    await Promise.allSettled([ask(reelPath(whole())), ask(reelPath(reelRange()))]);
    redraw();
  }, 60);
}

function draw() {
  if (!parts.section.isConnected || parts.section.hidden) return;
  const all = whole();
  const range = reelRange();
  const answers = [answered(reelPath(all)), answered(reelPath(range))].filter(Boolean);
  if (askedFor !== reelPath(all) + reelPath(range)) askAgain();
  const sources = target.sources.map((source) => ({ hue: source.hue, label: plainText(source.name, 24) }));
  drawReel(parts.canvas, { answers, range, sources, step: here().step, hits: hitSteps, ink: inks() });
  placeNeedle(range);
  parts.overview.hidden = range.from === all.from && range.to === all.to;
  parts.thumb.style.left = `${(100 * range.from) / all.to}%`;
  parts.thumb.style.width = `${Math.max(1, (100 * (range.to - range.from)) / all.to)}%`;
}

function placeNeedle(range) {
  const { step } = here();
  const share = (step + 0.5 - range.from) / (range.to - range.from);
  const { needle } = parts;
  needle.hidden = share < 0 || share > 1;
  needle.style.transform = `translateX(${share * parts.track.clientWidth}px)`;
  needle.setAttribute("aria-valuemin", "0");
  if (target.steps !== null) needle.setAttribute("aria-valuemax", String(target.steps - 1));
  needle.setAttribute("aria-valuenow", String(step));
  needle.setAttribute("aria-valuetext", target.steps === null ? `step ${step}` : `step ${step} of ${target.steps}`);
}

function stepUnder(event) {
  const box = parts.track.getBoundingClientRect();
  const range = reelRange();
  const share = Math.max(0, Math.min(0.999999, (event.clientX - box.left) / box.width));
  return Math.floor(range.from + share * (range.to - range.from));
}

function listen() {
  const { track, overview } = parts;
  track.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    dragging = true;
    fingers.set(event.pointerId, event.clientX);
    track.setPointerCapture(event.pointerId);
    parts.needle.focus({ preventScroll: true });
    if (fingers.size === 1) windTo(stepUnder(event));
    event.preventDefault();
  });
  track.addEventListener("pointermove", (event) => {
    if (fingers.size === 2 && fingers.has(event.pointerId)) pinch(event);
    else if (dragging) windTo(stepUnder(event), { replace: true });
    tell(event);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    track.addEventListener(name, (event) => {
      fingers.delete(event.pointerId);
      dragging = fingers.size > 0;
    });
  }
  track.addEventListener("pointerleave", () => (parts.told.hidden = true));
  track.addEventListener("wheel", turned, { passive: false });
  overview.addEventListener("pointerdown", (event) => overview.setPointerCapture(event.pointerId));
  overview.addEventListener("pointermove", (event) => {
    if (!event.buttons) return;
    const box = overview.getBoundingClientRect();
    const range = reelRange();
    const middle = ((event.clientX - box.left) / box.width) * whole().to;
    setRange(middle - (range.to - range.from) / 2, range.to - range.from);
  });
}

// Two fingers zoom by the change of their distance.
function pinch(event) {
  const distance = () => {
    const [one, other] = fingers.values();
    return Math.max(10, Math.abs(one - other));
  };
  const before = distance();
  fingers.set(event.pointerId, event.clientX);
  zoomBy(before / distance());
}

function turned(event) {
  event.preventDefault();
  const range = reelRange();
  const span = range.to - range.from;
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    const turn = event.shiftKey && !event.deltaX ? event.deltaY : event.deltaX;
    setRange(range.from + (turn / parts.track.clientWidth) * span, span);
  } else zoomBy(event.deltaY > 0 ? ZOOM : 1 / ZOOM, stepUnder(event));
}

/** Zoom by a factor; the step `fixed` stays where it is on the reel. */
export function zoomBy(factor, fixed = here().step) {
  const range = reelRange();
  const span = Math.max(Math.min(LEAST_STEPS, whole().to), (range.to - range.from) * factor);
  const share = Math.max(0, Math.min(1, (fixed - range.from) / (range.to - range.from)));
  setRange(fixed - share * span, span);
}

/** Show the whole run. */
export function zoomOut() {
  go({ from: null, to: null }, { replace: true });
}

function setRange(from, span) {
  const all = whole();
  if (span >= all.to) return zoomOut();
  const wide = Math.round(span);
  const first = Math.max(0, Math.min(all.to - wide, Math.round(from)));
  return go({ from: first, to: first + wide }, { replace: true });
}

// The step under the pointer, and the shares there.
function tell(event) {
  const step = stepUnder(event);
  const answer = answered(reelPath(reelRange())) ?? answered(reelPath(whole()));
  const words = [`step ${grouped(step)}`];
  if (answer) words.push(...sharesAt(answer, step));
  const near = answer ? ((answer.borders.at(-1) - answer.borders[0]) / parts.track.clientWidth) * MARK_PX : 0;
  const mark = answer?.marks.find((one) => Math.abs(one.step - step) <= near);
  if (mark) words.unshift(plainText(mark.text));
  parts.told.textContent = words.join(" · ");
  parts.told.hidden = event.pointerType === "touch" && !dragging;
  const box = parts.track.getBoundingClientRect();
  const left = Math.min(event.clientX - box.left + 12, box.width - parts.told.offsetWidth);
  parts.told.style.transform = `translateX(${Math.max(0, left)}px)`;
}

// The largest shares at a step, in words.
function sharesAt({ borders, shares, epochs }, step) {
  const column = columnOf(borders, step);
  const order = target.sources.map((_, index) => index).sort((a, b) => shares[b][column] - shares[a][column]);
  const shown = order.slice(0, MOST_TOLD).sort((a, b) => a - b).map((index) => {
    const name = plainText(target.sources[index].name, 24);
    return `${name} ${percent(shares[index][column])}, epoch ${decimal(epochs[index][column], 1)}`;
  });
  const rest = order.length - shown.length;
  return rest ? [...shown, `${rest} more`] : shown;
}

function columnOf(borders, step) {
  const share = (step + 0.5 - borders[0]) / (borders.at(-1) - borders[0]);
  return Math.max(0, Math.min(borders.length - 2, Math.floor(share * (borders.length - 1))));
}
