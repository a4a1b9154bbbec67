// One definition: its graph as the node draws it, what it has half detected for each key, and its last detections.

import {
  Ago,
  Badge,
  Button,
  Card,
  Dialog,
  Loading,
  Problem,
  Stat,
  Stats,
  Table,
  Time,
  count,
  html,
  useEffect,
  useMemo,
  usePoll,
  useRef,
  useState,
} from "../ui.js";
import { part } from "../http.js";
import { Explained } from "./explanation.js";
import { useNarrow } from "./pictures.js";
import { quoted, several, short } from "./words.js";

const EVERY = 2000;
const LAST = 10; // detections that are shown
const SMALLEST = 0.7; // of a drawing that does not fit; what is wider then is scrolled

const CONTEXTS = {
  recent: "the newest opener is used, and stays until a newer one replaces it",
  chronicle: "the oldest opener is used, and used up",
  continuous: "each opener has a window of its own; what closes fires for all of them",
  cumulative: "all openers are gathered, and used up together",
};

export function Definition({ app, each, refresh }) {
  const [isAsked, setAsked] = useState(false);
  const where = `/definitions/${part(each.name)}`;
  const undefine = async () => {
    await app.http.delete(where);
    app.toast?.(`${each.name} is not looked for any more`);
    app.go("definitions", {});
    refresh();
  };
  return html`<article class="definition stack" aria-label=${each.name} data-shown=${each.name}>
    <${Card}>
      <header class="definition-head">
        <div>
          <button type="button" class="back" onClick=${() => app.go("definitions", {})}>← All definitions</button>
          <h2>${each.name}</h2>
        </div>
        <div class="button-row">
          <${Button} small icon="live" onClick=${() => app.go("live", { filter: `type = ${quoted(each.name)}` })}
            >Listen<//
          >
          <${Button} small kind="danger" onClick=${() => setAsked(true)}>Undefine<//>
        </div>
      </header>
      <code class="definition-whole">${each.text}</code>
      ${each.halted && html`<p class="trouble" role="alert"><strong>Detection has halted.</strong> ${each.halted}. What comes meanwhile is looked at later.</p>`}
      ${each.warnings.map((words) => html`<p class="warning" key=${words}><${Badge} tone="warn">allowed, seldom meant<//> ${words}</p>`)}
      <dl class="facts">
        <dt>Looked for</dt>
        <dd>${each.placement === "spark" ? "on Spark, a batch at a time" : "on the node, as events come"}</dd>
        <dt>Context</dt>
        <dd>${each.context}: ${CONTEXTS[each.context]}</dd>
        <dt>Semantics</dt>
        <dd>
          ${each.semantics === "interval" ? "interval: parts may not overlap" : "detection: what counts is when each part was complete"}
        </dd>
        <dt>Since</dt>
        <dd>offset ${count(each.since)}</dd>
      </dl>
    <//>
    <${Stats}>
      <${Stat}
        label="Detected"
        value=${short(each.detected)}
        note=${each.last ? html`last <${Ago} at=${each.last} />` : "so far"}
        tone=${each.detected ? "ok" : undefined}
      />
      ${
        each.placement === "spark"
          ? html`<${Stat} label="Waiting" value="–" note="known to Spark only" />`
          : html`<${Stat} label="Waiting" value=${short(each.open)} note="openers, over all keys" />`
      }
      <${Stat} label="Expired" value=${short(each.expired)} note="not completed in time" />
      <${Stat}
        label="Dropped"
        value=${short(each.dropped)}
        note="too many were open"
        tone=${each.dropped ? "warn" : undefined}
      />
    <//>
    <${Graph} app=${app} where=${where} name=${each.name} />
    <${Waits} app=${app} where=${where} />
    <${Detections} app=${app} each=${each} />
    ${isAsked && html`<${Undefine} each=${each} act=${undefine} onClose=${() => setAsked(false)} />`}
  </article>`;
}

function Undefine({ each, act, onClose }) {
  const [error, setError] = useState(null);
  return html`<${Dialog} title=${`Undefine ${each.name}?`} onClose=${onClose}>
    <p>
      ${each.open ? `${several(each.open, "opener that waits is", "openers that wait are")} forgotten. ` : ""}What was
      detected stays in the journal, but cannot be explained any more.
    </p>
    <${Problem} error=${error} />
    <footer class="dialog-foot">
      <${Button} onClick=${onClose}>Keep it<//>
      <${Button} kind="danger" onClick=${() => act().catch(setError)}>Undefine<//>
    </footer>
  <//>`;
}

