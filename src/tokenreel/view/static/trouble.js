// Errors as the page shows them: what happened, where, what was expected, what was found, what to do.

import { make } from "./dom.js";
import { showText } from "./visible.js";

const PARTS = [["where", "Where"], ["expected", "Expected"], ["actual", "Found"], ["remedy", "What to do"]];

/** Return an element that tells an error in its five parts. */
export function troubleCard(trouble) {
  const parts = trouble.parts ?? {
    what: "The page itself failed.",
    where: trouble.stack?.split("\n")[1]?.trim() ?? "",
    expected: "no error in the page",
    actual: trouble.message,
    remedy: "Please report it with the address of this page.",
  };
  const list = make("dl", { class: "facts" });
  for (const [name, label] of PARTS) {
    if (!parts[name]) continue;
    list.append(make("dt", { text: label }), showText(make("dd"), parts[name]));
  }
  return make("section", { class: "trouble", role: "alert" }, showText(make("h2"), parts.what), list);
}

/** Return a quiet line that says what is being waited for. */
export function waitingLine(words) {
  return make("p", { class: "quiet", role: "status", text: words });
}
