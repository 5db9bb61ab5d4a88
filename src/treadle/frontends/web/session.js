// Who is signed in, and requests to the server. The token comes in the fragment of the address, which no server sees,
// and is taken out of it at once; it is kept for this origin alone.

const KEY = "treadle.token";
const TRIES = 4;
const PATIENCE_MS = 15_000; // a server that is frozen takes connections and says nothing
const LONGEST_PAUSE_MS = 2_500;
let token = null;

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Take the token of a link out of the address; whether there was one. */
export function takeLink() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!given) return false;
  history.replaceState(null, "", location.pathname);
  signIn(given);
  return true;
}

/** Take the token of a link, else the one that is kept. */
export function begin() {
  if (!takeLink()) token = localStorage.getItem(KEY);
  window.addEventListener("storage", ({ key, newValue }) => { // another window of this browser signed in or out
    if (key !== KEY || newValue === token) return;
    token = newValue;
    window.dispatchEvent(new CustomEvent(token ? "signed-in" : "signed-out", { detail: "Another window of this browser was signed out." }));
  });
}

export const signedIn = () => Boolean(token);

/** Use a token from now on; other windows use it, too, once it is known to be good. */
export function signIn(given, good = true) {
  token = given.trim();
  if (good) localStorage.setItem(KEY, token);
}

/** Forget the token; `why` is told where one signs in again. */
export function signOut(why = "") {
  if (localStorage.getItem(KEY) === token) localStorage.removeItem(KEY);
  token = null;
  window.dispatchEvent(new CustomEvent("signed-out", { detail: why }));
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Tell the app at once whether the server answers. */
const tellReached = (there) => window.dispatchEvent(new CustomEvent("server-reached", { detail: there }));

/** A request; what changes something is repeated under one key when the connection breaks, and is done once. A `patient`
 * request is repeated until the server answers. */
export async function api(method, path, body, { quick = false, patient = false, key = newKey(), range = "" } = {}) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  if (body !== undefined) headers["content-type"] = "application/json";
  if (method !== "GET") headers["idempotency-key"] = key;
  if (range) headers.range = range;
  const sent = { method, headers, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store" };
  for (let tries = 1; ; tries++) {
    let response;
    try {
      response = await fetch(path, quick || patient ? { ...sent, signal: AbortSignal.timeout(PATIENCE_MS) } : sent);
    } catch {
      tellReached(false);
      if (!patient && (quick || tries >= TRIES)) throw new ApiError(0, "offline", "The server cannot be reached.");
      await pause(Math.min(LONGEST_PAUSE_MS, 300 * 2 ** tries));
      continue;
    }
    if (patient && response.status === 503) { await pause(LONGEST_PAUSE_MS); continue; }
    tellReached(true);
    if (response.ok) return response.status === 204 ? null : read(response);
    const said = (await response.json().catch(() => ({}))).error ?? {};
    if (response.status === 401 && path !== "/api/sign-in" && headers.authorization === `Bearer ${token}`) signOut(
        "The server does not know this token: it was revoked, or is of another server.");
    throw new ApiError(response.status, said.code ?? "", said.message ?? `The server answered ${response.status}.`);
  }
}

async function read(response) {
  return response.headers.get("content-type")?.startsWith("application/json") ? response.json() : response;
}

export const chatPath = (id, rest = "") => `/api/chats/${encodeURIComponent(id)}${rest}`;
