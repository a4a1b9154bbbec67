// Consumers: who listens to what, how far behind each is, and which of them need somebody's eye.

import {
  Badge,
  Button,
  Empty,
  Loading,
  Panel,
  Problem,
  Segmented,
  Stat,
  Stats,
  count,
  duration,
  html,
  useMemo,
  usePoll,
  useState,
} from "../ui.js";
import { Share, Spark } from "./pictures.js";
import { Series } from "./series.js";
import { several, short } from "./words.js";

const EVERY = 2000;
const KEPT = 90; // figures of one consumer: three minutes
const SHOWN = 200; // rows; who has more finds one by its name
const FOLLOWED = 500; // consumers whose figures are kept, the most behind first
const histories = new Map();

const ORDERS = {
  lag: ["Behind", (a, b) => b.lag - a.lag || a.name.localeCompare(b.name)],
  redelivered: ["Redelivered", (a, b) => b.redelivered - a.redelivered || a.name.localeCompare(b.name)],
  name: ["Name", (a, b) => a.name.localeCompare(b.name)],
};

async function asked(app) {
  const found = await app.http.get("/consumers");
  const names = new Set(found.map((each) => each.name));
  for (const name of histories.keys()) if (!names.has(name)) histories.delete(name);
  const followed = found.length > FOLLOWED ? [...found].sort(ORDERS.lag[1]).slice(0, FOLLOWED) : found;
  for (const { name, lag, redelivered } of followed) {
    if (!histories.has(name)) histories.set(name, new Series(KEPT));
    histories.get(name).add({ lag, redelivered });
  }
  return found.map((each) => ({ ...each, troubles: troubles(each, histories.get(each.name)) }));
}

/** What is the matter with a consumer: [tone, words], the worst first; none if it keeps up. */
function troubles(each, history) {
  const found = [];
  const lags = history?.of("lag") ?? [];
  const again = history?.of("redelivered")[0] ?? null;
  const before = lags.length > 5 ? lags[lags.length - 6] : null;
  if (each.dead) found.push(["bad", several(each.dead, "dead letter")]);
  if (before !== null && each.lag > 10 && each.lag > before * 1.1) found.push(["bad", "falls behind"]);
  else if (each.lag >= 1000) found.push(["warn", "far behind"]);
  if (each.halted) found.push(["warn", "waits for Spark"]);
  if (each.in_flight >= each.max_in_flight) found.push(["warn", "window full"]);
  if (again !== null && each.redelivered > again) found.push(["warn", "redelivering"]);
  if (!each.open) found.push(["neutral", "away"]); // that is its right: what it wants waits for it
  return found;
}

const isNamed = (each) => !/^anonymous-[0-9a-f]+$/.test(each.name); // who has no name is not remembered when it goes
const needsAnEye = (each) => each.troubles.some(([tone]) => tone !== "neutral");

export function Consumers({ app }) {
  const [order, setOrder] = useState("lag");
  const [part, setPart] = useState("");
  const [opened, setOpened] = useState(null);
  const [everybody, setEverybody] = useState(false);
  const { value, error, loading } = usePoll(() => asked(app), EVERY);
  const rows = useMemo(() => {
    const wanted = part.toLowerCase();
    const isShown = (each) =>
      (everybody || isNamed(each) || needsAnEye(each)) &&
      `${each.name} ${each.group ?? ""}`.toLowerCase().includes(wanted);
    return (value ?? []).filter(isShown).sort(ORDERS[order][1]);
  }, [value, part, order, everybody]);
  const nameless = value?.filter((each) => !isNamed(each)).length;
  const note = "Who listens to what, and how far behind. What a durable consumer has not settled waits for it.";
  return html`<${Panel} title="Consumers" note=${note}>
    <${Problem} error=${error} />
    ${loading && !value && html`<${Loading} />`}
    ${
      value?.length === 0 &&
      html`<${Empty}
        icon="consumers"
        title="Nobody listens yet"
        command=${'tocsin sub "value > 9" --consumer ops --past 10'}
      >
        A consumer is here as soon as somebody subscribes.
      <//>`
    }
    ${
      value?.length > 0 &&
      html`<${Totals} all=${value} />
        <div class="toolbar">
          <input
            type="search"
            class="input"
            aria-label="Find a consumer"
            placeholder="Find by name or group"
            value=${part}
            onInput=${(event) => setPart(event.target.value)}
          />
          <${Segmented}
            label="Order"
            value=${order}
            options=${Object.entries(ORDERS).map(([name, [words]]) => [name, words])}
            onChange=${setOrder}
          />
          ${
            nameless > 0 &&
            html`<label class="check"
              ><input type="checkbox" checked=${everybody} onChange=${(event) => setEverybody(event.target.checked)} />
              ${several(nameless, "subscriber")} without a name</label
            >`
          }
          <span class="muted small" aria-live="polite">${part && `${count(rows.length)} found`}</span>
        </div>
        <div class="items-head" aria-hidden="true">
          <span>Consumer</span><span>Filter</span><span>Behind</span><span>In flight</span><span>Redelivered</span>
        </div>
        <div class="items" role="list" aria-label="Consumers">
          ${rows
            .slice(0, SHOWN)
            .map(
              (each) =>
                html`<${Consumer}
                  key=${each.name}
                  each=${each}
                  app=${app}
                  isOpen=${opened === each.name}
                  toggle=${() => setOpened(opened === each.name ? null : each.name)}
                />`,
            )}
        </div>
        ${rows.length > SHOWN && html`<p class="muted">${several(rows.length - SHOWN, "more consumer")} not shown; find one by its name.</p>`}`
    }
  <//>`;
}

