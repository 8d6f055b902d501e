// Draws the reel on a canvas: marks on top, shares as bands, the axis of steps, a lane of epochs for
// each source. It knows a range of steps, answers of the server, and nothing of the page.

import { decimal, grouped } from "./dom.js";
import { plainText } from "./visible.js";

const BANDS_TOP = 20;
const BANDS_HEIGHT = 52;
const AXIS_HEIGHT = 20;
const LANE_HEIGHT = 14;
const MOST_LANES = 4;
const BAND_ALPHA = 0.82; // paper shines through: the bands are calmer than chips
const FONT = "11px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace";

/** Return the height that the picture needs for so many sources. */
export function reelHeight(numSources) {
  return BANDS_TOP + BANDS_HEIGHT + AXIS_HEIGHT + Math.min(numSources, MOST_LANES) * LANE_HEIGHT;
}

/** Return where the axis is, measured from the top: the needle ends there. */
export function axisTop() {
  return BANDS_TOP + BANDS_HEIGHT;
}

/** Draw `answers` (later ones over earlier ones) for the steps range.from to range.to. */
export function drawReel(canvas, { answers, range, sources, step, hits, ink }) {
  const width = canvas.clientWidth;
  const height = reelHeight(sources.length);
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const brush = canvas.getContext("2d");
  brush.scale(scale, scale);
  brush.font = FONT;
  const xOf = (step) => ((step - range.from) / (range.to - range.from)) * width;
  for (const answer of answers) drawBands(brush, answer, xOf, sources, ink);
  drawAxis(brush, range, xOf, width, ink);
  const last = answers.at(-1);
  if (last) drawLanes(brush, last, xOf, width, sources, ink);
  if (last) drawMarks(brush, last.marks, xOf, width, xOf(step + 0.5), ink);
  drawHits(brush, hits, xOf, ink);
}

function drawBands(brush, answer, xOf, sources, ink) {
  const { borders, shares } = answer;
  const numColumns = borders.length - 1;
  const left = xOf(borders[0]);
  brush.clearRect(left, BANDS_TOP, xOf(borders[numColumns]) - left, BANDS_HEIGHT);
  let below = new Float64Array(numColumns);
  shares.forEach((share, index) => {
    const above = below;
    below = Float64Array.from(share, (value, column) => Math.min(1, above[column] + value));
    brush.fillStyle = ink.hue(sources[index].hue ?? index);
    brush.beginPath();
    outline(brush, borders, above, xOf, 0, numColumns);
    outline(brush, borders, below, xOf, numColumns - 1, -1);
    brush.closePath();
    brush.globalAlpha = BAND_ALPHA;
    brush.fill();
    brush.globalAlpha = 1;
    if (index) drawBorder(brush, borders, above, xOf, shares.length > MOST_LANES ? 0.6 : 1.5, ink);
  });
}

// A hairline of paper between bands: they are told apart without their colours.
function drawBorder(brush, borders, edge, xOf, width, ink) {
  brush.strokeStyle = ink.paper;
  brush.lineWidth = width;
  brush.beginPath();
  outline(brush, borders, edge, xOf, 0, borders.length - 1);
  brush.stroke();
}

// Lines along the upper edges of columns first to last, or back.
function outline(brush, borders, edge, xOf, first, last) {
  const forward = last > first;
  for (let column = first; column !== last; column += forward ? 1 : -1) {
    const y = BANDS_TOP + edge[column] * BANDS_HEIGHT;
    const [near, far] = forward ? [column, column + 1] : [column + 1, column];
    brush.lineTo(xOf(borders[near]), y);
    brush.lineTo(xOf(borders[far]), y);
  }
}

/** Return a round distance of ticks, 1, 2 or 5 times a power of ten, that is at least `least`. */
function roundTick(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((tick) => tick >= Math.max(1, least));
}

function drawAxis(brush, range, xOf, width, ink) {
  const tick = roundTick(((range.to - range.from) / width) * 76);
  const top = axisTop();
  brush.strokeStyle = brush.fillStyle = ink.soft;
  brush.lineWidth = 1;
  brush.textBaseline = "top";
  for (let step = Math.ceil(range.from / tick) * tick; step <= range.to; step += tick) {
    const x = Math.round(xOf(step)) + 0.5;
    brush.beginPath();
    brush.moveTo(x, top + 1);
    brush.lineTo(x, top + 5);
    brush.stroke();
    const label = grouped(step);
    const wide = brush.measureText(label).width;
    if (x + 3 + wide <= width) brush.fillText(label, x + 3, top + 4);
  }
}

