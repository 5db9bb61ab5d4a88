// Signing in: with the code that the server's terminal shows, or with a token.

import { h, inert } from "./dom.js";
import { api, signIn } from "./session.js";

class SignIn extends HTMLElement {
  connectedCallback() {
    const field = h("input", { name: "secret", autocomplete: "one-time-code", autocapitalize: "characters", spellcheck: "false",
        placeholder: "ABCD-2345", required: true, autofocus: true, "aria-describedby": "sign-in-hint" });
    const said = h("p", { class: "bad", role: "alert" }, this.why ?? "");
    const submit = async (event) => {
      event.preventDefault();
      const secret = field.value.trim();
      said.textContent = "";
      try {
        const token = secret.startsWith("trd_") ? secret : (await api("POST", "/api/sign-in", { code: secret.slice(0, 40) })).token;
        signIn(token, false);
        await api("GET", "/api/me");
        signIn(token);
        window.dispatchEvent(new Event("signed-in"));
      } catch (error) {
        said.textContent = inert(error.message);
        field.select();
      }
    };
    this.replaceChildren(h("main", { id: "main", class: "card" }, h("img", { src: "/web/icon.svg", alt: "", width: 48, height: 48 }),
        h("h1", {}, "Treadle"),
      h("form", { on: { submit } }, h("label", {}, "Code or token", field),
        h("p", { id: "sign-in-hint", class: "muted" },
            "The terminal of the server shows a code, and a link that signs in directly."),
        said, h("button", { class: "primary" }, "Sign in"))));
    field.focus();
  }
}
customElements.define("sign-in", SignIn);