function Totals({ all }) {
  const total = (field) => all.reduce((sum, each) => sum + each[field], 0);
  const eyes = all.filter(needsAnEye).length;
  const open = all.filter((each) => each.open).length;
  return html`<${Stats}>
    <${Stat} label="Consumers" value=${count(all.length)} note=${`${count(open)} connected`} />
    <${Stat} label="Behind" value=${short(total("lag"))} note="to settle or to look at" />
    <${Stat} label="In flight" value=${short(total("in_flight"))} note="delivered, not settled" />
    <${Stat}
      label="Redelivered"
      value=${short(total("redelivered"))}
      note=${`of ${several(total("delivered"), "delivery", "deliveries")}`}
    />
    <${Stat}
      label="Dead letters"
      value=${short(total("dead"))}
      note="after too many attempts"
      tone=${total("dead") ? "bad" : undefined}
    />
    <${Stat}
      label="Need attention"
      value=${count(eyes)}
      note=${eyes ? "marked below" : "all keep up"}
      tone=${eyes ? "warn" : "ok"}
    />
  <//>`;
}

function Consumer({ each, app, isOpen, toggle }) {
  const lags = histories.get(each.name)?.of("lag") ?? [];
  const tone = each.troubles.map(([how]) => how).find((how) => how !== "neutral");
  const [first, ...others] = each.subscriptions.map(([, text]) => text);
  return html`<article
    role="listitem"
    class=${`item consumer ${tone ? `tone-${tone}` : ""}`}
    data-consumer=${each.name}
  >
    <button type="button" class="item-face" aria-expanded=${isOpen ? "true" : "false"} onClick=${toggle}>
      <span class="named">
        <span class="name"
          ><span class=${`lamp tone-${each.open ? "ok" : "off"}`} title=${each.open ? "connected" : "away"}></span
          >${each.name}</span
        >
        <span class="badges">
          ${each.group && html`<${Badge} title="Members of a group share the events">group ${each.group}<//>`}
          ${each.troubles.map(([how, words]) => html`<${Badge} tone=${how}>${words}<//>`)}
        </span>
      </span>
      <span class="filter"
        ><code>${first ?? "no filter"}</code
        >${others.length > 0 && html`<span class="muted"> and ${others.length} more</span>`}</span
      >
      <span class="measure">
        <span class="label">Behind</span>
        <strong class="num">${short(each.lag)}</strong>
        <${Spark} values=${lags} label=${`over the last minutes, ${count(each.lag)} now`} tone=${tone ?? "accent"} />
      </span>
      <span class="measure">
        <span class="label">In flight</span>
        <strong class="num">${count(each.in_flight)}<span class="muted"> / ${count(each.max_in_flight)}</span></strong>
        <${Share}
          part=${each.in_flight}
          whole=${each.max_in_flight}
          label=${`of a window of ${count(each.max_in_flight)}`}
        />
      </span>
      <span class="measure"
        ><span class="label">Redelivered</span><strong class="num">${short(each.redelivered)}</strong></span
      >
    </button>
    ${isOpen && html`<${More} each=${each} app=${app} />`}
  </article>`;
}

function More({ each, app }) {
  return html`<div class="more">
    <dl class="facts">
      <dt>Order</dt>
      <dd>${each.order === "priority" ? "urgent first, then as they came" : "as they came"}</dd>
      <dt>Its place</dt>
      <dd>${each.durable ? "is kept: it goes on where it was, also after a crash" : "is not kept"}</dd>
      <dt>Delivered</dt>
      <dd>${count(each.delivered)}, of which ${count(each.settled)} are settled</dd>
      <dt>To settle</dt>
      <dd>${duration(each.ack_wait)}; then it is delivered again</dd>
    </dl>
    <ul class="filters" aria-label="Subscriptions">
      ${each.subscriptions.map(
        ([id, text]) =>
          html`<li key=${id}>
            <code>${text}</code>
            <span class="actions">
              <${Button} small kind="quiet" onClick=${() => app.go("live", { filter: text })}>Listen to this<//>
              <${Button} small kind="quiet" onClick=${() => app.go("tester", { filter: text })}>Test it<//>
            </span>
          </li>`,
      )}
    </ul>
  </div>`;
}
