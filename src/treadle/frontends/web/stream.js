// A stream of the server that comes back by itself: over a WebSocket, of which a browser allows many, where it allows
// six connections for all else. A ticket stands for the token. What is lost on the way is asked for again by its place.

import { api, signedIn } from "./session.js";

const SILENCE_MS = 25_000; // the server says something at least every 10 seconds
const STALE_MS = 12_000;
const LONGEST_MS = 5_000;

export class Stream {
  /** `place()` tells where to go on; `take` gets each piece; `told` hears "live" and "offline"; `before` may say what
   * is to be done before coming back, and with `false` that there is nothing to come back to. */
  constructor(path, { place, take, told = () => {}, before = async () => true }) {
    Object.assign(this, { path, place, take, told, before, tries: 0, socket: null, closed: false, watch: 0, timer: 0 });
    this.hurry = () => { // somebody looks again: what slept meanwhile may hang on a line that is dead
      if (this.socket && Date.now() - this.heardAt > STALE_MS) this.drop();
      if (!this.socket && !this.closed && !document.hidden) this.again(0);
    };
    window.addEventListener("online", this.hurry);
    document.addEventListener("visibilitychange", this.hurry);
    this.again(0);
  }

  again(wait) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.connect(), wait);
  }

  async connect() {
    if (this.closed || this.socket || !signedIn()) return;
    const attempt = (this.attempt = {});
    try {
      if (this.tries && (await this.before()) === false) return this.close();
      const { ticket } = await api("POST", "/api/tickets", {}, { quick: true });
      if (this.closed || this.attempt !== attempt) return;
      const address = new URL(this.path, location.href);
      address.protocol = address.protocol.replace("http", "ws");
      address.searchParams.set("ticket", ticket);
      const after = this.place();
      if (after !== null) address.searchParams.set("after", after);
      this.listen(new WebSocket(address));
    } catch (error) {
      if (error.status !== 401) this.lost();
    }
  }

  listen(socket) {
    this.socket = socket;
    this.heard(); // one that never opens is silent, too
    socket.onopen = () => { this.tries = 0; this.told("live"); this.heard(); };
    socket.onmessage = (message) => {
      this.heard();
      if (!message.data) return;
      try {
        this.take(JSON.parse(message.data));
      } catch (error) {
        console.error(error);
        socket.close();
      }
    };
    socket.onclose = () => { if (this.socket === socket) { this.socket = null; this.lost(); } };
  }

  heard() {
    clearTimeout(this.watch);
    this.heardAt = Date.now();
    this.watch = setTimeout(() => this.drop(), SILENCE_MS);
  }

  /** Nothing comes any more: closing in good manners could take long. */
  drop() {
    const { socket } = this;
    this.socket = null;
    socket?.close();
    this.lost();
  }

  lost() {
    clearTimeout(this.watch);
    if (this.closed) return;
    this.told("offline");
    this.tries += 1;
    this.again(Math.min(LONGEST_MS, 250 * 2 ** this.tries) * (0.75 + Math.random() / 2));
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    clearTimeout(this.watch);
    window.removeEventListener("online", this.hurry);
    document.removeEventListener("visibilitychange", this.hurry);
    this.socket?.close();
    this.socket = null;
  }
}
