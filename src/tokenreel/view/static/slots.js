// Slots of rows and of documents, fetched in slices while one scrolls. A chunk (what is drawn as one
// element) lies inside one slice, and slices begin at multiples of their size: the same questions are
// asked whatever the size of the window, so that an exported file can hold their answers.

import { answered, ask, isExport, pathOf } from "./answers.js";

export const CHUNK = 256; // slots of one element
export const SLICE = 2048; // slots of one answer
export const FIRST_SLOTS = 512; // of each row, in the first paint
const ROWS_AT_ONCE = 8;

/** Return the question for the summary of a step. */
export function stepPath(step, ranks, target) {
  return pathOf(`api/step/${step}`, { world_size: ranks }, target);
}

/** Return the question for the first slots of the eight rows that `row` is among. */
export function firstPath(step, row, target) {
  const start = row - (row % ROWS_AT_ONCE);
  return pathOf(`api/step/${step}/rows`, { start, stop: start + ROWS_AT_ONCE, slots: FIRST_SLOTS }, target);
}

function slicePath(base, start, target) {
  const first = start - (start % SLICE);
  return pathOf(base, { start: first, stop: first + SLICE }, target);
}

// The answer of the first paint has the first slots of a row; an exported file has whole rows instead.
function isFirst(stop, width) {
  return !isExport() && Math.min(stop, width) <= FIRST_SLOTS;
}

/** The slots of one row of a step. */
export class RowSlots {
  constructor(step, row, width, target) {
    Object.assign(this, { step, row, width, target });
    this.base = `api/step/${step}/row/${row}`;
  }

  get length() {
    return this.width;
  }

  /** Return the answer that holds the slots start to stop if it is here, else undefined. */
  here(start, stop) {
    if (isFirst(stop, this.width)) {
      const first = answered(firstPath(this.step, this.row, this.target));
      if (first) return first.find((part) => part.row === this.row);
    }
    return answered(slicePath(this.base, start, this.target));
  }

  /** Return a promise of the answer that holds the slots start to stop. */
  async load(start, stop) {
    if (!isFirst(stop, this.width)) return ask(slicePath(this.base, start, this.target));
    const first = await ask(firstPath(this.step, this.row, this.target));
    return first.find((part) => part.row === this.row);
  }

  /** Return a promise of all segments of the row, in order. */
  async segments() {
    if (isFirst(this.width, this.width)) return (await this.load(0, this.width)).segments;
    return (await ask(pathOf(`${this.base}/segments`, {}, this.target))).segments;
  }
}

/** The tokens of one document; the whole document is one segment. */
export class DocumentSlots {
  constructor(base, tokens, target) {
    Object.assign(this, { base, tokens, target });
  }

  get length() {
    return this.tokens;
  }

  here(start) {
    const answer = answered(slicePath(this.base, start, this.target));
    return answer && asPart(answer, start);
  }

  async load(start) {
    return asPart(await ask(slicePath(this.base, start, this.target)), start);
  }
}

/** Return the answer to a document's slice in the shape of a row's: one segment over all of it. */
export function asPart(answer, start) {
  const first = answer.start ?? start - (start % SLICE);
  const whole = {
    number: 1, start: 0, stop: answer.tokens, source: answer.source ?? null, document: answer.document ?? null,
    provenance: answer.provenance ?? null, from: 0, to: answer.tokens,
  };
  const range = { start: first, stop: first + answer.ids.length, width: answer.tokens };
  return { ...answer, ...range, turns: answer.turns ?? [], segments: [whole], isDocument: true };
}

/** Return the question for a document of a source or of a split; without a number, for all tokens of a split. */
export function documentBase({ source, document, store, split }) {
  if (source !== null) return `api/document/${source}/${document ?? 0}`;
  const base = `api/store/${store ?? 0}/${split ?? 0}`;
  return document === null ? `${base}/tokens` : `${base}/document/${document}`;
}
