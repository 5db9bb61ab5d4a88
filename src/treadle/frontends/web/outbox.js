// Messages on their way to the server, in their order. Each has one key from the moment it is sent until the server has
// it, also across a reload of the page: however often it is tried, it arrives once.

import { newKey } from "./session.js";

const LONGEST = 1_000_000; // characters that are kept across a reload
const outboxes = new Map();

/** The outbox of a chat; there is one, whichever page shows the chat. */
export function outboxOf(chat) {
  if (!chat) return new Outbox("");
  if (!outboxes.has(chat)) outboxes.set(chat, new Outbox(chat));
  return outboxes.get(chat);
}

class Outbox {
  constructor(chat) {
    Object.assign(this, { place: `treadle.outbox.${chat}`, chat, messages: [], busy: false, deliver: null, changed: () => {}, refused: () => {} });
    if (chat) this.messages = JSON.parse(sessionStorage.getItem(this.place) ?? "[]");
  }

  /** `deliver(message)` sends; `changed()` and `refused(message, error)` tell the page that shows the chat now. */
  use(deliver, changed, refused) {
    Object.assign(this, { deliver, changed, refused });
    if (this.messages.length) this.work();
  }

  put(message) {
    this.messages.push({ key: newKey(), ...message });
    this.keep();
    this.work();
  }

  async work() {
    if (this.busy) return;
    this.busy = true;
    while (this.messages.length) {
      const [message] = this.messages;
      this.changed();
      const error = await this.deliver(message).then(() => null, (reason) => reason);
      this.messages.shift();
      this.keep();
      if (error) this.refused(message, error);
    }
    this.busy = false;
    this.changed();
  }

  keep() {
    if (!this.chat) return;
    const text = JSON.stringify(this.messages);
    if (this.messages.length && text.length < LONGEST) sessionStorage.setItem(this.place, text);
    else sessionStorage.removeItem(this.place);
  }
}
