// A run as a picture: turns, calls, waits, retries and compaction on an axis of time, with tokens and cost below. A bar
// leads to its event. Long waits can be drawn short, so that the work is seen.

import { duration, h, money, number, svg } from "./dom.js";

const KINDS = { turn: "model", call: "tools", wait: "waits", retry: "retries", compaction: "compaction" };
const ROW = 22;
const LEFT = 84;
const SHORT_MS = 2_000;

class Timeline extends HTMLElement {
  begin(page) {
    Object.assign(this, { page, run: 0 });
    this.runs = h("select", { "aria-label": "Which run", on: { change: () => { this.run = Number(this.runs.value); this.draw(); } } });
    this.squeeze = h("input", { type: "checkbox", checked: true, on: { change: () => this.draw() } });
    this.place = h("div", { class: "timeline wide", tabindex: "0" });
    this.replaceChildren(h("div", { class: "panel-bar" }, this.runs, h("label", {}, this.squeeze, "Waits drawn short")), this.place);
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
    const until = chosen.to || Date.now();
    const spans = this.fold.spans.filter((span) => span.run === chosen.seq
        && span.kind !== "run").map((span) => ({ ...span, to: span.to || until }));
    this.place.replaceChildren(this.picture(chosen, spans, until));
  }

  /** From a moment to a place: waits count as a little, if they are to be drawn short. */
  axis(chosen, spans, until) {
    const cuts = this.squeeze.checked ? spans.filter((span) => span.kind === "wait" && span.to - span.from > SHORT_MS).sort((a,
        b) => a.from - b.from) : [];
    const past = (moment) => {
      let taken = 0;
      let reached = chosen.from;
      for (const { from, to } of cuts) {
        const begin = Math.max(from, reached);
        if (to <= begin || moment <= begin) continue;
        const inside = Math.min(moment, to) - begin;
        taken += inside - Math.min(inside, SHORT_MS * (inside / (to - begin)));
        reached = to;
      }
      return moment - chosen.from - taken;
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
      for (const span of spans.filter((each) => each.kind === kind)) {
        let lane = lanes.findIndex((end) => end <= x(span.from));
        if (lane < 0) lane = lanes.push(0) - 1;
        const wide = Math.max(3, x(span.to) - x(span.from));
        lanes[lane] = x(span.from) + wide + 1;
        parts.push(this.bar(span, x(span.from), y + lane * ROW, wide));
      }
      if (!lanes.length) continue;
      parts.push(svg("text", { x: 4, y: y + 14, class: "lane" }, name));
      y += lanes.length * ROW + 8;
    }
    parts.unshift(...this.ticks(width, y, whole));
    parts.push(...this.tokens(spans, x, y + 10, width));
    return svg("svg", { viewBox: `0 0 ${width} ${y + 96}`, width, height: y + 96, role: "group",
        "aria-label": `Timeline of the run: ${chosen.label}, ${duration(until - chosen.from)}` }, parts);
  }

  bar(span, x, y, width) {
    const usage = span.usage ? `, ${number(span.usage.input)} tokens in, ${number(span.usage.output)} out, ${money(span.usage.usd)}` : "";
    const said = `${span.label}: ${duration(span.to - span.from)}${usage}`;
    const go = () => this.page.showEvent(span.seq);
    const label = width > 60 ? svg("text", { x: x + 5, y: y + 13, class: "in" }, span.label.slice(0, Math.floor(width / 7.2))) : null;
    return svg("g", { class: `bar ${span.kind} ${span.bad ? "bad" : ""}`, tabindex: 0, role: "button", "aria-label": said,
        on: { click: go, keydown: (event) => { if (event.key === "Enter") go(); } } },
      svg("title", {}, said), svg("rect", { x, y, width, height: ROW - 4, rx: 3 }), label);
  }

  ticks(width, y, whole) {
    const count = Math.max(2, Math.floor((width - LEFT) / 110));
    return Array.from({ length: count + 1 }, (_, at) => {
      const place = LEFT + (at / count) * (width - LEFT - 12);
      return svg("g", { class: "tick" }, svg("line", { x1: place, x2: place, y1: 20, y2: y }),
          svg("text", { x: place, y: 14, "text-anchor": at === count ? "end" : at ? "middle" : "start" }, duration((whole * at) / count)));
    });
  }

  /** Tokens of each turn as columns: read anew, read from the cache, written. */
  tokens(spans, x, y, width) {
    const turns = spans.filter((span) => span.kind === "turn" && span.usage);
    const most = Math.max(1, ...turns.map((span) => span.usage.input + span.usage.output));
    const spent = turns.reduce((sum, span) => sum + span.usage.usd, 0);
    const total = turns.reduce((sum, span) => sum + span.usage.input + span.usage.output, 0);
    const columns = turns.map((span) => {
      const tall = (count) => (count / most) * 50;
      const { input, cached = 0, output } = span.usage;
      const at = Math.min(x(span.to), width - 20) - 4;
      return svg("g", {}, svg("title", {}, `${span.label}: ${number(input)} in (${number(cached)} cached), ${number(output)} out`),
        svg("rect", { class: "cached", x: at, width: 8, y: y + 56 - tall(cached), height: tall(cached) }),
        svg("rect", { class: "fresh", x: at, width: 8, y: y + 56 - tall(input), height: tall(input - cached) }),
        svg("rect", { class: "written", x: at, width: 8, y: y + 56 - tall(input + output), height: Math.max(1, tall(output)) }));
    });
    return [svg("text", { x: 4, y: y + 14, class: "lane" }, "tokens"), ...columns,
        svg("text", { x: LEFT, y: y + 76, class: "lane" }, `${number(total)} tokens in ${turns.length} model calls, ${money(spent)}`)];
  }
}
customElements.define("run-timeline", Timeline);
