// Tokens as chips. What a chip shows is decided here: its classes, its text, and what is told of it.

import { decimal, grouped, make } from "./dom.js";
import { sourceHue } from "./subject.js";
import { plainText, showTokenText } from "./visible.js";

const LONG_CHARACTERS = 24; // longer tokens may break at the end of a line
export const COLOURS = ["loss", "segment", "source", "turn"];

/** Return chips for slots start to stop of `part` (an answer with ids, texts, weights …). */
export function chipsOf(part, start, stop, palette) {
  const fragment = document.createDocumentFragment();
  const walk = new SlotWalk(part, start);
  for (let slot = start; slot < stop; slot++) {
    const { segment, turn, control, begins, turns } = walk.at(slot);
    if (!segment) {
      let end = slot;
      while (end < stop && !walk.at(end).segment) end++;
      fragment.append(paddingChip(slot, end), document.createElement("wbr"));
      slot = end - 1;
      continue;
    }
    const index = slot - part.start;
    const chip = document.createElement("span");
    const weight = part.weights[index];
    let names = weight > 0 ? "chip trained" : "chip context";
    if (control) names += " control";
    if (begins) names += " begins";
    else if (turns) names += " turns";
    const hue = palette.hueOf(segment, turn);
    if (hue !== null) names += ` hue-${hue}`;
    else if (palette.colour !== "loss") names += " no-hue";
    chip.className = names;
    chip.setAttribute("data-slot", slot);
    if (weight > 0 && weight !== 1) chip.style.setProperty("--weight", Math.min(1, weight));
    showChipText(chip, part, index, control);
    const endsLine = palette.linesBreak && slot + 1 < stop && part.texts[index]?.endsWith("\n");
    if (endsLine) chip.classList.add("ends-line");
    // A line may end behind every chip, and inside none.
    fragment.append(chip, document.createElement("wbr"));
  }
  return fragment;
}

function showChipText(chip, part, index, control) {
  const text = part.texts[index];
  if (control) showTokenText(chip, shortControl(text ?? String(part.ids[index])));
  else if (text) {
    if (text.length > LONG_CHARACTERS) chip.classList.add("long");
    showTokenText(chip, text);
  } else if (!hasTexts(part)) chip.textContent = String(part.ids[index]);
  else {
    chip.classList.add("part");
    chip.textContent = text === "" ? "∅" : "◦";
  }
}

// Without a tokenizer no slot has a text, and tokens are shown by their ids.
function hasTexts(part) {
  part.hasTexts ??= part.texts.some((text) => text !== null);
  return part.hasTexts;
}

function paddingChip(start, stop) {
  const chip = make("span", { class: "chip padding", "data-slot": start, "data-stop": stop });
  chip.textContent = stop - start > 1 ? `${grouped(stop - start)} padding` : "padding";
  return chip;
}

/** Return the name inside a control token: "<|im_end|>" gives "im_end", without a long hash. */
export function shortControl(text) {
  const inner = /^<[|｜]?(.+?)[|｜]?>$/.exec(text)?.[1] ?? text;
  return inner.replace(/_[0-9a-f]{16,}$/, "").replace(/^ngpt_/, "") || text;
}

/** Walks through slots in order and tells which segment and turn each belongs to. */
class SlotWalk {
  constructor(part, start) {
    this.segments = part.segments;
    this.turns = part.turns ?? [];
    this.controls = new Set(part.controls);
    this.segmentIndex = 0;
    this.turnIndex = 0;
    this.start = start;
  }

  at(slot) {
    while (this.segments[this.segmentIndex]?.stop <= slot) this.segmentIndex++;
    while (this.turns[this.turnIndex]?.stop <= slot) this.turnIndex++;
    const segment = covering(this.segments[this.segmentIndex], slot);
    const turn = covering(this.turns[this.turnIndex], slot);
    return {
      segment,
      turn,
      control: this.controls.has(slot),
      begins: segment !== null && segment.start === slot && slot > 0,
      turns: turn !== null && turn.start === slot && slot > this.start,
    };
  }
}

