// A new chat: its task, with which model, in which project, and how freely. Says where it would work, and what it can do.

import { baseName, button, h, inert } from "./dom.js";
import { effortChoice, effortsOf, modeChoice, modelChoice } from "./composer.js";
import { budgetFields } from "./chat-options.js";
import { api } from "./session.js";

const EXAMPLES = ["Explain how this project is built and tested", "Find a bug in the code that changed last, and fix it",
    "Write a test for the least tested module"];

class NewChat extends HTMLElement {
  begin(app) {
    let model, mode, effort;
    const choices = h("span", { class: "choices-later" });
    const known = Promise.all([app.models(), api("GET", "/api/me").catch(() => ({}))]).then(([models, me]) => {
      const usable = models.models.filter((each) => each.usable).map((each) => each.model);
      const last = localStorage.getItem("treadle.model");
      model = modelChoice(models, usable.includes(last) ? last : models.default);
      mode = modeChoice(localStorage.getItem("treadle.mode") || me.mode);
      const offerEffort = () => {
        const last = effortsOf(models, model.value).find((each) => each === localStorage.getItem("treadle.effort"));
        effort = effortChoice(models, model.value, last ?? "");
        choices.replaceChildren(...[model, mode, effort].filter(Boolean));
      };
      model.addEventListener("change", offerEffort);
      offerEffort();
      root.placeholder = inert(me.root || "none: a plain chat");
    });
    const root = h("input", { type: "text", name: "root", "aria-label": "Project folder", on: { change: () => place() } });
    const where = h("p", { class: "muted where" });
    const place = async () => {
      const found = await api("GET", `/api/project?root=${encodeURIComponent(root.value.trim())}`).catch(() => ({}));
      where.replaceChildren(...found.root ? ["In ", h("b", { title: found.root }, baseName(found.root)),
          found.branch ? h("span", {}, " on the branch ", h("code", {}, found.branch)) : ""] : ["Without a project: a plain chat."]);
    };
    const own = h("input", { type: "checkbox" });
    const budget = budgetFields("Budget of a run");
    const composer = document.createElement("chat-composer");
    const attempts = h("input", { type: "number", min: 1, max: 16, placeholder: "1" });
    const check = h("input", { type: "text", placeholder: "make test" });
    const others = h("input", { type: "text", placeholder: "provider:name, provider:name" });
    const race = ({ content, images, expand, ...options }, sending) => {
      if (images.length) throw new Error("A race takes no pictures.");
      const models = [model.value, ...others.value.split(",").map((each) => each.trim()).filter(Boolean)];
      return api("POST", "/api/races", { ...options, task: content, attempts: Number(attempts.value), check: check.value, models },
          sending);
    };
    const said = async ({ content, images, key }) => {
      await known;
      const sending = { patient: true, key };
      const options = { content, images: images.map(({ media_type, data }) => ({ media_type, data })), expand: true, model: model.value, mode: mode.value, run_budget: budget.value() };
      if (root.value.trim()) options.root = root.value.trim();
      if (own.checked) options.world = "chat";
      if (effort?.value) options.reasoning_effort = effort.value;
      const chat = await (attempts.value > 1 || others.value.trim() ? race(options, sending)
          : api("POST", "/api/chats", options, sending));
      localStorage.setItem("treadle.mode", mode.value);
      localStorage.setItem("treadle.model", model.value);
      if (effort) localStorage.setItem("treadle.effort", effort.value);
      location.hash = `#/chat/${chat.id}`;
    };
    this.replaceChildren(h("main", { id: "main", class: "page new-chat" },
        h("header", { class: "page-head" }, h("a", { class: "quiet only-phone", href: "#/", "aria-label": "All chats" }, "‹"), h("h1", {}, "What should I work on?")),
      where, composer, h("div", { class: "examples", "aria-label": "Examples", role: "group" },
          EXAMPLES.map((text) => button(text, () => composer.fill(text), { class: "quiet small" }))),
      h("details", {}, h("summary", {}, "Project, race and budget"), h("label", {}, "Project folder on the server", root),
          h("label", { class: "check" }, own, "Work in its own world: the project changes only when you commit it"),
          h("fieldset", {}, h("legend", {}, "Race"), h("p", { class: "muted" },
              "Several attempts at once, each in its own world. The first that passes the check is committed; without a check, the smallest change."), h("div", { class: "grid roomy" },
              h("label", {}, "Attempts", attempts), h("label", {}, "Check, a command", check), h("label", {}, "Further models", others))),
          budget.element)));
    composer.begin({ said, extra: [choices], root: () => root.value.trim(), commands: {
        rules: { about: "Standing answers to approvals", run: () => { location.hash = "#/rules"; } },
        usage: { about: "What models cost, by day", run: () => { location.hash = "#/usage"; } } }, hint: "A task, a question, a bug to find" });
    composer.area.focus();
    place();
  }
}
customElements.define("new-chat", NewChat);
