// A run once more, from the log, at any speed: its events at the distances at which they came, answers as they were
// written, long waits shortened. Nothing is asked of a model.

import "./conversation.js";
import { ChatFold } from "./chat-fold.js";
import { button, duration, h } from "./dom.js";
import { api, chatPath } from "./session.js";

const LONGEST_MS = 3_000;
const PIECES = 40;

class ReplayView extends HTMLElement {
  async begin(page, from, to) {
    Object.assign(this, { page, at: 0, from, playing: true, speed: 1 });
    this.range = h("input", { type: "range", min: 0, value: 0, "aria-label": "Place in the run",
        on: { input: () => this.seek(Number(this.range.value)) } });
    this.said = h("span", { class: "muted" });
    this.button = button("Pause", () => this.toggle(), { class: "small" });
    const speed = h("select", { "aria-label": "Speed", on: { change: () => { this.speed = Number(speed.value); } } },
        [0.5, 1, 2, 5, 20].map((each) => h("option", { value: each, selected: each === 1 }, `${each}×`)));
    this.conversation = document.createElement("chat-conversation");
    this.replaceChildren(h("div", { class: "panel-bar" }, this.button, speed, this.range, this.said), this.conversation);
    const events = [];
    for (let after = 0; after < to;) {
      const read = await api("GET", chatPath(page.chat, `/log?after=${after}&limit=${Math.min(500, to - after)}`));
      if (!read.events.length) break;
      events.push(...read.events);
      after = events.at(-1).seq;
    }
    this.before = events.filter((event) => event.seq < from);
    this.steps = steps(events.filter((event) => event.seq >= from));
    this.range.max = this.steps.length;
    this.seek(0);
    this.play();
  }

  disconnectedCallback() { clearTimeout(this.timer); }

  seek(at) {
    this.fold = new ChatFold();
    for (const event of this.before) this.fold.take(event);
    for (const { event } of this.steps.slice(0, at)) this.fold.take(event);
    this.at = at;
    this.conversation.begin(this.fold, { readOnly: true, split: () => this.page.split(), whole: (seq) => this.page.whole(seq) });
    this.tell();
  }

  tell() {
    this.range.value = this.at;
    this.said.textContent = `${duration(this.steps.slice(0, this.at).reduce((sum, step) => sum + step.wait, 0))} of ${duration(this.steps.reduce((sum, step) => sum + step.wait, 0))}`;
  }

  toggle() {
    this.playing = !this.playing;
    this.button.textContent = this.playing ? "Pause" : "Play";
    if (this.playing && this.at >= this.steps.length) this.seek(0);
    if (this.playing) this.play();
    else clearTimeout(this.timer);
  }

  play() {
    clearTimeout(this.timer);
    if (!this.playing) return;
    if (this.at >= this.steps.length) return this.toggle();
    this.timer = setTimeout(() => {
      this.fold.take(this.steps[this.at].event);
      this.at += 1;
      this.conversation.news();
      this.tell();
      this.play();
    }, this.steps[this.at].wait / this.speed);
  }
}
customElements.define("replay-view", ReplayView);

/** Events with the time before each; an answer comes in pieces, as it did. */
function steps(events) {
  const made = [];
  let last = events.length ? Date.parse(events[0].time) : 0;
  for (const event of events) {
    const wait = Math.min(LONGEST_MS, Math.max(0, Date.parse(event.time) - last));
    last = Date.parse(event.time);
    const text = event.type === "assistant.message" ? event.data.content : "";
    const size = Math.ceil(text.length / PIECES) || 1;
    const count = Math.ceil(text.length / size);
    for (let at = 0; at < text.length; at += size) made.push({ wait: Math.max(wait / count, 20),
        event: { type: "assistant.message_delta", time: event.time, data: { turn: event.data.turn, text: text.slice(at, at + size) } } });
    made.push({ wait: text ? 0 : wait, event });
  }
  return made;
}
