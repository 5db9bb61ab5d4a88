// A run once more, from the log, at any speed: its events at the distances at which they came, answers as they were
// written, long waits shortened. Nothing is asked of a model.

import "./conversation.js";
import { ChatFold } from "./chat-fold.js";
import { button, duration, h, inert } from "./dom.js";
import { api, chatPath } from "./session.js";

const LONGEST_MS = 3_000;
const PIECES = 40;
const PAGE = 500;
const FRAME_MS = 16;

class ReplayView extends HTMLElement {
  async begin(page, from, to) {
    Object.assign(this, { page, at: 0, clock: 0, from, playing: true, speed: 1 });
    this.range = h("input", { type: "range", min: 0, value: 0, disabled: true, "aria-label": "Place in the run",
        on: { input: () => this.seek(Number(this.range.value)) } });
    this.said = h("span", { class: "muted", role: "status" }, "Reading the log …");
    this.button = button("Pause", () => this.toggle(), { class: "small", disabled: true });
    const speed = h("select", { "aria-label": "Speed", on: { change: () => { this.speed = Number(speed.value); } } },
        [0.5, 1, 2, 5, 20, 100].map((each) => h("option", { value: each, selected: each === 1 }, `${each}×`)));
    this.conversation = document.createElement("chat-conversation");
    this.replaceChildren(h("div", { class: "panel-bar" }, this.button, speed, this.range, this.said), this.conversation);
    try {
      await this.read(from, to);
    } catch (error) {
      this.said.textContent = inert(error.message);
      return;
    }
    if (!this.isConnected) return;
    this.range.disabled = this.button.disabled = false;
    this.range.max = this.steps.length;
    this.jump(0);
    this.play();
  }

  /** The events of the run, and the first of the chat, which has its options. */
  async read(from, to) {
    const starts = Array.from({ length: Math.ceil((to - from + 1) / PAGE) }, (_, at) => from - 1 + at * PAGE);
    const read = await Promise.all([0, ...starts].map((after, at) => api("GET",
        chatPath(this.page.chat, `/log?after=${after}&limit=${at ? Math.min(PAGE, to - after) : 1}`))));
    const [first, ...events] = read.flatMap((each) => each.events);
    let past = 0;
    Object.assign(this, { first, steps: steps(events) });
    this.past = [0, ...this.steps.map(({ wait }) => (past += wait))];
  }

  disconnectedCallback() { clearInterval(this.timer); cancelAnimationFrame(this.frame); }

  /** Go to a place; while somebody drags, only to the last of those that came in one frame. */
  seek(at) {
    this.wanted = at;
    this.frame ??= requestAnimationFrame(() => { this.frame = null; this.jump(this.wanted); });
  }

  jump(at) {
    if (!this.fold || at < this.at) {
      this.fold = new ChatFold();
      this.fold.take(this.first);
      this.fold.seq = this.from - 1;
      this.at = 0;
      this.conversation.begin(this.fold, { readOnly: true, split: () => this.page.split(), part: (...which) => this.page.part(...which), showFile: (...which) => this.page.showFile(...which) });
    }
    this.clock = this.past[at];
    this.takeUpTo(at);
    this.conversation.toEnd();
  }

  takeUpTo(at) {
    while (this.at < at) this.fold.take(this.steps[this.at++].event);
    this.range.value = this.at;
    this.said.textContent = `${duration(this.past[this.at])} of ${duration(this.past.at(-1))}`;
  }

  toggle() {
    this.playing = !this.playing;
    this.button.textContent = this.playing ? "Pause" : "Play";
    clearInterval(this.timer);
    if (this.playing && this.at >= this.steps.length) this.jump(0);
    if (this.playing) this.play();
  }

  play() {
    let last = performance.now();
    this.timer = setInterval(() => {
      const now = performance.now();
      this.clock += (now - last) * this.speed;
      last = now;
      let at = this.at;
      while (at < this.steps.length && this.past[at + 1] <= this.clock) at += 1;
      if (at > this.at) { this.takeUpTo(at); this.conversation.news(); }
      if (at >= this.steps.length) this.toggle();
    }, FRAME_MS);
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
