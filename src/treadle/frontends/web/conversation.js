// The conversation: only the rows around what is looked at are in the page, however long the chat is. At the end it
// follows what comes; elsewhere it stays where it is. Live text is shown at most once in 32 ms (U-02).

import { h, iconButton } from "./dom.js";
import { viewOf } from "./row-views.js";

const MOST = 120;
const PAGE = 40;
const NEAR = 500;
const INTERVAL_MS = 32;
const FIRST_WORDS = 8;
const AT_END = 40;
const ROUNDING = 2;

class Conversation extends HTMLElement {
  /** `page` acts for the rows; `fold` is what is shown. */
  begin(fold, page) {
    Object.assign(this, { fold, page, first: 0, last: 0, follows: true, views: new Map(), timer: 0, shownAt: 0, top: 0 });
    this.rows = h("div", { class: "rows", role: "log", "aria-label": "Conversation", "aria-live": "off" });
    this.above = h("div", { class: "above muted" });
    this.scroller = h("div", { class: "scroller", tabindex: "0", "aria-label": "Conversation, scrollable",
        on: { scroll: () => this.scrolled() } }, this.above, this.rows);
    this.jump = iconButton("down", "To the end", () => this.toEnd(), { class: "jump" });
    this.jump.hidden = true;
    this.replaceChildren(this.scroller, this.jump);
    this.sizes = new ResizeObserver(() => { if (this.follows) this.scrollDown(); });
    this.sizes.observe(this.rows);
    this.sizes.observe(this.scroller);
    this.flush();
  }

  disconnectedCallback() {
    this.sizes?.disconnect();
    clearTimeout(this.timer);
  }

  /** Something changed: it is shown soon, and what comes until then with it. */
  news() {
    if (this.timer || this.held()) return;
    const wait = Math.max(0, INTERVAL_MS - (performance.now() - this.shownAt));
    this.timer = setTimeout(() => { this.timer = 0; this.flush(); }, wait);
  }

  /** The first of an answer waits until there are a few letters. */
  held() {
    const row = this.fold.rows.at(-1);
    if (this.fold.changed.size !== 1 || !row?.live || this.views.has(row.key) || !this.fold.changed.has(row)) return false;
    return ((row.text + row.thinking).match(/\w/g)?.length ?? 0) < FIRST_WORDS;
  }

  flush() {
    const { rows, changed } = this.fold;
    this.shownAt = performance.now();
    if (this.follows) {
      this.last = rows.length;
      this.first = Math.max(0, this.last - MOST);
    } else {
      this.last = Math.min(this.last, rows.length);
      if (rows.length - this.last < PAGE && this.last - this.first < MOST) this.last = rows.length;
    }
    const wanted = new Map(rows.slice(this.first, this.last).map((row) => [row.key, row]));
    for (const [key, view] of this.views) if (!wanted.has(key)) { view.remove(); this.views.delete(key); }
    let at = this.rows.firstChild;
    for (const [key, row] of wanted) {
      let view = this.views.get(key);
      if (!view || changed.has(row)) this.views.set(key, (view = viewOf(row, this.page, view)));
      if (view === at) at = at.nextSibling;
      else this.rows.insertBefore(view, at);
    }
    changed.clear();
    this.above.textContent = this.first ? `${this.first.toLocaleString("en")} earlier rows; scroll up` : "";
    if (this.follows) this.scrollDown();
  }

  scrollDown() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.top = this.scroller.scrollTop;
  }

  /** Only a person moves the page up and away from its end. When rows shrink or the page grows, the browser moves it up
   * as well, but then to the end. Rows that wait to be shown say nothing about what a person did. */
  scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    const end = scrollHeight - clientHeight;
    const below = end - scrollTop;
    if (scrollTop < Math.min(this.top, end) - ROUNDING) this.follows = false;
    else if (below < AT_END && this.last >= this.fold.rows.length) this.follows = true;
    this.top = scrollTop;
    this.jump.hidden = this.follows;
    if (scrollTop < NEAR && this.first > 0) this.move(Math.max(0, this.first - PAGE));
    else if (below < NEAR && this.last < this.fold.rows.length) this.move(Math.min(this.first + PAGE, this.fold.rows.length - MOST));
  }

  /** Other rows, without a jump of what is looked at. */
  move(first) {
    const top = this.scroller.getBoundingClientRect().top;
    const anchor = [...this.rows.children].find((row) => row.getBoundingClientRect().bottom > top);
    const before = anchor?.getBoundingClientRect().top;
    this.first = Math.max(0, first);
    this.last = Math.min(this.fold.rows.length, this.first + MOST);
    const follows = this.follows;
    this.follows = false;
    this.flush();
    if (anchor?.isConnected) this.scroller.scrollTop += anchor.getBoundingClientRect().top - before;
    this.follows = follows && this.last >= this.fold.rows.length;
  }

  toEnd() {
    this.follows = true;
    this.jump.hidden = true;
    this.flush();
  }

  /** Bring the row of an event into view. */
  show(seq) {
    const { rows } = this.fold;
    let at = rows.findLastIndex((row) => row.seq <= seq);
    const holder = rows.findIndex((row) => row.kind === "calls" && row.calls.some((call) => call.seq === seq || call.done === seq));
    if (holder >= 0) at = holder;
    if (at < 0) return;
    this.follows = false;
    this.first = Math.max(0, at - PAGE);
    this.last = Math.min(rows.length, this.first + MOST);
    this.flush();
    const view = this.views.get(rows[at].key);
    view?.scrollIntoView({ block: "center" });
    view?.classList.add("flash");
    setTimeout(() => view?.classList.remove("flash"), 1500);
  }
}
customElements.define("chat-conversation", Conversation);