function covering(range, slot) {
  return range && range.start <= slot && slot < range.stop ? range : null;
}

/** Which hue a token has in each way of colouring, and the words of the legend. */
export class Palette {
  constructor(about, colour) {
    this.colour = colour;
    this.about = about;
    this.roles = new Map(about.roles.map((role, index) => [role, index]));
    this.linesBreak = false;
  }

  hueOf(segment, turn) {
    if (this.colour === "segment") return (segment.number - 1) % 8;
    if (this.colour === "source") return sourceHue(segment.source, this.about);
    if (this.colour === "turn") return turn ? this.roleHue(turn.role) : null;
    return null;
  }

  roleHue(role) {
    if (!this.roles.has(role)) this.roles.set(role, this.roles.size);
    return this.roles.get(role) % 8;
  }

  /** Return pairs of (classes of a chip, its word, what it means). */
  legend() {
    const kinds = [
      ["chip trained", "trained", "the model is asked for it"],
      ["chip context", "context", "seen, not asked for"],
      ["chip control", "control", "made by structure, never by text"],
      ["chip padding", "padding", ""],
    ];
    if (!this.about.has_tokenizer) kinds.push(["", "", "no tokenizer is at hand: tokens are shown by their ids"]);
    if (this.colour === "loss") return kinds;
    const underline = ["chip trained plain", "underlined", "trained"];
    if (this.colour === "source") {
      const sources = this.about.sources.map((source, index) => [source.name, source.hue ?? index]);
      return [...named(sources), underline];
    }
    if (this.colour === "turn") {
      return [...named([...this.roles]), ["chip trained no-hue", "none", "in no turn"], underline];
    }
    const first = [["segment 1", 0], ["segment 2", 1], ["segment 3", 2]];
    return [...named(first), ["", "", "and so on, eight in turn"], underline];
  }
}

function named(hues) {
  return hues.slice(0, 12).map(([name, hue]) => [`chip trained hue-${hue % 8}`, name, ""]);
}

/** Return all that is known of the token in a slot of `part`, or null where nothing is. */
export function tokenAt(part, slot) {
  const index = slot - part.start;
  if (index < 0 || slot >= part.stop || index >= part.ids.length) return null;
  const { segment, turn, control } = new SlotWalk(part, slot).at(slot);
  const weight = part.weights[index];
  const first = part.segments.find((other) => other.number === segment?.number);
  return {
    slot,
    id: part.ids[index],
    text: part.texts[index],
    hasTexts: hasTexts(part),
    width: part.width,
    isDocument: part.isDocument ?? false,
    weight,
    control,
    segment,
    role: turn?.role ?? null,
    position: segment ? slot - first.start : null,
    kind: !segment ? "padding" : weight > 0 ? "trained" : "context",
  };
}

/** Return the pairs (word, value) that tell of a token. */
export function tokenFacts(token) {
  const { segment, isDocument } = token;
  const position = segment && !isDocument ? `, position ${grouped(token.position)}` : "";
  return [
    ["id", segment ? grouped(token.id) : null],
    [isDocument ? "token" : "slot", `${grouped(token.slot)} of ${grouped(token.width)}${position}`],
    ["segment", segment && !isDocument ? grouped(segment.number) : null],
    ["weight", segment ? `${decimal(token.weight)} (${token.kind})` : null],
    ["turn", token.role],
    ["answer", segment?.role_of_answer],
    ["group", segment?.group === undefined ? null : grouped(segment.group)],
  ];
}

/** Return a sentence about a token, for those who listen. */
export function spokenToken(token) {
  if (token.kind === "padding") return `padding, slot ${token.slot}`;
  const text = token.text === null ? `id ${token.id}` : plainText(token.text).replaceAll(" ", "space ");
  const where = token.segment.provenance;
  const kind = token.control ? `control, ${token.kind}` : token.kind;
  const named = token.segment.document === null ? "" : `, document ${token.segment.document}`;
  return `${text}, id ${token.id}, ${kind}, slot ${token.slot}${named}${where ? `, ${plainText(where)}` : ""}`;
}
