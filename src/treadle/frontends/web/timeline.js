// A run as a picture: turns, calls, waits, retries and compaction on an axis of time, with tokens and cost below. A bar
// leads to its event. Long waits can be drawn short, so that the work is seen; what would be too thin stands together.

import { duration, h, money, number, svg } from "./dom.js";

const KINDS = { turn: "model", call: "tools", wait: "waits", retry: "retries", compaction: "compaction" };
const ROW = 22;
const LEFT = 84;
const SHORT_MS = 2_000;
const STEPS_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 3e4, 6e4, 12e4, 18e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 144e5,
    288e5, 864e5];
const THIN = 3;
const MANY = 200;
const LEGEND = [["fresh", "read"], ["cached", "read from the cache"], ["written", "written"]];

class Timeline extends HTMLElement {
  begin(page) {
    Object.assign(this, { page, run: 0 });
    this.runs = h("select", { "aria-label": "Which run", on: { change: () => { this.run = Number(this.runs.value); this.draw(); } } });
    this.squeeze = h("input", { type: "checkbox", checked: true, on: { change: () => this.draw() } });
    this.place = h("div", { class: "timeline wide", tabindex: "0" });
    this.replaceChildren(h("div", { class: "panel-bar" }, this.runs, h("label", {}, this.squeeze, "Shorten waits")), this.place);
    this.sizes = new ResizeObserver(() => this.draw());
    this.sizes.observe(this);
  }

  disconnectedCallback() { this.sizes?.disconnect(); clearTimeout(this.timer); }

