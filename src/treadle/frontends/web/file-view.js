// A file of the project as it is now, with the line that somebody meant.

import { copy, h, iconButton } from "./dom.js";
import { show } from "./rendered.js";
import { api, chatPath } from "./session.js";

const MOST = 400_000;

class FileView extends HTMLElement {
  async begin(page, path, line) {
    const place = h("div", { class: "file-text" });
    this.replaceChildren(h("div", { class: "panel-bar" }, h("b", {}, path), line ? h("span", { class: "muted" }, `line ${line}`) : null,
        iconButton("clip", "Copy the path", () => copy(path))), place);
    try {
      const answer = await api("GET", chatPath(page.chat, `/files/content?path=${encodeURIComponent(path)}`));
      const text = (await answer.text()).slice(0, MOST);
      await show(place, "code", text.replace(/\n$/, ""), { language: path, numbered: true });
      const row = place.querySelector(`[data-line="${line}"]`);
      row?.classList.add("meant");
      row?.scrollIntoView({ block: "center" });
    } catch (error) {
      place.replaceChildren(h("p", { class: "muted" }, error.message));
    }
  }
}
customElements.define("file-view", FileView);
