// Text as it may be shown: blanks with a dot in each (the style sheet draws it, no text can), ends of
// lines and tabs by pictures, and what could rearrange or forge a page (control characters, direction
// marks, the pictures themselves) by its number, in an element of its own.

const PICTURES = new Map([["\n", "⏎"], ["\t", "⇥"], ["\r", "␍"], ["\0", "␀"]]);
// Controls, formats (direction marks among them), surrogates, private and unassigned, separators;
// blanks other than the common one; and the characters that PICTURES uses.
const BY_NUMBER = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000⏎⇥␍␀]/u;
const PLAIN = /^[\x21-\x7e]*$/;
const PLAIN_LINE = /^[\x20-\x7e]*$/;

function numbered(character) {
  const code = character.codePointAt(0);
  return code < 0x10000
    ? `\\u${code.toString(16).padStart(4, "0")}`
    : `\\U${code.toString(16).padStart(8, "0")}`;
}

function inElement(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.textContent = text;
  return element;
}

/** Put the text of a token into `element`; every blank shows. */
export function showTokenText(element, text) {
  if (PLAIN.test(text)) element.textContent = text;
  else for (const run of text.match(/ +|[^ ]+/g) ?? []) {
    if (run[0] === " ") element.append(inElement("i", "", run));
    else if (PLAIN.test(run)) element.append(run);
    else appendVisible(element, run);
  }
}

/** Put a name, a path or a sentence into `element`, and return it. At most `most` characters. */
export function showText(element, text, most = 2000) {
  const whole = String(text);
  const shown = whole.length > most ? whole.slice(0, most) : whole;
  element.textContent = "";
  if (PLAIN_LINE.test(shown)) element.textContent = shown;
  else appendVisible(element, shown);
  if (shown !== whole) element.append(` … and ${whole.length - most} more characters`);
  return element;
}

/** Return a span with a name, a path or a sentence from a store. */
export function textSpan(text, className = "") {
  return showText(inElement("bdi", className, ""), text);
}

function appendVisible(element, text) {
  let plain = "";
  for (const character of text) {
    const picture = PICTURES.get(character);
    if (picture !== undefined) plain += picture;
    else if (!BY_NUMBER.test(character)) plain += character;
    else {
      if (plain) element.append(plain);
      plain = "";
      element.append(inElement("em", "code", numbered(character)));
    }
  }
  if (plain) element.append(plain);
}

/** Return text as one string for canvases, and for labels that are read aloud. */
export function plainText(text, most = 200) {
  const shown = [...String(text)].slice(0, most);
  return shown.map((character) => (BY_NUMBER.test(character) ? numbered(character) : character)).join("");
}