/** The drawing of the node, in the colours of the page. It is put in anew only if something has changed. */
function Graph({ app, where, name }) {
  const ref = useRef(null);
  const { value, error, loading } = usePoll(() => app.http.get(`${where}/graph`), EVERY, [where]);
  useEffect(() => {
    if (!value || !ref.current) return;
    const drawn = new DOMParser().parseFromString(value, "image/svg+xml").documentElement;
    if (drawn.nodeName !== "svg") return;
    for (const each of drawn.querySelectorAll("style, script, .page")) each.remove();
    drawn.setAttribute("aria-label", `Event graph of ${name}`);
    drawn.style.minWidth = `${SMALLEST * drawn.getAttribute("width")}px`;
    ref.current.replaceChildren(drawn);
  }, [value]);
  return html`<${Card} title="Event graph" note="Events come in at the left. Each operation says what it holds now.">
    <${Problem} error=${error} />
    ${loading && !value && html`<${Loading} words="Drawing …" />`}
    <div class="graph" tabindex="0" role="group" aria-label="Event graph, scrolls sideways" ref=${ref}></div>
  <//>`;
}

function Waits({ app, where }) {
  const { value, error } = usePoll(() => app.http.get(`${where}/waiting`, { limit: 50 }), EVERY, [where]);
  const columns = [
    {
      key: "key",
      label: "For",
      main: true,
      cell: (row) => html`<strong class="nowrap">${keyText(row.key) || "all events"}</strong>`,
      sort: (row) => keyText(row.key),
    },
    {
      key: "since",
      label: "Since",
      cell: (row) => html`<${Time} at=${row.since} millis=${false} />`,
      sort: (row) => row.since,
    },
    {
      key: "offsets",
      label: "Holds",
      cell: (row) =>
        html`<span class="num"
          >${row.offsets.slice(0, 4).join(", ")}${row.offsets.length > 4 ? ` and ${row.offsets.length - 4} more` : ""}</span
        >`,
    },
    { key: "wants", label: "Waits for", wide: true, cell: (row) => html`<${Wanted} row=${row} />` },
    {
      key: "expires",
      label: "Expires",
      cell: (row) => html`<span class="nowrap">${row.expires ? html`<${Ago} at=${row.expires} />` : "never"}</span>`,
      sort: (row) => row.expires,
    },
  ];
  const rows = value?.waiting ?? [];
  const most = useNarrow() ? 3 : 10;
  const note =
    value?.known && value.total > rows.length
      ? `${count(rows.length)} of ${count(value.total)} that have begun and wait for the rest`
      : "What has begun, and waits for the rest.";
  return html`<${Card} title="Half detected" note=${note} flush>
    <${Problem} error=${error} />
    ${value && !value.known && html`<p class="inset muted">What waits is inside Spark. <a href="#pipeline">The pipeline</a> says how much that is, as its state.</p>`}
    ${value?.known && rows.length === 0 && html`<p class="inset muted">Nothing is open: the next event that can begin it will.</p>`}
    ${rows.length > 0 && html`<${Table} label="Half detected" columns=${columns} rows=${rows} most=${most} keyOf=${(row) => `${row.operation} ${keyText(row.key)} ${row.offsets[0]}`} />`}
  <//>`;
}

function Wanted({ row }) {
  return html`<span class="wanted">
    ${row.wants.map((text, place) => html`${place > 0 && html`<span class="muted"> or </span>`}<code>${text}</code>`)}
    ${row.ticks && html`<span>the clock, at <${Time} at=${row.ticks} /></span>`}
    ${row.ends && html`<span class="muted"> ends with <code>${row.ends}</code></span>`}
  </span>`;
}

const keyText = (key) =>
  Object.entries(key ?? {})
    .map(([name, value]) => `${name} ${JSON.stringify(value).replaceAll('"', "")}`)
    .join(", ");

/** The newest detections; asked for again only when there are more. */
function Detections({ app, each }) {
  const [opened, setOpened] = useState(null);
  const filter = `type = ${quoted(each.name)} AND source = 'tocsin:definitions'`;
  const { value, error, loading } = usePoll(
    () => app.http.get("/filters/test", { filter, past: String(LAST), limit: LAST }),
    0,
    [each.name, each.detected],
  );
  const events = useMemo(() => value?.examples ?? [], [value]);
  return html`<${Card} title="Last detections" note=${events.length ? "Each can say why it is there." : null} flush>
    <${Problem} error=${error} />
    ${loading && !value && html`<${Loading} />`}
    ${value && events.length === 0 && html`<p class="inset muted">None so far.</p>`}
    <ul class="detections">
      ${events.map(
        (event) =>
          html`<li key=${event.id} class="detection">
            <div class="detection-face">
              <${Time} at=${event.arrived ?? event.time} millis=${false} />
              <span class="detection-words">
                <strong>${keyText(event.data.key) || each.name}</strong>${" "}
                <span class="muted">${event.data.parts.map((one) => one.name).join(" → ")}</span>
              </span>
              <span class="button-row">
                <${Button} small kind="quiet" onClick=${() => app.openEvent(event)}>Event<//>
                <${Button}
                  small
                  aria-expanded=${opened === event.id ? "true" : "false"}
                  onClick=${() => setOpened(opened === event.id ? null : event.id)}
                  >Why?<//
                >
              </span>
            </div>
            ${opened === event.id && html`<${Explained} app=${app} event=${event} />`}
          </li>`,
      )}
    </ul>
  <//>`;
}
