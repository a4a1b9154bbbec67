// Why a detection is there, in words: which parts, by which rule, what it used up, and why not earlier.

import { Badge, Loading, Problem, Time, duration, gist, html, usePoll } from "../ui.js";
import { part } from "../http.js";

const FATES = {
  used: ["neutral", "used up"],
  open: ["accent", "stays open"],
  perhaps: ["neutral", "may still be open"],
};
const ROLES = {
  opener: "the opener",
  middle: "in between",
  closer: "the closer",
  kind: "one of them",
  either: "either",
  whole: "",
};

export function Explained({ app, event }) {
  const { value, error, loading } = usePoll(
    () => app.http.get(`/events/${part(event.id)}/explanation`, { source: event.source }),
    0,
    [event.id],
  );
  if (loading && !value) return html`<div class="explained"><${Loading} words="Working it out …" /></div>`;
  if (error) return html`<div class="explained"><${Problem} error=${error} /></div>`;
  return html`<div class="explained" data-explained=${event.id}>
    <p class="because">${value.rule}</p>
    <ol class="parts" aria-label="What it is made of">
      ${value.parts.map((each, place) => html`<${Part} key=${place} each=${each} app=${app} />`)}
    </ol>
    ${value.where && html`<p>Of these parts it was true that <code>${value.where}</code>.</p>`}
    ${value.steps.slice(1).map((step, place) => html`<${Step} key=${place} step=${step} />`)}
    <p><strong>Why not earlier?</strong> ${value.missing}${length(value)}</p>
    ${value.certain === false && html`<p class="muted small">There are several ways to read these parts; this is one.</p>`}
    <details>
      <summary>The same as plain text</summary>
      <pre class="pre">${value.text}</pre>
    </details>
  </div>`;
}

function Step({ step }) {
  return html`<p class="small" style=${`margin-left:${step.depth}em`}>
    <code>${step.text}</code> <span class="muted">${step.rule}</span>
  </p>`;
}

function length({ span, within }) {
  if (span === null || span === undefined) return "";
  const share = within ? `, ${Math.round((100 * span) / within)} % of the ${duration(within)} it may take` : "";
  return ` It took ${span ? duration(span) : "no time"} from the first part to the last${share}.`;
}

function Part({ each, app }) {
  const [tone, fate] = FATES[each.fate] ?? [null, null];
  const isTick = each.offset === null || each.offset === undefined;
  return html`<li class="part">
    <span class="part-name"
      ><strong>${each.name}</strong> <span class="muted small">${ROLES[each.role] ?? each.role ?? ""}</span></span
    >
    <span class="part-words">
      ${each.leaf && html`<code>${each.leaf}</code>`}
      <span class="muted">${isTick ? "a tick of the clock" : each.event ? gist(each.event) : each.source}</span>
    </span>
    <span class="part-end">
      ${each.time && html`<${Time} at=${each.time} />`}
      ${!isTick && html`<${Offset} each=${each} app=${app} />`}
      ${fate && html`<${Badge} tone=${tone}>${fate}<//>`}
    </span>
  </li>`;
}

function Offset({ each, app }) {
  if (!each.event) return html`<span class="num muted">offset ${each.offset}</span>`; // trimmed, or not to be seen
  return html`<button type="button" class="link num" onClick=${() => app.openEvent(each.event)}>
    offset ${each.offset}
  </button>`;
}
