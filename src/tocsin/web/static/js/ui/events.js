// An event in one line, and the words that say what it holds.

import { html } from "../../vendor/preact.js";
import { Priority } from "./bits.js";
import { openByKey } from "./table.js";
import { clock } from "./time.js";

const ENVELOPE = new Set([
  ...["specversion", "id", "source", "type", "subject", "time", "datacontenttype", "data", "data_base64", "dataschema"],
  ...["priority", "ttl", "ack", "cancel", "persistent", "correlationid", "classification", "offset", "arrived"],
]);
const LONGEST = 160;

// Attributes beside the envelope: what a filter can name.
export const attributes = (event) => Object.entries(event).filter(([name]) => !ENVELOPE.has(name));

// What an event says, as short text: `value 9.2 · machine m7`.
export function gist(event) {
  const words = [];
  if (event.subject) words.push(event.subject);
  const said = event.data;
  if (said !== null && typeof said === "object" && !Array.isArray(said)) {
    for (const [name, value] of Object.entries(said)) words.push(`${name} ${short(value)}`);
  } else if (said !== undefined && said !== null) {
    words.push(short(said));
  } else if (event.data_base64) {
    words.push("bytes");
  }
  for (const [name, value] of attributes(event)) words.push(`${name} ${short(value)}`);
  const text = words.join(" · ");
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
}

function short(value, isInside = false) {
  if (Array.isArray(value)) return `× ${value.length}`;
  if (value === null || typeof value !== "object") return typeof value === "string" ? value : JSON.stringify(value);
  if (isInside) return "{…}";
  return Object.entries(value)
    .map(([name, each]) => `${name} ${short(each, true)}`)
    .join(", ");
}

// One line. `event` is a structured CloudEvent, with `offset` and `arrived`.
export function EventRow({ event, onOpen, isOpen = false, style, tab = 0 }) {
  const open = onOpen && (() => onOpen(event));
  const system = event.type.startsWith("tocsin.");
  return html`<div
    class=${`event-row${isOpen ? " is-open" : ""}${system ? " is-system" : ""}`}
    role="row"
    style=${style}
    tabindex=${open ? tab : undefined}
    onClick=${open}
    onKeyDown=${open && ((pressed) => openByKey(pressed, open))}
  >
    <span role="cell" class="event-time num">${clock(event.arrived ?? event.time)}</span>
    <span role="cell" class="event-priority"><${Priority} value=${event.priority} /></span>
    <span role="cell" class="event-type" title=${event.type}>${event.type}</span>
    <span role="cell" class="event-source" title=${event.source}>${event.source}</span>
    <span role="cell" class="event-gist" data-source=${event.source}>${gist(event)}</span>
    <span role="cell" class="event-offset num">${event.offset}</span>
  </div>`;
}
