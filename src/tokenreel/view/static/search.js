// Search by a document's number, by provenance or by text. Hits are shown as they are found; the
// search is ended by Escape, by its button, and by going away.

import { go, here } from "./address.js";
import { askLines, isExport, pathOf } from "./answers.js";
import { counted, grouped, make, percent } from "./dom.js";
import { sourceName } from "./subject.js";
import { troubleCard } from "./trouble.js";
import { showText, textSpan } from "./visible.js";

/** Return the search field with its list of hits: {element, focus()}. */
export function searchBox(about) {
  const box = new SearchBox(about);
  return { element: box.element, focus: () => box.field.focus() };
}

class SearchBox {
  constructor(about) {
    this.about = about;
    this.field = make("input", {
      type: "search", placeholder: "document, file:line, or text", "aria-label": "Search documents",
      autocomplete: "off", spellcheck: "false", enterkeyhint: "search",
      role: "combobox", "aria-expanded": "false", "aria-controls": "found",
    });
    this.progress = make("div", { class: "search-progress" });
    this.status = make("span", { role: "status" });
    this.cancel = make("button", { type: "button", text: "stop", onclick: () => this.stop("stopped") });
    this.hits = make("div", { class: "found-hits" });
    const head = make("div", { class: "found-head" }, this.status, this.cancel);
    this.found = make("div", { class: "found", id: "found", role: "dialog", "aria-label": "Found documents" },
      this.progress, head, this.hits);
    this.found.hidden = true;
    this.element = make("form", { class: "search", role: "search" }, this.field, this.found);
    this.element.addEventListener("submit", (event) => this.submit(event));
    this.element.hidden = isExport();
    this.element.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("pointerdown", (event) => {
      if (!this.element.contains(event.target)) this.close();
    });
  }

  submit(event) {
    event.preventDefault();
    const words = this.field.value.trim();
    if (words) this.run(words);
    else this.close();
  }

  key(event) {
    if (event.key === "Escape") {
      this.close();
      this.field.blur();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const links = [this.field, ...this.hits.querySelectorAll("button")];
      const next = links.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
      links[Math.max(0, Math.min(links.length - 1, next))]?.focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  close() {
    this.stop();
    this.found.hidden = true;
    this.field.setAttribute("aria-expanded", "false");
  }

  stop(word) {
    if (!this.running) return;
    this.running.abort();
    this.running = null;
    this.cancel.hidden = true;
    if (word) this.status.textContent = `${word}; ${counted(this.numFound, "document")} found so far`;
  }

  async run(words) {
    this.stop();
    const running = (this.running = new AbortController());
    this.numFound = 0;
    this.hits.replaceChildren();
    this.found.hidden = false;
    this.cancel.hidden = false;
    this.field.setAttribute("aria-expanded", "true");
    this.say(0);
    try {
      await askLines(pathOf("api/search", { q: words }, here().target), (line) => {
        if (running === this.running) this.take(line);
      }, running.signal);
    } catch (trouble) {
      if (trouble.name !== "AbortError") this.hits.replaceChildren(troubleCard(trouble));
    }
    if (running === this.running) {
      this.running = null;
      this.cancel.hidden = true;
      this.progress.style.setProperty("--share", 1);
    }
  }

  say(progress) {
    this.progress.style.setProperty("--share", progress);
    this.status.textContent = `looked through ${percent(progress)}; ${counted(this.numFound, "document")} found`;
  }

  take(line) {
    if (line.error) {
      this.hits.append(troubleCard({ parts: line.error }));
    } else if (line.done) {
      const count = this.numFound ? counted(this.numFound, "document") : "no document";
      this.status.textContent = line.more ? `the first ${count} found` : `${count} found`;
    } else if (line.progress !== undefined && line.document === undefined) this.say(line.progress);
    else {
      this.numFound += 1;
      this.hits.append(this.hit(line));
    }
  }

  hit(line) {
    const words = line.document === null ? `token ${grouped(line.at)}` : `document ${grouped(line.document)}`;
    const name = make("span", { class: "found-name" }, make("b", { text: words }));
    if (line.source !== null) name.append(textSpan(sourceName(line.source)));
    if (line.provenance) name.append(textSpan(line.provenance));
    const button = make("button", { type: "button", class: "found-hit", onclick: () => this.open(line) },
      name, line.snippet ? snippet(line.snippet, line.match) : null);
    return button;
  }

  open(line) {
    this.close();
    const { source, store, split, document, at } = line;
    const isOfSource = source !== null && document !== null;
    const place = isOfSource ? { source, store: null, split: null } : { source: null, store, split };
    go({ view: "document", ...place, document, slot: at });
  }
}

// The words that were looked for, marked inside the text around them.
function snippet(text, match) {
  const line = make("span", { class: "snippet" });
  if (!match) return showText(line, text, 300);
  const letters = [...text]; // the server counts characters, not UTF-16 units
  const part = (from, to) => letters.slice(from, to).join("");
  line.append(textSpan(part(0, match[0])), showText(make("mark"), part(...match), 300), textSpan(part(match[1])));
  return line;
}
