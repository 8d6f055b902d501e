// How full the rows of a step are: one bar a row, coloured by source, and segments per row.

import { grouped, make } from "./dom.js";
import { inks } from "./theme.js";

const MOST_PX = 120;
const LEAST_PX = 36;

/** Draw the fill of the rows of a step's summary. */
export function drawPacking(canvas, { rows, width, hueOf, chosen }) {
  const height = Math.max(LEAST_PX, Math.min(MOST_PX, rows.length * 7));
  const wide = canvas.parentElement?.clientWidth || 290;
  const scale = window.devicePixelRatio || 1;
  canvas.width = wide * scale;
  canvas.height = height * scale;
  canvas.style.width = `${wide}px`;
  canvas.style.height = `${height}px`;
  const brush = canvas.getContext("2d");
  brush.scale(scale, scale);
  const ink = inks();
  const each = height / rows.length;
  const gap = each > 3 ? 1.5 : 0;
  // Lines thinner than a pixel run into each other, unless equals lie side by side.
  const order = isSorted(rows) ? [...rows].sort((a, b) => a.source - b.source || b.used - a.used) : rows;
  order.forEach((row, index) => {
    brush.fillStyle = ink.line;
    brush.fillRect(0, index * each, wide, each - gap);
    brush.fillStyle = ink.hue(hueOf(row.source));
    brush.fillRect(0, index * each, (row.used / width) * wide, each - gap);
    if (row.row !== chosen) return;
    brush.fillStyle = ink.needle;
    brush.fillRect(0, index * each, 3, Math.max(2, each - gap));
  });
}

/** Tell whether rows are too many to be drawn in their order. */
export function isSorted(rows) {
  return rows.length > MOST_PX;
}

/** Return how many segments rows have, in words. */
export function segmentWords(rows) {
  const counts = rows.map((row) => row.segments);
  const [least, most] = [Math.min(...counts), Math.max(...counts)];
  const mean = counts.reduce((sum, count) => sum + count, 0) / counts.length;
  return least === most ? grouped(least) : `${grouped(least)} to ${grouped(most)}, mean ${mean.toFixed(1)}`;
}

/** Return a canvas for the fill of rows. */
export function packingCanvas() {
  return make("canvas", { class: "packing", role: "img" });
}
