// Asks the server, or the answers that an exported file carries. One request per question: answers
// are kept (the least recently used are dropped), and who asks twice gets the same promise.

const MOST_KEPT = 400;
const kept = new Map(); // path -> {promise, value}
const embedded = readEmbedded();
let numWaiting = 0;
let whenBusy = () => {};

function readEmbedded() {
  const element = document.getElementById("answers");
  return element ? JSON.parse(element.textContent) : null;
}

/** What went wrong, in the five parts that tokenreel's errors have. */
class Trouble extends Error {
  constructor({ what, where, expected, actual, remedy }) {
    super(what);
    this.parts = { what, where, expected, actual, remedy };
  }
}

/** Tell whether this page is an exported file, which has no server. */
export function isExport() {
  return embedded !== null;
}

/** Call `listener(true|false)` when the first request goes out and when the last is answered. */
export function onBusy(listener) {
  whenBusy = listener;
}

/** Return a promise of the answer to a path below the page's address. */
export function ask(path) {
  const known = kept.get(path);
  if (known) {
    kept.delete(path);
    kept.set(path, known);
    return known.promise;
  }
  const entry = { promise: null, value: undefined };
  entry.promise = (embedded ? fromExport(path) : fromServer(path)).then(
    (value) => (entry.value = value),
    (trouble) => {
      kept.delete(path); // a second try asks again
      throw trouble;
    },
  );
  kept.set(path, entry);
  if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value);
  return entry.promise;
}

/** Return the answer if it is here already, else undefined. */
export function answered(path) {
  return kept.get(path)?.value ?? (embedded ? embeddedAnswer(path) : undefined);
}

// An exported file has whole answers: they stand under the question without its parameters, but for
// the one that names the second of two targets.
function embeddedAnswer(path) {
  const question = path.replace(/\?.*?(target=1)?$/, (all, target) => (target ? `?${target}` : ""));
  return Object.hasOwn(embedded, question) ? embedded[question] : undefined;
}

async function fromExport(path) {
  const answer = embeddedAnswer(path);
  if (answer !== undefined) return answer;
  throw new Trouble({
    what: "That is not in this file.",
    where: path,
    expected: "what was exported with the view",
    actual: "a file by itself, without a server to ask",
    remedy: "Open the recipe or the store with “tokenreel view”.",
  });
}

async function fromServer(path) {
  if (numWaiting++ === 0) whenBusy(true);
  try {
    const response = await reached(path, {});
    const body = await response.json().catch(() => null);
    if (!response.ok) throw new Trouble(body?.error ?? unexplained(path, response));
    return body;
  } finally {
    if (--numWaiting === 0) whenBusy(false);
  }
}

async function reached(path, options) {
  try {
    return await fetch(path, options);
  } catch (failure) {
    if (failure.name === "AbortError") throw failure;
    throw new Trouble({
      what: "The server does not answer.",
      where: path,
      expected: "“tokenreel view” running on this machine",
      actual: failure.message,
      remedy: "Start “tokenreel view” again and open the address that it prints.",
    });
  }
}

function unexplained(path, response) {
  return {
    what: "The server refused this question.",
    where: path,
    expected: "an answer in JSON",
    actual: `status ${response.status}`,
    remedy: "Reload the page; if it happens again, the page and the server are of different versions.",
  };
}

/** Call `eachLine` with every object of an answer of lines, as they arrive, until `signal` ends it. */
export async function askLines(path, eachLine, signal) {
  const response = await reached(path, { signal });
  if (!response.ok) {
    const body = await response.json().catch(() => null);
    throw new Trouble(body?.error ?? unexplained(path, response));
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line) eachLine(JSON.parse(line));
  }
  if (rest) eachLine(JSON.parse(rest));
}

/** Return a path of the interface: `pathOf("api/step/5", {world_size: 2}, 1)`. */
export function pathOf(path, parameters = {}, target = 0) {
  const words = Object.entries(parameters)
    .filter(([, value]) => value !== null && value !== undefined)
    .map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
  if (target) words.push(`target=${target}`);
  return words.length ? `${path}?${words.join("&")}` : path;
}
