// One event, all that is known of it: what it says, what became of it, its audit trail, and why it is there.

import { Explained } from "../panels/explanation.js";
import { attributes } from "../ui/events.js";
import {
  Ago,
  Badge,
  Button,
  Copy,
  Drawer,
  duration,
  html,
  Json,
  Loading,
  Priority,
  Problem,
  Time,
  usePoll,
} from "../ui.js";

const DERIVED = "tocsin:definitions"; // the source of composite events
const STATES = { live: "accent", settled: "ok", expired: "neutral", cancelled: "bad" };
const STEPS = {
  published: "accent",
  delivered: "neutral",
  acked: "ok",
  receipt: "ok",
  cancelled: "bad",
  expired: "neutral",
  dead: "bad",
};

export function EventDrawer({ app, event, onClose }) {
  const where = { id: event.id, source: event.source };
  const status = usePoll(() => app.bus.call("status", where), 3000);
  const audit = usePoll(() => app.bus.call("audit", where), 3000);
  const derived = event.source === DERIVED || Array.isArray(event.data?.parts);
  const actions = html`<${Button}
    small
    onClick=${() => app.go("past", { from: event.offset, id: event.id })}
    disabled=${!event.offset}
    >In the past<//
  >`;
  return html`<${Drawer} title=${event.type} note=${event.source} onClose=${onClose} actions=${actions}>
    <div class="row">
      <${Priority} value=${event.priority} />
      ${status.value && html`<${Badge} tone=${STATES[status.value.state]}>${status.value.state}<//>`}
      ${event.ttl !== undefined && html`<${Badge}>lives ${duration(event.ttl)}<//>`}
      ${event.ack && event.ack !== "none" && html`<${Badge}>ack: ${event.ack}<//>`}
      ${event.classification && event.classification !== "unclassified" && html`<${Badge} tone="warn">${event.classification}<//>`}
      ${derived && html`<${Badge} tone="accent">composite<//>`}
    </div>
    <dl class="facts">
      <dt>Id</dt>
      <dd class="mono">${event.id}<${Copy} text=${event.id} label="Copy the id" /></dd>
      ${
        event.subject &&
        html`<dt>Subject</dt>
          <dd>${event.subject}</dd>`
      }
      ${
        event.offset &&
        html`<dt>Offset</dt>
          <dd class="num">${event.offset}</dd>`
      }
      ${
        event.arrived &&
        html`<dt>Arrived</dt>
          <dd>
            <${Time} at=${event.arrived} date /> <span class="muted">(<${Ago} at=${event.arrived} />)</span>
          </dd>`
      }
      ${
        event.time &&
        html`<dt>Time</dt>
          <dd><${Time} at=${event.time} date /> <span class="muted">its producer’s</span></dd>`
      }
      ${
        event.correlationid &&
        html`<dt>Answers</dt>
          <dd class="mono">${event.correlationid}</dd>`
      }
      ${attributes(event).map(
        ([name, value]) =>
          html`<dt key=${name}>${name}</dt>
            <dd>${String(value)}</dd>`,
      )}
    </dl>
    ${
      derived &&
      html`<h3>Why it is there</h3>
        <${Explained} app=${app} event=${event} />`
    }
    <h3>Data</h3>
    ${event.data !== undefined || event.data_base64 ? html`<${Json} value=${event.data ?? event.data_base64} label="Data" />` : html`<p class="muted">It carries none.</p>`}
    <h3>Who has it</h3>
    <${Fate} status=${status} />
    <h3>Audit trail</h3>
    <${Trail} audit=${audit} tracked=${event.ttl !== undefined || (event.ack && event.ack !== "none")} />
    <details class="raw">
      <summary>The whole event as JSON</summary>
      <${Json} value=${event} label="The whole event" />
    </details>
  <//>`;
}

function Fate({ status }) {
  if (status.error) return html`<${Problem} error=${status.error} />`;
  if (!status.value) return html`<${Loading} />`;
  const { matched, delivered, acked, pending } = status.value;
  if (!matched.length && !delivered.length) return html`<p class="muted">Nobody has asked for events like this.</p>`;
  const all = [...new Set([...matched, ...delivered, ...acked, ...pending])].sort();
  return html`<ul class="names">
    ${all.map((name) => {
      const [tone, word] = acked.includes(name)
        ? ["ok", "done with it"]
        : delivered.includes(name)
          ? ["accent", "has it in hand"]
          : pending.includes(name)
            ? ["neutral", "waits for it"]
            : ["neutral", "matches"];
      return html`<li key=${name}><span>${name}</span><${Badge} tone=${tone}>${word}<//></li>`;
    })}
  </ul>`;
}

function Trail({ audit, tracked }) {
  if (audit.error) return html`<${Problem} error=${audit.error} />`;
  if (!audit.value) return html`<${Loading} />`;
  return html`<ol class="trail">
      ${audit.value.slice(0, 200).map(
        ({ step, at, who }, place) =>
          html`<li key=${place} class=${`tone-${STEPS[step] || "neutral"}`}>
            <span class="trail-step">${step}</span
            >${who && html`<span> ${step === "published" ? "by" : "·"} ${who}</span>`}
            <${Time} at=${at} />
          </li>`,
      )}
    </ol>
    ${!tracked && html`<p class="muted small">Every step is kept of events with a ttl or an ack; of others only the first and the last.</p>`}`;
}
