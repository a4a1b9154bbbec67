// A value as coloured JSON text, folded where it is large. Plain text nodes only: nothing an event says becomes markup.

import { html, useState } from "../../vendor/preact.js";
import { Copy } from "./bits.js";

const FOLDED = 40; // entries of a list or object that are shown at first
const LONG = 2000; // letters of a text

export function Json({ value, label = "JSON" }) {
  return html`<div class="json" role="group" aria-label=${label}>
    <div class="json-copy"><${Copy} text=${JSON.stringify(value, null, 2)} label="Copy as JSON" /></div>
    <pre tabindex="0"><${Value} value=${value} depth=${0} /></pre>
  </div>`;
}

function Value({ value, depth }) {
  if (value === null || value === undefined) return html`<span class="json-null">null</span>`;
  if (Array.isArray(value))
    return html`<${Entries} open="[" close="]" entries=${value.map((each) => [null, each])} depth=${depth} />`;
  if (typeof value === "object")
    return html`<${Entries} open="{" close="}" entries=${Object.entries(value)} depth=${depth} />`;
  if (typeof value === "string") {
    const text = value.length > LONG ? `${value.slice(0, LONG)}…` : value;
    return html`<span class="json-text">${JSON.stringify(text)}</span>`;
  }
  return html`<span class="json-value">${String(value)}</span>`;
}

function Entries({ open, close, entries, depth }) {
  const [all, setAll] = useState(false);
  if (!entries.length) return html`<span>${open}${close}</span>`;
  const shown = all ? entries : entries.slice(0, FOLDED);
  const indent = "  ".repeat(depth + 1);
  return html`<span
    >${open}${"\n"}${shown.map(
      ([name, value], place) =>
        html`<span key=${name ?? place}
          >${indent}${name !== null && html`<span class="json-name">${JSON.stringify(name)}</span>${": "}`}<${Value}
            value=${value}
            depth=${depth + 1}
          />${place < entries.length - 1 ? "," : ""}${"\n"}</span
        >`,
    )}${shown.length < entries.length && html`${indent}<button type="button" class="link" onClick=${() => setAll(true)}>… ${entries.length - shown.length} more</button>${"\n"}`}${"  ".repeat(depth)}${close}</span
  >`;
}
