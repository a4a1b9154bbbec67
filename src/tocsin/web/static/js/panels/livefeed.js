// What the live panel shows, without any of its looks: the newest events, how fast they come, whether they are held.
//
// It reads the journal behind its own place (`GET /events`), a few times a second, and is no consumer. Whoever subscribes
// to an alert and settles it has acknowledged it, and stands in its audit trail: a screen that somebody left on must not.
// What is read is bounded, and asked for only when the last answer is drawn, so a slow browser is never flooded.

const KEPT = 500; // events
const EVERY = 200; // milliseconds between two looks; more often would only be a blur
const HIDDEN = 2000; // the same while nobody can see it
const BEHIND = 5000; // offsets; who is further behind goes on from now
const SECONDS = 60; // of rates kept

export class LiveFeed {
  constructor({ http, bus }, onDraw) {
    this.error = null;
    this.isReady = false;
    this.received = 0;
    this.passed = 0; // offsets that were not looked at because we were too far behind
    this.rate = 0;
    this.rates = new Array(SECONDS).fill(0);
    this._http = http;
    this._bus = bus;
    this._onDraw = onDraw;
    this._query = null;
    this._next = 0; // the offset to go on from
    this._newest = []; // newest first
    this._held = null; // the list as it was when it was held
    this._heldAt = 0;
    this._reasons = new Set();
    this._second = 0;
    this._asking = null; // an AbortController; another one: what comes is for a query that was replaced
    this._clock = setInterval(() => this._tick(), 1000);
  }

  // `{filter, past, system}`: which events, with how many of the past. Begins anew.
  open(query) {
    this._asking?.abort();
    this._asking = new AbortController();
    this._query = query;
    this._next = 0;
    this._newest = [];
    this._held = this._reasons.size ? [] : null;
    this.error = null;
    this.isReady = false;
    this.received = this.passed = this._heldAt = 0;
    this._onDraw();
    this._run(this._asking.signal);
  }

  close() {
    this._asking?.abort();
    clearInterval(this._clock);
    this._onDraw = () => {};
  }

  // Newest first; still while it is held.
  get shown() {
    return this._held || this._newest;
  }

  get isHeld() {
    return this._reasons.size > 0;
  }

  // Held by more than an event that is open beside it: then one must be able to go on.
  get isStopped() {
    return this._reasons.size > (this._reasons.has("drawer") ? 1 : 0);
  }

  // What came since it is held.
  get missed() {
    return this._held ? this.received - this._heldAt : 0;
  }

  isHeldBy(reason) {
    return this._reasons.has(reason);
  }

  hold(reason, isOn) {
    if (isOn === this._reasons.has(reason)) return;
    if (isOn) this._reasons.add(reason);
    else this._reasons.delete(reason);
    if (!this.isHeld) this._held = null;
    else if (!this._held) {
      this._held = this._newest;
      this._heldAt = this.received;
    }
    this._onDraw();
  }

  resume() {
    this._reasons.clear();
    this._held = null;
    this._onDraw();
  }

  async _run(signal) {
    while (!signal.aborted) {
      let isMore = false;
      try {
        if (this._bus.state === "open") isMore = this._next ? await this._look(signal) : await this._begin(signal);
      } catch (error) {
        if (signal.aborted) return;
        if (error.status === 410)
          this._next = 0; // what comes next was trimmed: from now on, then
        else if (error.status >= 400 && error.status < 429) return this._failed(error); // asking again would not help
      }
      if (!isMore) await pause(document.hidden ? HIDDEN : EVERY);
      await drawn();
    }
  }

  // The newest events there are, as many as are wanted; then the place to go on from is known.
  async _begin(signal) {
    const { filter, past, system } = this._query;
    const most = Number(past);
    const { head, first } = await this._http.events({ limit: 1, from: Number.MAX_SAFE_INTEGER, filter }, { signal });
    let found = [];
    if (most && filter && !system) {
      const { examples } = await this._http.get("/filters/test", { filter, past, limit: past }, { signal });
      found = examples.reverse();
    } else if (most) {
      const from = Math.max(first, head - 4 * most); // the node's own records take offsets, too
      found = (await this._http.events({ from, to: head, filter, system: system || null }, { signal })).events.slice(
        -most,
      );
    }
    if (signal.aborted) return false;
    this._next = Math.max(head, found.at(-1)?.offset || 0) + 1;
    this.isReady = true;
    this._take(found);
    return false;
  }

  async _look(signal) {
    const { filter, system } = this._query;
    const asked = { from: this._next, limit: KEPT, filter, system: system || null };
    const { events, head, to } = await this._http.events(asked, { signal });
    if (signal.aborted) return false;
    if (head < this._next - 1) return this.open(this._query); // another journal is at this address now
    const isFull = events.length === KEPT;
    this._next = (isFull ? events.at(-1).offset : Math.max(to, this._next - 1)) + 1;
    if (head - this._next > BEHIND) {
      this.passed += head - KEPT - this._next;
      this._next = head - KEPT;
    }
    this._second += events.length;
    this._take(events);
    return isFull;
  }

  _take(events) {
    this.error = null;
    if (events.length) {
      this.received += events.length;
      this._newest = events.reverse().concat(this._newest).slice(0, KEPT);
    }
    this._onDraw();
  }

  _failed(error) {
    this.error = error;
    this.isReady = true;
    this._onDraw();
  }

  _tick() {
    this.rates = [...this.rates.slice(1), this._second];
    const recent = this.rates.slice(-5);
    this.rate = recent.reduce((sum, each) => sum + each, 0) / recent.length;
    this._second = 0;
    this._onDraw();
  }
}

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

// A hidden page draws no frames, and does not wait for one.
const drawn = () => (document.hidden ? undefined : new Promise((done) => requestAnimationFrame(done)));
