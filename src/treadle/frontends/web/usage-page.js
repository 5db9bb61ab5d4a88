// What was spent: by day and by model, as plots.

import { duration, h, money, number, shortModel, svg } from "./dom.js";
import { api } from "./session.js";

const PLOTS = [
  ["Cost", (row) => row.usage.usd, money],
  ["Tokens", (row) => row.usage.input + row.usage.output, number],
  ["Tokens from the cache", (row) => row.usage.cached, number],
  ["Model time", (row) => row.model_ms, duration],
];

class UsagePage extends HTMLElement {
  async connectedCallback() {
    const days = h("select", { "aria-label": "How many days", on: { change: () => this.load(Number(days.value)) } },
        [7, 30, 90, 366].map((each) => h("option", { value: each, selected: each === 30 }, `${each} days`)));
    this.body = h("div", {}, h("p", { class: "muted" }, "Reading …"));
    this.replaceChildren(h("main", { id: "main", class: "page" },
        h("header", { class: "page-head" }, h("a", { class: "quiet only-phone", href: "#/", "aria-label": "All chats" }, "‹"), h("h1", {}, "Usage"), days), this.body));
    this.load(30);
  }

  async load(days) {
    try {
      const [{ rows }, total] = await Promise.all([api("GET", `/api/usage/days?days=${days}`), api("GET", "/api/usage")]);
      this.draw(rows, days, total);
    } catch (error) {
      this.body.replaceChildren(h("p", { class: "bad" }, error.message));
    }
  }

  draw(rows, days, total) {
    const sum = (value, of = rows) => of.reduce((all, row) => all + value(row), 0);
    const input = sum((row) => row.usage.input);
    const tile = (name, value) => h("div", { class: "tile" }, h("b", {}, value), h("span", { class: "muted" }, name));
    const models = [...new Set(rows.map((row) => row.model))].sort((a, b) => sum((row) => row.usage.input,
        rows.filter((row) => row.model === b)) - sum((row) => row.usage.input, rows.filter((row) => row.model === a)));
    this.body.replaceChildren(h("div", { class: "tiles" }, tile("cost", money(sum((row) => row.usage.usd))),
        tile("tokens", number(input + sum((row) => row.usage.output))),
        tile("from the cache", input ? `${Math.round((100 * sum((row) => row.usage.cached)) / input)} %` : "–"),
      tile("model calls", number(sum((row) => row.calls))), tile("time of models", duration(sum((row) => row.model_ms))),
          tile("chats in all", number(total.chats))),
      ...(rows.length ? PLOTS.map(([name, value, words]) => this.plot(name, rows, models, days, value, words))
          : [h("p", { class: "muted" }, "No usage in this period.")]), rows.length ? this.table(rows, models, sum) : "");
  }

  plot(name, rows, models, days, value, words) {
    const dates = Array.from({ length: days }, (_, at) => new Date(Date.now() - (days - 1 - at) * 86_400_000).toISOString().slice(0, 10));
    const by = Map.groupBy ? Map.groupBy(rows, (row) => row.day)
        : rows.reduce((all, row) => all.set(row.day, [...(all.get(row.day) ?? []), row]), new Map());
    const most = Math.max(...dates.map((day) => (by.get(day) ?? []).reduce((all, row) => all + value(row), 0)), 0);
    if (!most) return h("div");
    const [width, height] = [720, 160];
    const step = width / days;
    const bars = dates.flatMap((day, at) => {
      let y = height;
      return (by.get(day) ?? []).filter(value).map((row) => {
        const tall = (value(row) / most) * (height - 16);
        y -= tall;
        return svg("rect", { class: `series-${models.indexOf(row.model) % 6}`, x: at * step + 1, y, width: Math.max(1, step - 2),
            height: tall }, svg("title", {}, `${day}, ${row.model}: ${words(value(row))}`));
      });
    });
    const label = (at, anchor) => svg("text", { x: at * step, y: height + 22, "text-anchor": anchor },
        dates[Math.min(at, days - 1)].slice(5));
    return h("figure", {}, h("figcaption", {}, name), svg("svg",
        { viewBox: `0 -16 ${width} ${height + 44}`, class: "plot", role: "img", "aria-label": `${name} by day; at most ${words(most)}` },
      svg("line", { x1: 0, x2: width, y1: height, y2: height }), svg("line", { x1: 0, x2: width, y1: 16, y2: 16, class: "most" }),
          svg("text", { x: 0, y: 10 }, words(most)), bars, label(0, "start"), label(days, "end")));
  }

  table(rows, models, sum) {
    const line = (model, place) => {
      const own = rows.filter((row) => row.model === model);
      const input = sum((row) => row.usage.input, own);
      const cells = [money(sum((row) => row.usage.usd, own)), number(input), number(sum((row) => row.usage.output, own)), input
          ? `${Math.round((100 * sum((row) => row.usage.cached, own)) / input)} %` : "–", number(sum((row) => row.calls, own)),
          duration(sum((row) => row.model_ms, own))];
      return h("tr", {}, h("th", { scope: "row" }, h("span", { class: `swatch series-${place % 6}` }), h("span", { title: model }, shortModel(model) || "?")),
          cells.map((cell) => h("td", {}, cell)));
    };
    return h("div", { class: "wide", tabindex: "0" }, h("table", { class: "numbers" },
        h("thead", {}, h("tr", {}, ["Model", "Cost", "Read", "Written", "Cached", "Calls",
        "Time"].map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, models.map(line))));
  }
}
customElements.define("usage-page", UsagePage);
