// The alert desk: the page as a consumer under the operator's name (docs/DELIVERY.md).
//
// Whoever has a name here is a durable consumer of that name, subscribed to alerts: events with `ttl` or `ack`. What is
// delivered is in the operator's hands until it is acknowledged: `in_progress` (extend) is said while the page is open, so
// nothing comes again needlessly, and a page that is closed gives everything back. Acknowledging settles the delivery,
// which is stored when `ack` resolves. Word that an alert was cancelled comes the same way, as a notice.
//
// Two windows of one operator are one consumer, so each alert is in one of them; what the other asks for is settled by the
// one that holds it (BroadcastChannel).

export const ALERTS = "ttl IS NOT NULL OR ack <> 'none'";

const ACK_WAIT = 60; // seconds
const IN_HAND = 1000; // alerts at a time; more wait in the journal, the most urgent come first
const NOTICES = 50;
const PATIENCE = 3000;

export class Desk {
  constructor(bus, onChange) {
    this.operator = "";
    this.held = new Map(); // offset → delivery
    this.notices = [];
    this.error = null;
    this._bus = bus;
    this._onChange = onChange;
    this._stream = null;
    this._arrivals = new Set();
    this._extending = setInterval(() => this._extend(), (ACK_WAIT * 1000) / 3);
    this._others = new BroadcastChannel("tocsin-desk");
    this._others.onmessage = ({ data }) => this._asked(data);
    bus.on("state", (state) => state !== "open" && this.held.clear()); // it all comes again, with numbers of its own
  }

  // Be this operator's desk; "" leaves it. The consumer stays, with its place.
  sit(operator, isWide = true) {
    if (operator === this.operator && this._stream) return;
    this.leave();
    this.operator = operator;
    this.error = null;
    if (!operator) return;
    const options = { ack_wait: ACK_WAIT, durable: true };
    if (isWide) options.max_in_flight = IN_HAND;
    this._stream = this._bus.subscribe({
      filter: ALERTS,
      consumer: operator,
      past: "retained",
      options,
      credit: 2 * IN_HAND,
      onBatch: (batch) => this._took(batch),
      onOpen: () => this._changed(null),
      onError: (error) => {
        this._stream = null;
        if (isWide && error.field === "max_in_flight")
          this.sit(operator, false); // made elsewhere, with another window
        else this._changed(error);
      },
    });
  }

  leave() {
    this._stream?.close();
    this._stream = null;
    this.operator = "";
    this.held.clear();
  }

  // Drop the consumer itself: nothing waits for it any more.
  async forget() {
    const { operator } = this;
    this.leave();
    if (operator) await this._bus.call("forget", { consumer: operator });
    this._changed(null);
  }

  async ack(offset) {
    const delivery = this.held.get(offset) || (await this._arrival(offset));
    if (delivery) {
      await this._stream.settle({ ack: [delivery.number] });
      this.held.delete(offset);
      this._changed(null);
      return;
    }
    if (await this._elsewhere(offset)) return;
    const error = new Error("this alert is not in your hands");
    error.help = `another window of ${this.operator} may hold it, or too many others wait before it`;
    throw error;
  }

  dismiss(notice) {
    this.notices = this.notices.filter((each) => each !== notice);
    this._changed(this.error);
  }

  _took(batch) {
    this._stream?.credit(batch.length);
    for (const delivery of batch) {
      if (!delivery.notice) {
        this.held.set(delivery.offset, delivery);
        for (const hear of this._arrivals) hear(delivery);
      } else if (delivery.event.type === "tocsin.cancelled") {
        const { correlationid: id, data } = delivery.event;
        const known = this.held.get(data.offset)?.event;
        this.held.delete(data.offset);
        const notice = {
          id,
          source: data.source,
          by: data.by,
          offset: data.offset,
          at: delivery.event.time ?? delivery.arrived,
          event: known,
        };
        this.notices = [notice, ...this.notices].slice(0, NOTICES);
      }
    }
    this._changed(null);
  }

  _changed(error) {
    this.error = error;
    this._onChange();
  }

  _extend() {
    const now = this._bus.now();
    for (const [offset, { event, arrived }] of this.held) {
      if (event.ttl !== undefined && arrived / 1000 + event.ttl * 1000 < now) this.held.delete(offset);
    }
    if (!this.held.size || !this._stream) return;
    const numbers = [...this.held.values()].map(({ number }) => number);
    this._stream.settle({ extend: numbers }).catch(() => {}); // what was lost meanwhile comes again
  }

  _arrival(offset) {
    if (!this._stream) return Promise.resolve(null);
    return new Promise((resolve) => {
      const done = (delivery) => {
        clearTimeout(timer);
        this._arrivals.delete(hear);
        resolve(delivery);
      };
      const hear = (delivery) => delivery.offset === offset && done(delivery);
      const timer = setTimeout(() => done(null), PATIENCE / 3);
      this._arrivals.add(hear);
    });
  }

  _elsewhere(offset) {
    const { operator } = this;
    return new Promise((resolve) => {
      const done = (found) => {
        clearTimeout(timer);
        this._others.removeEventListener("message", hear);
        resolve(found);
      };
      const hear = ({ data }) => data.done === offset && data.operator === operator && done(true);
      const timer = setTimeout(() => done(false), PATIENCE);
      this._others.addEventListener("message", hear);
      this._others.postMessage({ ack: offset, operator });
    });
  }

  async _asked({ ack, operator }) {
    if (ack === undefined || operator !== this.operator || !this.held.has(ack)) return;
    try {
      await this.ack(ack);
      this._others.postMessage({ done: ack, operator });
    } catch {
      // the other window says that it could not be done
    }
  }
}
