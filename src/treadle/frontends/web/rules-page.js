// Rules: the standing answers to approvals; where each came from, when it answered last, until when it holds, and a way
// to revoke it.

import { ago, ask, baseName, button, h, tried } from "./dom.js";
import { api } from "./session.js";

const EFFECTS = { allow: "Allow", ask: "Ask", deny: "Refuse" };
const moment = (ms) => new Date(ms).toLocaleString();
const past = (ms) => { const time = ago(new Date(ms).toISOString()); return time === "now" ? "just now" : `${time} ago`; };

class RulesPage extends HTMLElement {
  begin(chat) {
    this.query = chat ? `?chat=${encodeURIComponent(chat)}` : "";
    this.chat = chat;
    this.body = h("div", {}, h("p", { class: "muted" }, "Reading the rules …"));
    this.replaceChildren(h("main", { id: "main", class: "page" }, h("header", { class: "page-head" },
        h("a", { class: "quiet only-phone", href: "#/", "aria-label": "All chats" }, "‹"), h("h1", {}, "Rules")),
      h("p", { class: "muted" }, "A rule answers approvals in your place. Refuse beats ask, ask beats allow. Rules are made on approval cards and with ",
          h("code", {}, "treadle rules add"), "."), this.body));
    this.load();
  }

  async load() {
    const found = await api("GET", `/api/rules${this.query}`).catch((error) => ({ rules: [], damage: error.message }));
    const warning = found.damage ? h("p", { class: "warn" }, `No rule allows anything as long as this is so: ${found.damage}`) : "";
    if (!found.rules.length) return this.body.replaceChildren(warning, h("p", { class: "empty" },
        "No rules. When an approval card offers one, choose where your answer holds."));
    const names = ["Rule", "Holds", "Made", "Last used", "Expires", ""];
    this.body.replaceChildren(warning, h("div", { class: "wide", tabindex: "0" }, h("table", { class: "numbers rules" },
        h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name || h("span", { class: "unseen" }, "Revoke"))))),
        h("tbody", {}, found.rules.map((each) => this.line(each))))));
  }

  line({ rule, chat, used_ms: used }) {
    const covers = rule.pattern || "every use";
    const holds = chat ? h("a", { href: `#/chat/${encodeURIComponent(chat)}` }, "in one chat") : rule.scope === "project"
        ? h("span", { title: rule.root }, `in the project ${baseName(rule.root)}`) : "everywhere";
    const expired = rule.expires_ms && rule.expires_ms <= Date.now();
    return h("tr", { class: expired ? "muted" : "", data: { rule: rule.id } },
        h("th", { scope: "row" }, h("b", { class: `effect ${rule.effect}` }, EFFECTS[rule.effect]), " ", rule.tool, " ", h("code", {}, covers)),
        h("td", {}, holds), h("td", { title: moment(rule.created_ms) }, rule.created_ms ? past(rule.created_ms) : "–"),
        h("td", { title: used ? moment(used) : "" }, used ? past(used) : "never"),
        h("td", {}, expired ? "expired" : rule.expires_ms ? moment(rule.expires_ms) : "never"),
        h("td", {}, button("Revoke", () => this.revoke(rule, covers), { class: "small", "aria-label": `Revoke ${rule.tool} ${covers}` })));
  }

  async revoke(rule, covers) {
    if (!await ask("Revoke this rule?", [h("p", {}, `${EFFECTS[rule.effect]} ${rule.tool} `, h("code", {}, covers)),
        h("p", { class: "muted" }, "The next time, you are asked again.")], [["Revoke", true, "primary"], ["Cancel", null]])) return;
    await tried(api("DELETE", `/api/rules/${encodeURIComponent(rule.id)}${this.query}`, {}));
    this.load();
  }
}
customElements.define("rules-page", RulesPage);
