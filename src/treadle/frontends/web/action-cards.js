// What a chat waits for: approvals, questions, and tools that a client runs. A card is there as long as the log says so,
// in every window; whoever answers first is the one.

import { button, h, inert, toast } from "./dom.js";
import { show } from "./rendered.js";
import { api, chatPath } from "./session.js";

const SCOPES = { once: "Only this call", chat: "In this chat", project: "In this project", user: "Everywhere" };

/** The scopes that may be chosen; older logs do not list them. */
const scopesOf = ({ scopes, rule }) => scopes?.length ? scopes : rule.scope === "once" ? ["once"] : ["chat", "project", "user"];

class ActionCards extends HTMLElement {
  begin(chat) {
    Object.assign(this, { chat, cards: new Map() });
    this.setAttribute("role", "region");
    this.setAttribute("aria-label", "What the chat waits for");
  }

  /** Cards stay as they are, with what was typed into them, as long as their action does. */
  update(actions) {
    const wanted = new Map(actions.map((action) => [`${action.chat} ${action.action} ${action.hash ?? ""} ${action.kind}`, action]));
    for (const [key, card] of this.cards) if (!wanted.has(key)) { card.remove(); this.cards.delete(key); }
    for (const [key, action] of wanted) {
      if (this.cards.has(key)) continue;
      const card = action.kind === "permission" ? this.approval(action) : action.kind === "user_input" ? this.question(action)
          : this.client(action, actions.filter(({ kind, chat }) => kind === "external_tool" && chat === action.chat));
      if (action.chat !== this.chat) card.firstChild.after(h("p", { class: "muted" }, "Asked by ",
          h("a", { href: `#/chat/${action.chat}` }, action.title || action.chat), ", which this chat started."));
      this.cards.set(key, card);
      this.append(card);
    }
    this.hidden = !this.cards.size;
  }

  async answer({ chat }, path, body, card) {
    card.querySelectorAll("button").forEach((each) => { each.disabled = true; });
    try {
      await api("POST", chatPath(chat, path), body);
    } catch (error) {
      toast(error.code === "no_such_action" ? "This was already answered." : error.message, "bad");
      card.querySelectorAll("button").forEach((each) => { each.disabled = false; });
    }
  }

  approval(action) {
    const shown = h("div", { class: "shown" });
    const text = action.text ?? "";
    if (/^@@ /m.test(text)) show(shown, "diff", text);
    else shown.append(h("pre", { class: "command", tabindex: "0" }, text));
    const command = action.arguments?.command;
    const edited = typeof command === "string" ? h("textarea",
        { rows: 2, value: command, "aria-label": "The command, which may be changed", spellcheck: "false" }) : null;
    const feedback = h("input", { type: "text", placeholder: "Why not, or what to do instead",
        "aria-label": "What to tell the model on refusal" });
    const rule = h("select", { "aria-label": "Where this answer holds", on: { change: () => tellRule() } },
      h("option", { value: "" }, "Only this call"),
      (action.offers ?? []).flatMap((offer, place) => scopesOf(offer).map((scope) => h("option",
          { value: `${place} ${scope}` }, `${SCOPES[scope]}: ${offer.covers}`))));
    const covered = h("p", { class: "muted covered", role: "status" });
    const allow = button("Allow", () => decide("allow"), { class: "primary allow", title: "Allow (Alt+A)" });
    const deny = button("Refuse", () => decide("deny"), { class: "deny", title: "Refuse (Alt+X)" });
    /** Before an answer becomes a rule, the card says what the rule covers. */
    const tellRule = () => {
      const [place, scope] = rule.value.split(" ");
      const offer = action.offers?.[place];
      const standing = offer && scope !== "once";
      covered.textContent = !offer ? "" : inert(`${standing ? "Adds a rule, which you can revoke under Rules." : "Adds no rule."}`
          + ` Covers: ${offer.covers}.${offer.leaves ? ` Does not cover: ${offer.leaves}.` : ""}`);
      allow.textContent = standing ? "Allow and add the rule" : "Allow";
      deny.textContent = standing ? "Refuse and add the rule" : "Refuse";
    };
    const card = h("section", { class: `card action severity-${action.severity}`, data: { action: action.action }, tabindex: "-1" },
      h("h2", {}, `Allow ${action.name || "this"}?`, action.severity && action.severity !== "none"
          ? h("span", { class: `badge ${action.severity}` }, action.severity) : null),
      action.reason ? h("p", {}, `${action.reason[0].toUpperCase()}${action.reason.slice(1)}.`) : null,
      action.network?.length ? h("p", { class: "warn" }, `It may reach: ${action.network.join(", ")}`) : null, shown,
      h("details", {}, h("summary", {}, "Change it, or say why not"), edited ? h("label", {}, "Command", edited) : null,
          h("label", {}, "On refusal, tell the model", feedback)),
      action.offers?.length ? h("label", {}, "This answer holds", rule) : null, covered, h("footer", {}, allow, deny));
    const decide = (decision) => {
      const body = { decision, hash: action.hash, feedback: feedback.value };
      if (decision === "allow" && edited && edited.value !== command) body.arguments = { ...action.arguments, command: edited.value };
      if (rule.value) { const [offer, scope] = rule.value.split(" "); body.rule = { offer: Number(offer), scope }; }
      return this.answer(action, `/approvals/${encodeURIComponent(action.action)}`, body, card);
    };
    return card;
  }

  question(action) {
    const field = h("input", { type: "text", "aria-label": "Your answer", placeholder: action.options?.length ? "Or something else"
        : "Your answer" });
    const say = (answer) => answer.trim() && this.answer(action, `/answers/${encodeURIComponent(action.action)}`, { answer }, card);
    const text = h("div", { class: "markdown" });
    show(text, "markdown", action.text || action.question || "");
    const card = h("section", { class: "card action question", data: { action: action.action }, tabindex: "-1" }, h("h2", {}, "A question"),
        text,
      h("div", { class: "choices" }, (action.options ?? []).map((option) => button(option, () => say(option)))),
      h("form", { on: { submit: (event) => { event.preventDefault(); say(field.value); } } }, field,
          h("button", { class: "primary" }, "Answer")));
    return card;
  }

  client(action, all) {
    const field = h("textarea", { rows: 2, "aria-label": `Result of ${action.name}`, placeholder: "Its result, as text or JSON" });
    const until = action.deadline_ms ? ` until ${new Date(action.deadline_ms).toLocaleTimeString()}` : "";
    const read = (text) => { try { return JSON.parse(text); } catch { return text; } };
    const card = h("section", { class: "card action client", data: { action: action.action }, tabindex: "-1" },
        h("h2", {}, `A client runs ${action.name}`),
      h("p", { class: "muted" }, `The chat waits for its result${until}.`),
          h("pre", { class: "output", tabindex: "0" }, JSON.stringify(action.arguments ?? {}, null, 2)),
      all.length === 1 ? h("details", {}, h("summary", {}, "Answer for the client"), field,
          h("footer", {}, button("Submit", () => this.answer(action, "/tool-results",
          { results: [{ tool_call_id: action.tool_call_id, output: read(field.value) }] }, card), { class: "primary" }),
        button("Report a failure", () => this.answer(action, "/tool-results",
            { results: [{ tool_call_id: action.tool_call_id, output: field.value || "It failed.", is_error: true }] }, card)))) : null);
    return card;
  }

  /** Answer the first approval by a chord. */
  press(kind) {
    this.querySelector(`.${kind}`)?.click();
  }
}
customElements.define("action-cards", ActionCards);
