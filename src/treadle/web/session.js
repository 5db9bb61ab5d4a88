// Who is signed in, and requests to the server. The token comes in the fragment of the address, which no server sees,
// and is taken out of it at once; it is kept for this origin alone.

const KEY = "treadle.token";
const TRIES = 4;
let token = null;

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Take the token of a link, else the one that is kept. */
export function begin() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    history.replaceState(null, "", location.pathname);
    localStorage.setItem(KEY, given);
  }
  token = given ?? localStorage.getItem(KEY);
}

export const signedIn = () => Boolean(token);

export function signIn(given) {
  token = given.trim();
  localStorage.setItem(KEY, token);
}

export function signOut() {
  token = null;
  localStorage.removeItem(KEY);
  window.dispatchEvent(new Event("signed-out"));
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** A request; what changes something is repeated under one key when the connection breaks, and is done once. */
export async function api(method, path, body, { quick = false } = {}) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  if (body !== undefined) headers["content-type"] = "application/json";
  if (method !== "GET") headers["idempotency-key"] = newKey();
  const sent = { method, headers, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store" };
  for (let tries = 1; ; tries++) {
    let response;
    try {
      response = await fetch(path, sent);
    } catch {
      if (quick || tries >= TRIES) throw new ApiError(0, "offline", "The server cannot be reached.");
      await pause(300 * 2 ** tries);
      continue;
    }
    if (response.ok) return response.status === 204 ? null : read(response);
    const said = (await response.json().catch(() => ({}))).error ?? {};
    if (response.status === 401 && path !== "/api/sign-in") signOut();
    throw new ApiError(response.status, said.code ?? "", said.message ?? `The server answered ${response.status}.`);
  }
}

async function read(response) {
  return response.headers.get("content-type")?.startsWith("application/json") ? response.json() : response;
}

export const chatPath = (id, rest = "") => `/api/chats/${encodeURIComponent(id)}${rest}`;
