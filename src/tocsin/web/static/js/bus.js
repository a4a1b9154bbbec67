// The node's bus in a browser: protocol 1 in JSON over one WebSocket (docs/PROTOCOL.md).
//
// Promised: a lost connection is made again, with growing pauses, and all that was open on it is opened again; a command
// is answered once, or fails when its connection is lost; nothing is delivered beyond the credit that was given.
// Not promised: that a command whose connection was lost was not carried out.
//
// States (`bus.state`, `on("state")`): connecting, open, waiting (the next try is at `bus.retryAt`), refused (a token is
// needed, or another), replaced (a newer session took our name), closed.

const FIRST_PAUSE = 300;
const LONGEST_PAUSE = 8_000;
const PING_EVERY = 10_000;
const SILENCE = 30_000; // nothing heard for so long, though we asked: the connection is dead
const REFUSED = 4401;
const REPLACED = 4409;

export class BusError extends Error {
  constructor(error) {
    super(error.message);
    this.name = error.error || "BusError";
    this.field = error.field ?? null;
    this.position = error.position ?? null;
    this.help = error.help ?? null;
  }
}

const lost = () =>
  new BusError({
    error: "Disconnected",
    message: "the connection was lost",
    help: "it is made again; then try again",
  });

export class Bus {
  // `name()` and `token()` are asked at every connection; both may give "".
  constructor({ url, name, token }) {
    this.url = url;
    this.state = "closed";
    this.session = null; // the name the node knows us by
    this.retryAt = 0;
    this.why = null; // the last refusal
    this._name = name;
    this._token = token;
    this._socket = null;
    this._number = 0;
    this._asked = new Map();
    this._streams = new Map();
    this._hears = new Map();
    this._pause = FIRST_PAUSE;
    this._skew = 0;
    this._timers = [];
    this._lookSoon = () => this.state === "waiting" && !document.hidden && this.connect();
    addEventListener("online", this._lookSoon);
    document.addEventListener("visibilitychange", this._lookSoon);
  }

  on(what, hear) {
    const all = this._hears.get(what) || new Set();
    this._hears.set(what, all.add(hear));
    return () => all.delete(hear);
  }

  // The node's time, in milliseconds since 1970.
  now() {
    return Date.now() + this._skew;
  }

  connect() {
    this._drop();
    this._become("connecting");
    const socket = new WebSocket(this.url, ["tocsin.1.json"]);
    this._socket = socket;
    socket.onopen = () => {
      const hello = { op: "hello", version: 1 };
      if (this._token()) hello.token = this._token();
      else if (this._name()) hello.name = this._name(); // a token says by itself whose it is
      this._send(hello);
    };
    socket.onmessage = ({ data }) => {
      if (socket !== this._socket) return;
      this._heard = performance.now();
      this._take(JSON.parse(data));
    };
    socket.onclose = ({ code, reason }) => socket === this._socket && this._ended(code, reason);
  }

  // Connect anew, under another name or token.
  reconnect() {
    this._pause = FIRST_PAUSE;
    this._send({ op: "bye", reason: "closed" });
    this.connect();
  }

  close() {
    this._send({ op: "bye", reason: "closed" });
    this._drop();
    this._become("closed");
    removeEventListener("online", this._lookSoon);
    document.removeEventListener("visibilitychange", this._lookSoon);
  }

  // Resolves to what the verb gives; arguments have the names they have in Python.
  call(verb, args = {}) {
    return this.ask({ op: "call", verb, args });
  }

  // A command with an answer.
  ask(frame) {
    if (this.state !== "open") return Promise.reject(lost());
    this._number += 1;
    const n = this._number;
    return new Promise((resolve, reject) => {
      this._asked.set(n, { resolve, reject });
      this._send({ ...frame, n });
    });
  }

  // Deliveries as they come: `onBatch([{number, attempt, replayed, notice, offset, arrived, event}])`.
  //
  // `past` may be a function of the last offset that came: what to ask for on each connection. Credit is yours to give
  // back with `stream.credit(n)`, when you have done with so many. `onOpen(value)` hears every (re)opening, `onError` why
  // it could not be opened; it stays closed then.
  subscribe({ filter = "", consumer, past, options = {}, system = false, credit = 1000, onBatch, onOpen, onError }) {
    const frame = (last) => ({
      op: "subscribe",
      filter: filter || "true",
      consumer,
      past: (typeof past === "function" ? past(last) : past) || null,
      options,
      system,
      credit,
    });
    const take = ({ items }) =>
      onBatch(
        items.map(([number, attempt, flags, offset, arrived, event]) => ({
          number,
          attempt,
          replayed: Boolean(flags & 1),
          notice: Boolean(flags & 2),
          offset,
          arrived,
          event,
        })),
      );
    return this._stream(frame, take, { onOpen, onError });
  }

