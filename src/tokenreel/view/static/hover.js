// What is told of the token under the pointer, in a card beside it.

import { byId, facts, make } from "./dom.js";
import { sourceName } from "./subject.js";
import { shortControl, tokenFacts } from "./tokens.js";
import { showText, showTokenText, textSpan } from "./visible.js";

/** Tell of chips inside `host` under the pointer; a click selects. Return a function that ends it. */
export function watchTokens(host, tokenOf, select) {
  const over = (event) => {
    const chip = event.target.closest?.(".chip");
    if (!chip || event.pointerType === "touch") return hideHover();
    const token = tokenOf(chip);
    return token ? showHover(chip, token) : hideHover();
  };
  const click = (event) => {
    const chip = event.target.closest?.(".chip");
    if (chip && !String(getSelection())) select(chip);
  };
  host.addEventListener("pointerover", over);
  host.addEventListener("pointerleave", hideHover);
  host.addEventListener("click", click);
  window.addEventListener("scroll", hideHover, { passive: true });
  return () => {
    hideHover();
    window.removeEventListener("scroll", hideHover);
  };
}

/** Hide the card. */
export function hideHover() {
  byId("hover").hidden = true;
}

function showHover(chip, token) {
  const card = byId("hover");
  card.replaceChildren(...tokenCard(token));
  card.hidden = false;
  const box = chip.getClientRects()[0] ?? chip.getBoundingClientRect();
  const left = Math.max(8, Math.min(box.left, innerWidth - card.offsetWidth - 8));
  const below = box.bottom + 8;
  const top = below + card.offsetHeight > innerHeight - 8 ? box.top - card.offsetHeight - 8 : below;
  card.style.transform = `translate(${Math.round(left)}px, ${Math.round(Math.max(8, top))}px)`;
}

function tokenCard(token) {
  const pairs = tokenFacts(token);
  const { segment } = token;
  if (segment) {
    if (segment.document !== null && segment.document !== undefined) {
      pairs.push(["document", textSpan(`${segment.document} of ${token.sourceName ?? sourceName(segment.source)}`)]);
    }
    if (segment.provenance) pairs.push(["from", textSpan(segment.provenance)]);
  }
  return [bigToken(token), facts(pairs)];
}

/** Return the token itself, large. */
export function bigToken(token) {
  const control = token.control ? " control" : "";
  const big = make("span", { class: `chip big ${token.kind}${control}` });
  if (token.kind === "padding") big.textContent = "padding";
  else if (token.control) showText(big, shortControl(token.text ?? String(token.id)));
  else if (!token.hasTexts) big.textContent = String(token.id);
  else if (token.text === null) big.textContent = `part of a character, id ${token.id}`;
  else if (token.text === "") big.textContent = "∅ no text of its own";
  else showTokenText(big, token.text);
  return big;
}
