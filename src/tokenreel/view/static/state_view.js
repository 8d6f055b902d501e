// A stream's state: what it says of itself, its sources, and what its packer holds.

import { ask } from "./answers.js";
import { facts, make } from "./dom.js";
import { card, wordPairs } from "./store_view.js";
import { troubleCard, waitingLine } from "./trouble.js";
import { plainText } from "./visible.js";

export class StateView {
  constructor(host) {
    const place = make("div", {}, waitingLine("Reading the state …"));
    host.replaceChildren(place);
    ask("api/state").then((state) => this.draw(place, state), (trouble) => place.replaceChildren(troubleCard(trouble)));
  }

  end() {}

  move() {}

  draw(host, state) {
    const lanes = state.lanes.map((lane) => card(`lane ${plainText(lane.lane)}`, facts(wordPairs(lane))));
    host.replaceChildren(make("div", { class: "cards" },
      card("state of a stream", facts(state.facts.map(([name, value]) => wordPairs({ [name]: value })[0]))),
      card("counts", facts(wordPairs(state.counts))),
      card("identity", facts(wordPairs(state.identity))), ...lanes));
  }
}