  update(fold) {
    this.fold = fold;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.draw(), 150);
  }

  draw() {
    if (!this.fold || !this.clientWidth) return;
    const runs = this.fold.spans.filter((span) => span.kind === "run");
    const chosen = runs.find((span) => span.seq === this.run) ?? runs.at(-1);
    const names = runs.map((run) => `${run.seq} ${run.label}`).join("\n");
    if (this.names !== names) {
      this.names = names;
      this.runs.replaceChildren(...runs.map((run, at) => h("option", { value: run.seq, selected: run === chosen },
          `${at + 1}: ${run.label.slice(0, 50) || "run"}`)));
    }
    if (!chosen) return this.place.replaceChildren(h("p", { class: "muted" }, "Nothing has run yet."));
    const drawn = [this.fold.seq, chosen.seq, this.squeeze.checked, this.place.clientWidth].join();
    if (this.drawn === drawn) return;
    this.drawn = drawn;
    const until = chosen.to || Date.now();
    const spans = this.fold.spans.filter((span) => span.run === chosen.seq
        && span.kind !== "run").map((span) => ({ ...span, to: span.to || until }));
    this.place.replaceChildren(this.picture(chosen, spans, until));
  }

  /** From a moment to how much of the picture lies before it: waits count as a little, if they are to be drawn short. */
  axis(chosen, spans, until) {
    const cuts = [];
    let taken = 0;
    let reached = chosen.from;
    const waits = this.squeeze.checked ? spans.filter((span) => span.kind === "wait" && span.to - span.from > SHORT_MS) : [];
    for (const { from, to } of waits.sort((a, b) => a.from - b.from)) {
      const begin = Math.max(from, reached);
      if (to <= begin) continue;
      const most = Math.max(0, to - begin - SHORT_MS);
      cuts.push({ begin, to, most, taken });
      taken += most;
      reached = to;
    }
    const past = (moment) => {
      let [low, high] = [0, cuts.length]; // the first cut that begins at that moment or later
      while (low < high) { const middle = (low + high) >> 1; if (cuts[middle].begin < moment) low = middle + 1; else high = middle; }
      const cut = cuts[low - 1];
      if (!cut) return moment - chosen.from;
      return moment - chosen.from - cut.taken - cut.most * Math.min(1, (moment - cut.begin) / (cut.to - cut.begin));
    };
    return { past, whole: Math.max(1, past(until)) };
  }

  picture(chosen, spans, until) {
    const width = Math.max(340, this.place.clientWidth - 4);
    const { past, whole } = this.axis(chosen, spans, until);
    const x = (moment) => LEFT + (past(moment) / whole) * (width - LEFT - 12);
    const parts = [];
    let y = 26;
    for (const [kind, name] of Object.entries(KINDS)) {
      const lanes = [];
      for (const bar of bars(spans.filter((each) => each.kind === kind), x)) {
        let lane = lanes.findIndex((end) => end <= bar.at + 1); // what follows at once touches
        if (lane < 0) lane = lanes.push(0) - 1;
        lanes[lane] = bar.at + bar.wide;
        parts.push(this.bar(bar, bar.at, y + lane * ROW, bar.wide));
      }
      if (!lanes.length) continue;
      parts.push(svg("text", { x: 4, y: y + 14, class: "lane" }, name));
      y += lanes.length * ROW + 8;
    }
    parts.unshift(...this.ticks(width, y, whole));
    parts.push(...this.tokens(spans, x, y + 10, width));
    return svg("svg", { viewBox: `0 0 ${width} ${y + 112}`, width, height: y + 112, role: "group",
        "aria-label": `Timeline of the run: ${chosen.label}, ${duration(until - chosen.from)}` }, parts);
  }

  bar(span, x, y, width) {
    const usage = span.usage ? `, ${number(span.usage.input)} tokens in, ${number(span.usage.output)} out, ${money(span.usage.usd)}` : "";
    const said = span.count > 1 ? `${span.count} times, first ${span.label}` : `${span.label}: ${duration(span.to - span.from)}${usage}`;
    const go = () => this.page.showEvent(span.seq);
    const key = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); go(); } };
    const room = Math.floor(width / 7.2);
    const words = span.label.length > room ? span.label.slice(0, room + 1).replace(/\s*\S*$/, "") : span.label; // whole words, as in the name
    const label = width > 60 && words ? svg("text", { x: x + 5, y: y + 13, class: "in" }, words) : null;
    return svg("g", { class: `bar ${span.kind} ${span.bad ? "bad" : ""}`, tabindex: 0, role: "button", "aria-label": said,
        on: { click: go, keydown: key } }, svg("title", {}, said), svg("rect", { x, y, width, height: ROW - 4, rx: Math.min(3, width / 2) }), label);
  }

  /** Lines at round numbers. */
  ticks(width, y, whole) {
    const room = width - LEFT - 12;
    const wanted = whole / Math.max(1, Math.floor(room / 75));
    const step = STEPS_MS.find((each) => each >= wanted) ?? wanted;
    return Array.from({ length: Math.floor(whole / step) + 1 }, (_, at) => {
      const place = LEFT + ((step * at) / whole) * room;
      return svg("g", { class: "tick" }, svg("line", { x1: place, x2: place, y1: 20, y2: y }),
          svg("text", { x: place, y: 14, "text-anchor": !at ? "start" : place > width - 40 ? "end" : "middle" }, at ? duration(step * at) : "0"));
    });
  }

  /** Tokens of model calls as columns: read anew, read from the cache, written. */
  tokens(spans, x, y, width) {
    const turns = spans.filter((span) => span.kind === "turn" && span.usage);
    const most = Math.max(1, ...turns.map((span) => span.usage.input + span.usage.output));
    const spent = turns.reduce((sum, span) => sum + span.usage.usd, 0);
    const total = turns.reduce((sum, span) => sum + span.usage.input + span.usage.output, 0);
    const columns = [];
    let free = 0; // of calls that are too close to each other, the first is drawn
    for (const span of turns) {
      const tall = (count) => (count / most) * 50;
      const { input, cached = 0, output } = span.usage;
      const at = Math.min(x(span.to), width - 20) - 4;
      if (at < free) continue;
      const wide = turns.length > MANY ? THIN : 8;
      free = turns.length > MANY ? at + wide : 0;
      columns.push(svg("g", {}, svg("title", {}, `${span.label}: ${number(input)} in (${number(cached)} cached), ${number(output)} out`),
        svg("rect", { class: "cached", x: at, width: wide, y: y + 56 - tall(cached), height: tall(cached) }),
        svg("rect", { class: "fresh", x: at, width: wide, y: y + 56 - tall(input), height: tall(input - cached) }),
        svg("rect", { class: "written", x: at, width: wide, y: y + 56 - tall(input + output), height: Math.max(1, tall(output)) })));
    }
    const legend = LEGEND.map(([kind, text], at) => svg("g", { transform: `translate(${LEFT + [0, 52, 190][at]} ${y + 84})` },
        svg("rect", { class: kind, width: 9, height: 9 }), svg("text", { x: 14, y: 9 }, text)));
    return [svg("text", { x: 4, y: y + 14, class: "lane" }, "tokens"), ...columns,
        svg("text", { x: LEFT, y: y + 74, class: "lane" }, `${number(total)} tokens in ${number(turns.length)} model calls, ${money(spent)}`), ...legend];
  }
}
customElements.define("run-timeline", Timeline);

/** Where bars are drawn. Of many, thin ones that would lie on each other are one, which leads to the first of them. */
function bars(spans, x) {
  const made = [];
  for (const span of spans) {
    const at = x(span.from);
    const wide = Math.max(THIN, x(span.to) - at);
    if (spans.length <= MANY || wide > THIN) made.push({ ...span, at, wide });
    else {
      const slot = Math.floor(at / (THIN + 1)) * (THIN + 1);
      const last = made.findLast((each) => each.count);
      if (last?.at !== slot) made.push({ ...span, at: slot, wide, count: 1 });
      else Object.assign(last, { count: last.count + 1, bad: last.bad || span.bad });
    }
  }
  return made;
}
