// The alerts board: live events with a ttl or an ack, the most urgent first; how long they live, who has them.
//
// Acknowledging settles the operator's own delivery (`desk.js`), so it needs a name. Cancelling withdraws an alert for
// everybody, under that name; the node decides who may. Both are done when the node has stored them.

import { part } from "../http.js";
import {
  Ago,
  Badge,
  Button,
  count,
  Dialog,
  duration,
  Empty,
  gist,
  html,
  Icon,
  Loading,
  Panel,
  Priority,
  Problem,
  Segmented,
  useEffect,
  useRef,
  useState,
  useTick,
} from "../ui.js";

const MOST = 100; // cards at first
const URGENT = 8;

export function Alerts({ app }) {
  const { value, total, error, refresh } = app.alerts;
  const { desk } = app;
  const [which, setWhich] = useState("all");
  const [limit, setLimit] = useState(MOST);
  const [cancelling, setCancelling] = useState(null);
  const now = useTick(1000) + (app.bus.now() - Date.now());
  const alive = (value || []).filter(({ event }) => remaining(event, now) !== 0);
  const mine = alive.filter(({ event }) => desk.held.has(event.offset));
  const open = alive.filter(({ acked }) => !acked.length);
  const shown = (which === "mine" ? mine : which === "open" ? open : alive).sort(byUrgency);

  const options = [
    ["all", html`All <span class="num">${count(alive.length)}</span>`],
    ["open", html`Not acknowledged <span class="num">${count(open.length)}</span>`],
    ...(app.operator ? [["mine", html`Waiting for me <span class="num">${count(mine.length)}</span>`]] : []),
  ];
  return html`<${Panel}
    title="Alerts"
    note="Events that somebody must see, while they live"
    actions=${html`<${Segmented} label="Which alerts" value=${which} options=${options} onChange=${setWhich} />`}
  >
    ${!app.operator && app.state === "open" && html`<${WhoAreYou} app=${app} />`}
    <${Problem} error=${desk.error} />
    <${Problem} error=${error} onRetry=${refresh} />
    <${Notices} app=${app} />
    <${Announcer} alerts=${alive} />
    ${!value && !error && html`<${Loading} />`}
    ${value && !shown.length && html`<${Nothing} which=${which} isAny=${alive.length > 0} />`}
    <ol class="alerts" aria-label="Alerts, the most urgent first">
      ${shown
        .slice(0, limit)
        .map(
          (alert) =>
            html`<${Alert}
              key=${alert.event.offset}
              app=${app}
              alert=${alert}
              now=${now}
              refresh=${refresh}
              onCancel=${() => setCancelling(alert.event)}
            />`,
        )}
    </ol>
    ${
      shown.length > limit &&
      html`<p class="table-more">
        <span class="muted">${count(limit)} of ${count(shown.length)}, the most urgent</span
        ><${Button} small onClick=${() => setLimit(limit + MOST)}>Show more<//>
      </p>`
    }
    ${cancelling && html`<${Cancel} app=${app} event=${cancelling} refresh=${refresh} onClose=${() => setCancelling(null)} />`}
  <//>`;
}

const byUrgency = (one, other) =>
  (other.event.priority ?? 5) - (one.event.priority ?? 5) || one.event.offset - other.event.offset;

// Seconds left; null: it lives until it is cancelled.
function remaining(event, now) {
  if (event.ttl === undefined || event.ttl === null) return null;
  return Math.max(0, (Date.parse(event.arrived) - now) / 1000 + event.ttl);
}

function Alert({ app, alert, now, refresh, onCancel }) {
  const { event, acked, pending } = alert;
  const [busy, setBusy] = useState(false);
  const { desk } = app;
  const isMine = desk.held.has(event.offset);
  const iAcked = app.operator && acked.includes(app.operator);
  const left = remaining(event, now);
  const ack = async () => {
    if (!app.operator) return app.askOperator();
    setBusy(true);
    try {
      await desk.ack(event.offset);
      app.toast(`${event.type} is acknowledged`, "ok");
    } catch (error) {
      app.toast(error.message, "bad", error.help);
    }
    setBusy(false);
    return refresh();
  };
  const level = event.priority ?? 5;
  return html`<li
    class=${`alert ${level >= 9 ? "is-critical" : level >= 7 ? "is-urgent" : ""} ${iAcked ? "is-acked" : ""}`}
    data-id=${event.id}
  >
    <div class="alert-level"><${Priority} value=${level} /></div>
    <div class="alert-words">
      <h2>
        <button type="button" class="link alert-title" onClick=${() => app.openEvent(event)}>${event.type}</button>
        <span class="muted">${event.source}</span>
      </h2>
      <p class="alert-gist">${gist(event) || html`<span class="muted">It carries no data.</span>`}</p>
      <${People} app=${app} acked=${acked} pending=${pending} />
    </div>
    <div class="alert-time">
      <span class="muted small"><${Ago} at=${event.arrived} /></span>
      ${
        left === null
          ? html`<span class="muted small">until cancelled</span>`
          : html`<span class=${`small num ${left < 30 ? "tone-bad-text" : ""}`}
                >${duration(Math.ceil(left)).replace(".0", "")} left</span
              >
              <div
                class="ttl"
                role="progressbar"
                aria-label="time to live"
                aria-valuemin="0"
                aria-valuemax="100"
                aria-valuenow=${Math.round((100 * left) / event.ttl)}
              >
                <span
                  style=${`transform: scaleX(${(left / event.ttl).toFixed(4)})`}
                  class=${left < 30 || left / event.ttl < 0.1 ? "is-short" : ""}
                ></span>
              </div>`
      }
    </div>
    <div class="alert-actions">
      ${
        iAcked
          ? html`<span class="alert-done"><${Icon} name="check" /> by you</span>`
          : html`<${Button}
              kind="primary"
              icon="check"
              onClick=${ack}
              disabled=${busy || app.state !== "open" || (app.operator && !isMine && !pending.includes(app.operator))}
              >Ack<//
            >`
      }
      <${Button} kind="quiet" onClick=${onCancel} disabled=${app.state !== "open"}>Cancel …<//>
    </div>
  </li>`;
}