  // Resources and the like: `onItems(items, isNow)`; credit is given back by itself.
  watch(what, args, { onItems, onOpen, onError, credit = 500 }) {
    const stream = this._stream(
      () => ({ op: "watch", what, args, credit }),
      ({ items }) => {
        onItems(items.map(([, item]) => item));
        stream.credit(items.length);
      },
      { onOpen, onError },
    );
    return stream;
  }

  _stream(frame, take, { onOpen, onError }) {
    this._number += 1;
    const stream = new Stream(this, this._number, frame, take, onOpen, onError);
    this._streams.set(stream.sub, stream);
    if (this.state === "open") stream._open();
    return stream;
  }

  _send(frame) {
    if (this._socket?.readyState === WebSocket.OPEN) this._socket.send(JSON.stringify(frame));
  }

  _take(frame) {
    switch (frame.op) {
      case "welcome":
        return this._welcomed(frame);
      case "done":
        return this._settled(frame.re)?.resolve(frame.value);
      case "failed":
        if (frame.re === undefined || frame.re === null) this.why = new BusError(frame.error);
        return this._settled(frame.re)?.reject(new BusError(frame.error));
      case "deliver":
      case "seen":
        return this._streams.get(frame.sub)?._came(frame);
      case "ended":
        return this._streams.get(frame.sub)?._over(frame.error && new BusError(frame.error));
      case "trouble":
        return this._streams.get(frame.sub)?._troubled(new BusError(frame.error));
      case "ping":
        return this._send({ op: "pong", n: frame.n });
      case "pong":
        if (frame.now) this._skew = frame.now / 1000 - Date.now();
        return undefined;
      default:
        return undefined; // a newer node may say more
    }
  }

  _settled(n) {
    const asked = this._asked.get(n);
    this._asked.delete(n);
    return asked;
  }

  _welcomed({ name, now }) {
    this.session = name;
    this.why = null;
    this._skew = now / 1000 - Date.now();
    this._pause = FIRST_PAUSE;
    this._heard = performance.now();
    this._timers.push(setInterval(() => this._look(), PING_EVERY));
    this._become("open");
    for (const stream of this._streams.values()) stream._open();
  }

  _look() {
    if (performance.now() - this._heard > SILENCE) this._socket.close();
    else this._send({ op: "ping", n: 0 });
  }

  _ended(code, reason) {
    this._drop();
    if (code === REFUSED) {
      this.why ??= new BusError({ error: "UnauthorizedError", message: reason || "a token is needed" });
      return this._become("refused");
    }
    if (code === REPLACED) return this._become("replaced");
    this.retryAt = Date.now() + this._pause * (0.75 + Math.random() / 2);
    this._timers.push(setTimeout(() => this.connect(), this.retryAt - Date.now()));
    this._pause = Math.min(this._pause * 2, LONGEST_PAUSE);
    return this._become("waiting");
  }

  // Let go of the connection; who waits for an answer is told.
  _drop() {
    for (const timer of this._timers) clearTimeout(timer); // clears intervals, too
    this._timers = [];
    const socket = this._socket;
    this._socket = null;
    socket?.close();
    const asked = [...this._asked.values()];
    this._asked.clear();
    for (const { reject } of asked) reject(lost());
  }

  _become(state) {
    if (state === this.state) return;
    this.state = state;
    for (const hear of this._hears.get("state") || []) hear(state);
  }
}

// One subscription or watch, over all connections.
class Stream {
  constructor(bus, sub, frame, take, onOpen, onError) {
    this.sub = sub;
    this.last = 0; // the highest offset that came
    this._bus = bus;
    this._frame = frame;
    this._takes = take;
    this._onOpen = onOpen;
    this._onError = onError;
  }

  async _open() {
    try {
      const value = await this._bus.ask({ ...this._frame(this.last), sub: this.sub });
      this._onOpen?.(value);
    } catch (error) {
      if (error.name !== "Disconnected") this._over(error);
    }
  }

  _came(frame) {
    if (frame.op === "deliver") for (const item of frame.items) this.last = Math.max(this.last, item[3]);
    this._takes(frame);
  }

  _over(error) {
    this._bus._streams.delete(this.sub);
    if (error) this._onError?.(error);
  }

  _troubled(error) {
    this._onError?.(error);
  }

  credit(n) {
    if (n > 0) this._bus._send({ op: "credit", sub: this.sub, n });
  }

  // `{ack: [numbers], nak: [[number, seconds]], term: [[number, why]], extend: [numbers]}`; done when it is stored.
  settle(how) {
    return this._bus.ask({ op: "settle", sub: this.sub, ...how });
  }

  close() {
    if (!this._bus._streams.delete(this.sub)) return;
    if (this._bus.state === "open") this._bus.ask({ op: "close", sub: this.sub }).catch(() => {}); // gone either way
  }
}
