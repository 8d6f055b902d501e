// What the page is about: the answer to api/target, and the names and hues of its sources.

let subject = null;

/** Take what the page is about from now on. */
export function setSubject(about) {
  subject = about;
}

/** Return the name of a source by its number; a row without one only fills up a batch. */
export function sourceName(number, about = subject) {
  return number === null || number === undefined ? "no source" : about.sources[number]?.name ?? `source ${number}`;
}

/** Return the hue of a source by its number, 0 to 7. */
export function sourceHue(number, about = subject) {
  return (about.sources[number]?.hue ?? number ?? 7) % 8;
}