const NAMED = 8; // names of each kind

function People({ app, acked, pending }) {
  const name = (each) => (each === app.operator ? "you" : each);
  return html`<ul class="people">
    ${acked.length > 0 && html`<li class="people-label">Acknowledged by</li>`}
    ${acked.slice(0, NAMED).map(
      (each) =>
        html`<li key=${each}>
          <${Badge} tone="ok"><${Icon} name="check" size=${12} />${name(each)}<//>
        </li>`,
    )}
    ${acked.length > NAMED && html`<li class="muted small">and ${count(acked.length - NAMED)} more</li>`}
    ${pending.length > 0 && html`<li class="people-label">Waits for</li>`}
    ${pending.slice(0, NAMED).map((each) => html`<li key=${each}><${Badge} tone=${each === app.operator ? "accent" : "neutral"}>${name(each)}<//></li>`)}
    ${pending.length > NAMED && html`<li class="muted small">and ${count(pending.length - NAMED)} more</li>`}
    ${!acked.length && !pending.length && html`<li class="people-label">Nobody subscribes to it</li>`}
  </ul>`;
}

function WhoAreYou({ app }) {
  return html`<div class="banner tone-accent">
    <${Icon} name="user" /><span
      >Give your name to acknowledge alerts: they are then delivered to you, and wait for you.</span
    >
    <${Button} small kind="primary" onClick=${app.askOperator}>Give my name<//>
  </div>`;
}

function Notices({ app }) {
  const { desk } = app;
  if (!desk.notices.length) return null;
  return html`<ul class="notices" aria-label="Cancelled alerts" aria-live="polite">
    ${desk.notices.slice(0, 5).map(
      (notice) =>
        html`<li key=${notice.offset} class="banner tone-neutral">
          <${Icon} name="close" />
          <span>
            <strong>${notice.event ? notice.event.type : notice.id}</strong>${` of ${notice.source} was cancelled by `}
            <strong>${notice.by}</strong>${", "}<${Ago} at=${notice.at} />. You had got it.
          </span>
          <button type="button" class="icon-button" aria-label="Dismiss" onClick=${() => desk.dismiss(notice)}>
            <${Icon} name="close" size=${14} />
          </button>
        </li>`,
    )}
  </ul>`;
}

// Read out what is new and urgent, once.
function Announcer({ alerts }) {
  const known = useRef(null);
  const [words, setWords] = useState("");
  const offsets = alerts.map(({ event }) => event.offset).join();
  useEffect(() => {
    const fresh =
      known.current && alerts.filter(({ event }) => !known.current.has(event.offset) && event.priority >= URGENT);
    known.current = new Set(alerts.map(({ event }) => event.offset));
    if (fresh?.length)
      setWords(
        fresh.map(({ event }) => `Alert, priority ${event.priority}: ${event.type} from ${event.source}`).join(". "),
      );
  }, [offsets]);
  return html`<div class="visually-hidden" aria-live="assertive">${words}</div>`;
}

function Cancel({ app, event, refresh, onClose }) {
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const cancel = async () => {
    setBusy(true);
    try {
      await app.http.delete(`/events/${part(event.id)}`, { source: event.source });
      app.toast(`${event.type} is cancelled`);
      refresh();
      onClose();
    } catch (why) {
      setError(why);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${`Cancel ${event.type}?`} onClose=${onClose}>
    <div class="stack">
      <p>Whoever has not got it yet will not get it; whoever has is told. This cannot be undone.</p>
      <p class="muted small">
        ${event.cancel === "any" ? "Everybody may cancel this alert." : `Only its publisher may cancel this alert; you are ${app.operator || "nobody yet"}.`}
      </p>
      <${Problem} error=${error} />
      <div class="row row-end">
        <${Button} onClick=${onClose}>Keep it<//>
        <${Button} kind="danger" onClick=${cancel} disabled=${busy}>Cancel the alert<//>
      </div>
    </div>
  <//>`;
}

function Nothing({ which, isAny }) {
  if (which !== "all" && isAny) {
    return html`<${Empty}
      icon="check"
      title=${which === "mine" ? "Nothing waits for you" : "Somebody has acknowledged each of them"}
    />`;
  }
  return html`<${Empty}
    icon="alerts"
    title="All quiet"
    command=${`tocsin pub valve.stuck '{"valve": "v3"}' --priority 9 --ttl 300 --ack client`}
  >
    <p>An event is an alert while it lives if it has a time to live, or asks for acknowledgement. To raise one:</p>
  <//>`;
}