function drawLanes(brush, answer, xOf, width, sources, ink) {
  answer.epochs.slice(0, MOST_LANES).forEach((epochs, index) => {
    const y = axisTop() + AXIS_HEIGHT + index * LANE_HEIGHT + LANE_HEIGHT / 2;
    const hue = ink.hue(sources[index].hue ?? index);
    brush.globalAlpha = 0.45;
    brush.fillStyle = hue;
    brush.fillRect(xOf(answer.borders[0]), y - 1, xOf(answer.borders.at(-1)) - xOf(answer.borders[0]), 2);
    brush.globalAlpha = 1;
    const label = sources[index].label;
    brush.textBaseline = "middle";
    const nameWidth = 14 + brush.measureText(label).width + 8;
    drawEpochs(brush, answer.borders, epochs, xOf, y, nameWidth, hue, ink);
    brush.fillStyle = ink.paper;
    brush.fillRect(0, y - 7, nameWidth, 14);
    brush.fillStyle = hue;
    brush.fillRect(0, y - 4, 8, 8);
    brush.fillStyle = ink.soft;
    brush.fillText(label, 14, y + 0.5);
  });
}

// A tick where an epoch begins; of many epochs only round ones, so that each has room for its name.
function drawEpochs(brush, borders, epochs, xOf, y, nameWidth, hue, ink) {
  const wide = xOf(borders.at(-1)) - xOf(borders[0]);
  const rate = (epochs.at(-1) - epochs[0]) / wide; // epochs of a pixel
  const every = rate < 1 / 90 ? 1 : roundTick(rate * 90);
  for (let column = 1; column < epochs.length; column++) {
    const epoch = Math.floor(epochs[column] / every) * every;
    if (epoch <= epochs[column - 1] || epoch < 1) continue;
    const x = xOf(borders[column]);
    const label = `epoch ${decimal(epoch, 0)}`;
    const room = brush.measureText(label).width + 8;
    if (x < nameWidth) continue;
    brush.fillStyle = hue;
    brush.fillRect(x - 1, y - 4, 2, 8);
    if (x + room > xOf(borders.at(-1))) continue;
    brush.fillStyle = ink.paper;
    brush.fillRect(x + 1, y - 6, room, 12);
    brush.fillStyle = ink.soft;
    brush.fillText(label, x + 5, y + 0.5);
  }
}

function drawMarks(brush, marks, xOf, width, needle, ink) {
  let free = -Infinity;
  for (const mark of marks) {
    const x = Math.round(xOf(mark.step)) + 0.5;
    if (x < 0 || x > width || mark.kind === "epoch" || mark.kind === "end") continue; // epochs have their lanes
    brush.strokeStyle = ink.ink;
    brush.setLineDash([3, 3]);
    brush.beginPath();
    brush.moveTo(x, 4);
    brush.lineTo(x, axisTop());
    brush.stroke();
    brush.setLineDash([]);
    if (mark.kind === "ramp") continue; // the phase before it has said to which weights
    const text = plainText(mark.text);
    const wide = brush.measureText(text).width;
    // To the right of its line, unless there is no room, or the needle stands there; then shortened.
    const fits = (place) => place >= Math.max(0, free) && place + wide <= width;
    const covers = (place) => needle > place - 8 && needle < place + wide + 8;
    const left = [x + 5, x - 5 - wide].find((place) => fits(place) && !covers(place)) ?? x + 5;
    if (left < free) continue;
    const label = shortened(brush, text, width - left);
    brush.fillStyle = ink.soft;
    brush.textBaseline = "top";
    brush.fillText(label, left, 4);
    free = left + brush.measureText(label).width + 8;
  }
}

function shortened(brush, text, room) {
  if (brush.measureText(text).width <= room) return text;
  const count = Math.floor(room / brush.measureText("0").width) - 1;
  return count < 6 ? "" : `${text.slice(0, count)}…`;
}

// Steps that show the chosen document: small triangles that point up at the axis.
function drawHits(brush, hits, xOf, ink) {
  brush.fillStyle = ink.needle;
  for (const step of hits) {
    const x = xOf(step + 0.5);
    brush.beginPath();
    brush.moveTo(x, axisTop() - 6);
    brush.lineTo(x - 3.5, axisTop() + 1);
    brush.lineTo(x + 3.5, axisTop() + 1);
    brush.fill();
  }
}
