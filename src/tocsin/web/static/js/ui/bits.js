// Small parts without state of their own: frames, badges, figures, and what is shown when there is nothing to show.

import { html, useState } from "../../vendor/preact.js";
import { Icon } from "./icons.js";

// A whole panel: its heading, a sentence about it, things to press, and what it holds.
export function Panel({ title, note, actions, children, fill = false, id }) {
  return html`<section class=${`panel${fill ? " panel-fill" : ""}`} aria-labelledby=${`${id || title}-title`}>
    <header class="panel-head">
      <div class="panel-words">
        <h1 id=${`${id || title}-title`}>${title}</h1>
        ${note && html`<p class="muted">${note}</p>`}
      </div>
      ${actions && html`<div class="panel-actions">${actions}</div>`}
    </header>
    ${children}
  </section>`;
}

// A framed part of a panel. `flush`: what it holds reaches its edges, as a table does.
export function Card({ title, note, actions, children, flush = false, class: name = "" }) {
  return html`<div class=${`card ${flush ? "card-flush" : ""} ${name}`}>
    ${
      (title || actions) &&
      html`<header class="card-head">
        <div>${title && html`<h2>${title}</h2>`} ${note && html`<p class="muted small">${note}</p>`}</div>
        ${actions && html`<div class="card-actions">${actions}</div>`}
      </header>`
    }
    <div class="card-body">${children}</div>
  </div>`;
}

// tone: neutral, accent, ok, warn, bad.
export function Badge({ tone = "neutral", title, children }) {
  return html`<span class=${`badge tone-${tone}`} title=${title}>${children}</span>`;
}

// 1 to 10; 10 is delivered first, 5 is what an event has if nobody says.
export function Priority({ value }) {
  const level = value ?? 5;
  const tone = level >= 9 ? "bad" : level >= 7 ? "warn" : level >= 6 ? "accent" : "neutral";
  return html`<span class=${`priority tone-${tone}`} title=${`priority ${level} of 10`}>
    <span class="visually-hidden">priority </span>${level}
  </span>`;
}

// kind: plain, primary, danger, quiet.
export function Button({ kind = "plain", icon, children, label, small = false, ...rest }) {
  return html`<button
    type="button"
    class=${`button button-${kind}${small ? " button-small" : ""}`}
    aria-label=${label}
    title=${label}
    ...${rest}
  >
    ${icon && html`<${Icon} name=${icon} size=${small ? 14 : 16} />`}${children !== undefined && html`<span>${children}</span>`}
  </button>`;
}

// One of a few: options are [value, words] pairs.
export function Segmented({ label, value, options, onChange }) {
  return html`<div class="segmented" role="group" aria-label=${label}>
    ${options.map(
      ([each, words]) =>
        html`<button
          type="button"
          key=${each}
          aria-pressed=${each === value ? "true" : "false"}
          onClick=${() => onChange(each)}
        >
          ${words}
        </button>`,
    )}
  </div>`;
}

export function Stats({ children }) {
  return html`<dl class="stats">${children}</dl>`;
}

export function Stat({ label, value, unit, note, tone }) {
  return html`<div class=${`stat${tone ? ` tone-${tone}` : ""}`}>
    <dt>${label}</dt>
    <dd><span class="num">${value}</span>${unit && html`<span class="stat-unit">${unit}</span>`}</dd>
    ${note && html`<dd class="stat-note">${note}</dd>`}
  </div>`;
}

// Nothing is there: why, and what to type to change that.
export function Empty({ title, icon, command, children }) {
  return html`<div class="empty">
    ${icon && html`<div class="empty-icon"><${Icon} name=${icon} size=${22} /></div>`}
    <p class="empty-title">${title}</p>
    ${children && html`<div class="empty-words">${children}</div>`} ${command && html`<${Command} text=${command} />`}
  </div>`;
}

// A command for a terminal. One that would look for the node elsewhere is told where this one is.
function Command({ text: given }) {
  const text =
    location.host === "127.0.0.1:8420"
      ? given
      : `${given} --url ${location.protocol === "https:" ? "wss" : "ws"}://${location.host}`;
  return html`<div class="command"><code>${text}</code><${Copy} text=${text} label="Copy the command" /></div>`;
}

export function Copy({ text, label = "Copy" }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setDone(true);
      setTimeout(() => setDone(false), 1500);
    } catch {
      // without permission the text can still be selected by hand
    }
  };
  return html`<button
    type="button"
    class="icon-button"
    aria-label=${done ? "Copied" : label}
    title=${done ? "Copied" : label}
    onClick=${copy}
  >
    <${Icon} name=${done ? "check" : "copy"} size=${14} />
  </button>`;
}

// Something failed: what, where, how to mend it.
export function Problem({ error, onRetry }) {
  if (!error) return null;
  return html`<div class="problem" role="alert">
    <${Icon} name="warn" />
    <div class="problem-words">
      <p><strong>${sentence(error.message)}</strong></p>
      ${error.help && html`<p>${sentence(error.help)}</p>`}
    </div>
    ${onRetry && html`<${Button} small onClick=${onRetry}>Try again<//>`}
  </div>`;
}

const sentence = (text) => (text ? text[0].toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".") : "");

export function Loading({ words = "Asking the node …" }) {
  return html`<p class="loading muted" aria-busy="true">${words}</p>`;
}
