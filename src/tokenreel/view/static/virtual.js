// A list of any length of which only what is near the window is in the page. Heights are guessed,
// then measured; when a guess above the window was wrong, the page is scrolled by the difference, so
// that what is read stays where it is. The cost of a frame is in proportion to the window.

import { eachFrame } from "./dom.js";

const MARGIN_PX = 500; // drawn above and below the window
const SPARE_PER_FRAME = 2; // elements built in a frame for what is not seen yet

export class VirtualList {
  /**
   * `build(item)` makes an element, `guess(item)` its height; `inset()` and `foot()` are what
   * covers the window's top and bottom.
   */
  constructor(host, { build, guess, inset, foot, moved }) {
    this.host = host;
    this.build = build;
    this.guess = guess;
    this.inset = inset;
    this.foot = foot ?? (() => 0);
    this.moved = moved ?? (() => {});
    this.items = [];
    this.tops = new Float64Array(1);
    this.elements = new Map(); // key -> element in the page
    this.heights = new Map(); // key -> measured height
    this.width = 0;
    this.draw = eachFrame(() => this.update());
    this.sizes = new ResizeObserver((entries) => this.measure(entries));
    this.widths = new ResizeObserver(() => this.widthChanged());
    this.widths.observe(host);
    window.addEventListener("scroll", this.draw, { passive: true });
    window.addEventListener("resize", this.draw);
  }

  /** Take other items, each with a `key`; elements of before are dropped unless `keep(key)`. */
  setItems(items, keep = () => false) {
    for (const [key, element] of this.elements) {
      if (!keep(key)) this.drop(key, element);
    }
    this.items = items;
    this.place();
    this.update();
  }

  /** Forget everything; the list is of no use afterwards. */
  end() {
    this.sizes.disconnect();
    this.widths.disconnect();
    window.removeEventListener("scroll", this.draw);
    window.removeEventListener("resize", this.draw);
  }

  /** Build the elements of these keys anew, where they are in the page. */
  rebuild(keys) {
    for (const key of keys) {
      const element = this.elements.get(key);
      if (element) this.drop(key, element);
    }
    this.update();
  }

  /** Scroll the least that brings an item (or the first `height` of it) into the window. */
  reveal(key, height = Infinity) {
    const index = this.items.findIndex((item) => item.key === key);
    if (index < 0) return;
    const top = this.host.getBoundingClientRect().top + this.tops[index];
    this.revealBox({ top, bottom: top + Math.min(height, this.tops[index + 1] - this.tops[index]) });
    this.update();
  }

  /** Scroll the least that brings a box, in the coordinates of the window, into it. */
  revealBox({ top, bottom }) {
    const first = this.inset() + 8;
    const last = innerHeight - this.foot() - 24;
    if (top < first) window.scrollBy(0, top - first);
    else if (bottom > last) window.scrollBy(0, Math.min(top - first, bottom - last));
  }

  /** Return the first item in the window, or null. */
  firstSeen() {
    if (!this.items.length) return null;
    const from = this.inset() - this.host.getBoundingClientRect().top;
    return this.items[this.indexAt(Math.max(0, from))];
  }

  /** Return the last item in the window, or null. */
  lastSeen() {
    if (!this.items.length) return null;
    return this.items[this.indexAt(Math.max(0, innerHeight - this.host.getBoundingClientRect().top))];
  }

  place() {
    const tops = new Float64Array(this.items.length + 1);
    this.items.forEach((item, index) => {
      tops[index + 1] = tops[index] + (this.heights.get(item.key) ?? this.guess(item));
    });
    this.tops = tops;
    this.host.style.height = `${tops[this.items.length]}px`;
  }

  indexAt(offset) {
    let low = 0;
    let high = this.items.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.tops[middle] <= offset) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  update() {
    if (!this.items.length || !this.host.isConnected) return;
    const top = -this.host.getBoundingClientRect().top;
    const bottom = top + innerHeight;
    const first = this.indexAt(Math.max(0, top - MARGIN_PX));
    const last = this.indexAt(Math.max(0, bottom + MARGIN_PX));
    const wanted = new Set();
    let spare = SPARE_PER_FRAME;
    for (let index = first; index <= last; index++) {
      const item = this.items[index];
      wanted.add(item.key);
      const isSeen = this.tops[index + 1] > top && this.tops[index] < bottom;
      // What is only near the window is built over several frames.
      if (isSeen || this.elements.has(item.key) || spare-- > 0) this.show(item, this.tops[index]);
    }
    for (const [key, element] of this.elements) {
      if (!wanted.has(key) && !element.contains(document.activeElement)) this.drop(key, element);
    }
    if (spare < 0) this.draw();
    this.moved();
  }

  show(item, top) {
    let element = this.elements.get(item.key);
    if (!element) {
      element = this.build(item);
      element.classList.add("item");
      element.listKey = item.key;
      this.elements.set(item.key, element);
      this.host.append(element);
      this.sizes.observe(element);
    }
    if (element.listTop !== top) {
      element.listTop = top;
      element.style.transform = `translateY(${top}px)`;
    }
  }

  drop(key, element) {
    this.sizes.unobserve(element);
    element.remove();
    this.elements.delete(key);
  }

  measure(entries) {
    const anchor = this.firstSeen();
    const index = anchor ? this.items.indexOf(anchor) : 0;
    const before = this.tops[index];
    let changed = false;
    for (const { target, borderBoxSize } of entries) {
      const height = borderBoxSize[0].blockSize;
      if (!target.isConnected || Math.abs((this.heights.get(target.listKey) ?? -1) - height) < 0.5) continue;
      this.heights.set(target.listKey, height);
      changed = true;
    }
    if (!changed) return;
    this.place();
    const shift = this.tops[index] - before;
    if (shift && this.host.getBoundingClientRect().top < this.inset()) window.scrollBy(0, shift);
    this.update();
  }

  widthChanged() {
    const width = this.host.clientWidth;
    if (width === this.width) return;
    if (this.width) this.heights.clear(); // lines break elsewhere now
    this.width = width;
    this.place();
    this.update();
  }
}
