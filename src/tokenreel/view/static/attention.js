// The attention picture of a row: which slots (across) a slot (down) may look at. Blocks on the
// diagonal are segments, each sees itself and what came before in it; padding sees nothing.

import { grouped, make } from "./dom.js";
import { inks } from "./theme.js";

const SIDE = 208;

/** Return blocks {start, stop} of slots that see each other: pieces of one segment are one block. */
function blocksOf(segments) {
  const blocks = new Map();
  for (const { number, start, stop } of segments) {
    const block = blocks.get(number);
    if (block) block.stop = stop;
    else blocks.set(number, { start, stop, number });
  }
  return [...blocks.values()];
}

/** Draw the picture; `slot` is the chosen one, or null. */
export function drawAttention(canvas, { segments, width, slot, hueOf }) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = canvas.height = SIDE * scale;
  canvas.style.width = canvas.style.height = `${SIDE}px`;
  const brush = canvas.getContext("2d");
  brush.scale(scale, scale);
  const at = (position) => (position / width) * SIDE;
  const ink = inks();
  for (const segment of blocksOf(segments)) {
    brush.fillStyle = ink.hue(hueOf(segment));
    brush.beginPath();
    brush.moveTo(at(segment.start), at(segment.start));
    brush.lineTo(at(segment.start), at(segment.stop));
    brush.lineTo(at(segment.stop), at(segment.stop));
    brush.fill();
  }
  if (slot === null) return;
  const block = blocksOf(segments).find((one) => one.start <= slot && slot < one.stop);
  const middle = at(slot + 0.5);
  // A line from the first slot that is seen, and a dot; a rim of paper sets them off from every hue.
  for (const [colour, half] of [[ink.panel, 2.5], [ink.needle, 1]]) {
    brush.fillStyle = colour;
    if (block) brush.fillRect(at(block.start), middle - half, Math.max(2, middle - at(block.start)), 2 * half);
    brush.beginPath();
    brush.arc(middle, middle, 2 + half, 0, 7);
    brush.fill();
  }
}

/** Return what the chosen slot sees, in words. */
export function attentionWords(segments, slot, width) {
  const blocks = blocksOf(segments);
  const used = blocks.reduce((sum, block) => sum + block.stop - block.start, 0);
  if (slot === null) {
    const count = blocks.length === 1 ? "One segment" : `${grouped(blocks.length)} segments, none sees another`;
    return `${count}; ${grouped(width - used)} of ${grouped(width)} slots are padding.`;
  }
  const block = blocks.find((one) => one.start <= slot && slot < one.stop);
  if (!block) return `Slot ${grouped(slot)} is padding: no slot sees it.`;
  return `Slot ${grouped(slot)} sees slots ${grouped(block.start)} to ${grouped(slot)}: its own segment, up to itself.`;
}

/** Return a canvas that is told to those who listen by `words`. */
export function attentionCanvas() {
  return make("canvas", { class: "attention", role: "img" });
}
