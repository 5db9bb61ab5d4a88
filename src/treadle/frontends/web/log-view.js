// The log as it is: every recorded event, with a filter; copies as JSON lines, and new chats from any place of it.

import { exportChat } from "./chat-options.js";
import { button, copy, h, inert } from "./dom.js";
import { fold as folded } from "./row-views.js";
import { api, chatPath } from "./session.js";

const PAGE = 200;
const MOST = 500;
const SHOWN = 400;

class LogView extends HTMLElement {
  begin(page) {
    Object.assign(this, { page, events: [], first: 0, head: 0, kept: new Map() });
    this.filter = h("input", { type: "search", placeholder: "Filter: type or any text", "aria-label": "Filter events",
        on: { input: () => { clearTimeout(this.timer); this.timer = setTimeout(() => this.search(), 200); } } });
    this.older = button("Load earlier events", () => this.load().then(() => this.draw()), { class: "quiet" });
    this.list = h("ol", { class: "events" });
    this.said = h("span", { class: "muted", role: "status" });
    this.replaceChildren(h("div", { class: "panel-bar" }, this.filter, this.said, h("span", { class: "space" }),
      button("Copy as JSONL", () => copy(this.matching().map((event) => JSON.stringify(event)).join("\n")), { title: "The loaded events that match" }),
          button("Download", () => exportChat(this.page.chat))), this.older, this.list);
  }

  async update(fold) {
    if (this.head === fold.seq || this.busy) return;
    this.busy = true;
    try {
      while (this.head < fold.seq) {
        const after = this.head || Math.max(0, fold.seq - PAGE);
        const { events } = await api("GET", chatPath(this.page.chat, `/log?after=${after}&limit=${PAGE}`));
        if (!events.length) break;
        if (!this.head) this.first = events[0].seq;
        this.events.push(...events);
        this.head = events.at(-1).seq;
      }
    } catch (error) {
      this.said.textContent = inert(error.message);
    }
    this.busy = false;
    this.draw();
  }

  /** A page of what lies before. */
  async load(many = PAGE) {
    if (this.first <= 1) return;
    const after = Math.max(0, this.first - 1 - many);
    const { events } = await api("GET", chatPath(this.page.chat, `/log?after=${after}&limit=${this.first - 1 - after}`));
    this.events.unshift(...events);
    this.first = after + 1;
  }

  /** What is remembered of an event: whether it is open, and its text for the filter. */
  about(event) {
    if (!this.kept.has(event.seq)) this.kept.set(event.seq, { text: JSON.stringify(event).toLowerCase() });
    return this.kept.get(event.seq);
  }

  matching() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    return words.length ? this.events.filter((event) => words.every((word) => this.about(event).text.includes(word))) : this.events;
  }

  /** With a filter, earlier pages are read until enough is found. */
  async search() {
    const wanted = this.filter.value;
    this.draw();
    while (wanted && wanted === this.filter.value && this.isConnected && this.first > 1 && this.matching().length < SHOWN / 4) {
      await this.load(MOST);
      this.draw();
    }
  }

  draw() {
    const found = this.matching();
    const count = (value) => value.toLocaleString("en");
    this.older.hidden = this.first <= 1;
    this.said.textContent = `${this.filter.value.trim() ? `${count(found.length)} match, of ` : ""}${this.first > 1
        ? `the last ${count(this.events.length)} of ` : ""}${count(this.head)} events`;
    this.list.replaceChildren(...found.slice(-SHOWN).reverse().map((event) => this.line(event)));
  }

  line(event) {
    const brief = JSON.stringify(event.data).slice(0, 200);
    return h("li", { data: { seq: event.seq } }, folded(this.about(event), "open",
        [h("span", { class: "seq" }, event.seq), h("time", { datetime: event.time }, event.time.slice(11, 23)), h("b", {}, event.type),
        h("span", { class: "muted brief" }, brief)],
      () => [h("pre", { class: "output", tabindex: "0" }, JSON.stringify(event, null, 2)),
          h("div", { class: "tools" }, button("Show in the conversation", () => this.page.showEvent(event.seq), { class: "small" }),
        button("Fork from here", () => this.page.fork(event.seq), { class: "small" }),
            button("Copy", () => copy(JSON.stringify(event)), { class: "small" }))]));
  }
}
customElements.define("log-view", LogView);
