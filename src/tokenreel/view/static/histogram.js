// How long documents are: bars over edges, with the count of each in words for those who point at it.

import { grouped } from "./dom.js";

const WIDE = 640;
const HIGH = 150;
const WIDEST_BAR = 72;
const BASE = HIGH - 22;

function drawn(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Return a picture of counts between edges; there is one edge more than there are counts. */
export function histogram({ edges, counts }) {
  const picture = drawn("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, class: "histogram", role: "img" });
  const most = Math.max(1, ...counts);
  const each = Math.min(WIDEST_BAR, WIDE / Math.max(1, counts.length));
  const total = counts.reduce((sum, count) => sum + count, 0);
  const range = `from ${grouped(edges[0])} to ${grouped(edges.at(-1))} tokens`;
  picture.setAttribute("aria-label", `lengths of ${grouped(total)} documents, ${range}`);
  const every = Math.ceil(counts.length / 9);
  counts.forEach((count, index) => {
    const x = index * each;
    const height = count ? Math.max(1.5, (count / most) * (BASE - 16)) : 0;
    const bar = { x: x + 1, y: BASE - height, width: Math.max(1, each - 2), height, rx: 1.5 };
    const words = `${grouped(count)} documents of ${grouped(edges[index])} to ${grouped(edges[index + 1])} tokens`;
    const group = drawn("g", { class: "bar" });
    group.append(
      drawn("rect", { x, y: 0, width: each, height: BASE, class: "whole" }),
      drawn("rect", { ...bar, class: "count" }),
      drawn("title", {}, words),
    );
    picture.append(group);
    const middle = { x: x + each / 2, y: 11, "text-anchor": "middle" };
    if (count === most) picture.append(drawn("text", middle, grouped(count)));
    const edge = grouped(Math.round(edges[index]));
    if (index % every === 0) picture.append(drawn("text", { x: x + 1, y: HIGH - 7 }, edge));
  });
  picture.append(drawn("line", { x1: 0, x2: WIDE, y1: BASE + 0.5, y2: BASE + 0.5, class: "base" }));
  return picture;
}
