// HTTP to the node that served this page: the token goes along, errors are typed.
//
// An answer that is no 2xx throws `Refused` with what the node said: `message`, `field`, `position`, `help`, `status`.
// A node that cannot be reached throws `Unreachable`. Nothing is retried here: panels poll, and the bus reconnects.

export class Refused extends Error {
  constructor(status, said) {
    super(said.message || `the node answered ${status}`);
    this.name = said.error || "Refused";
    this.status = status;
    this.field = said.field ?? null;
    this.position = said.position ?? null;
    this.help = said.help ?? null;
  }
}

export class Unreachable extends Error {
  constructor() {
    super("the node does not answer");
    this.name = "Unreachable";
    this.status = 0;
    this.field = this.position = null;
    this.help = "the page goes on as soon as it is back";
  }
}

export class Http {
  // `token()` gives the token or "", `name()` who asks or "", `onUnauthorized()` hears of every 401.
  constructor({ token, name, onUnauthorized }) {
    this._token = token;
    this._name = name;
    this._onUnauthorized = onUnauthorized;
  }

  // JSON; JSON lines come as a list; anything else as text.
  get(path, params, options) {
    return this.ask("GET", path, params, options);
  }

  // A part of a list, and how long the whole list is: `[items, total]`.
  async counted(path, params) {
    const answer = await this._fetch("GET", path, params);
    return [await this._read(answer), Number(answer.headers.get("Tocsin-Total"))];
  }

  // A range of the journal, and which it is: `{events, first, head, from, to}` (docs/HTTP.md).
  async events(params, options) {
    const answer = await this._fetch("GET", "/events", params, options);
    const events = await this._read(answer);
    const place = (name) => Number(answer.headers.get(`Tocsin-${name}`));
    return { events, first: place("First"), head: place("Head"), from: place("From"), to: place("To") };
  }

  put(path, body, params) {
    return this.ask("PUT", path, params, { body });
  }

  post(path, body, params) {
    return this.ask("POST", path, params, { body });
  }

  delete(path, params) {
    return this.ask("DELETE", path, params);
  }

  async ask(method, path, params, options) {
    return this._read(await this._fetch(method, path, params, options));
  }

  async _fetch(method, path, params, { body, signal, headers = {} } = {}) {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(params || {})) {
      if (value !== undefined && value !== null && value !== "") query.set(name, value);
    }
    const said = { ...headers };
    if (this._token()) said.Authorization = `Bearer ${this._token()}`;
    else if (this._name()) said["Tocsin-Name"] = this._name(); // a token says by itself whose it is
    const sent = { method, headers: said, signal, cache: "no-store" };
    if (body !== undefined) {
      said["Content-Type"] = "application/json";
      sent.body = JSON.stringify(body);
    }
    try {
      return await fetch(query.size ? `${path}?${query}` : path, sent);
    } catch (error) {
      throw error.name === "AbortError" ? error : new Unreachable();
    }
  }

  async _read(answer) {
    const text = await answer.text();
    if (answer.ok) return read(text, answer.headers.get("Content-Type") || "");
    if (answer.status === 401) this._onUnauthorized();
    let why = {};
    try {
      why = JSON.parse(text);
    } catch {
      // a proxy between us and the node may say anything
    }
    throw new Refused(answer.status, why);
  }
}

function read(text, type) {
  if (type.startsWith("application/x-ndjson"))
    return text
      .split("\n")
      .filter(Boolean)
      .map((line) => JSON.parse(line));
  if (type.includes("json")) return text ? JSON.parse(text) : null;
  return text;
}

// A part of a path: ids and names may hold anything, slashes too.
export const part = (text) => encodeURIComponent(text);
