// Composite events: which are defined, and one of them with its graph, what it waits for and what it has detected.

import { Badge, Button, Empty, Loading, Panel, Problem, html, usePoll, useState } from "../ui.js";
import { Define } from "./define.js";
import { Definition } from "./definition.js";
import { several, short } from "./words.js";

const EVERY = 2000;
const FEW = 8; // definitions that are found without looking for them
const SHOWN = 200;

export function Definitions({ app }) {
  const { value, error, loading, refresh } = usePoll(() => app.http.get("/definitions"), EVERY);
  const [part, setPart] = useState("");
  const isNew = app.params.new !== undefined;
  const chosen = value?.find((each) => each.name === app.params.name) ?? (app.params.name ? null : value?.[0]);
  const shown = isNew ? null : chosen;
  const wanted = part.toLowerCase();
  const found = value?.filter((each) => `${each.name} ${each.text}`.toLowerCase().includes(wanted));
  const actions =
    !isNew &&
    html`<${Button} kind="primary" onClick=${() => app.go("definitions", { new: "node" })}>Define a new one<//>`;
  const done = (name) => {
    refresh();
    app.go("definitions", name ? { name } : {});
  };
  const form = html`<${Define} app=${app} placement=${app.params.new} text=${app.params.text} onDone=${done} />`;
  const note =
    "Composite events: combinations that are looked for. Each time one is found there is an event, which can say why.";
  return html`<${Panel} title="Definitions" note=${note} actions=${actions}>
    <${Problem} error=${error} />
    ${loading && !value && html`<${Loading} />`} ${value?.length === 0 && (isNew ? form : html`<${None} app=${app} />`)}
    ${
      value?.length > 0 &&
      html`<div class=${`definitions ${app.params.name || isNew ? "has-chosen" : ""}`}>
        <nav class="definition-list" aria-label="Definitions">
          ${
            value.length > FEW &&
            html`<input
              type="search"
              class="input"
              aria-label="Find a definition"
              placeholder="Find by name or text"
              value=${part}
              onInput=${(event) => setPart(event.target.value)}
            />`
          }
          ${found
            .slice(0, SHOWN)
            .map((each) => html`<${Line} key=${each.name} each=${each} app=${app} isChosen=${each === shown} />`)}
          ${found.length > SHOWN && html`<p class="muted small">${several(found.length - SHOWN, "more is", "more are")} not shown.</p>`}
        </nav>
        ${isNew && form}
        ${shown && html`<${Definition} key=${shown.name} app=${app} each=${shown} refresh=${refresh} />`}
        ${!isNew && !chosen && html`<p class="muted">There is no definition <code>${app.params.name}</code> any more.</p>`}
      </div>`
    }
  <//>`;
}

const EXAMPLE =
  "NOT([type = 'door.open'] AS o, [type = 'badge'] AS b, [type = 'motion'] AS m) WITHIN 2 MINUTES BY door";

function None({ app }) {
  return html`<${Empty}
    icon="definitions"
    title="Nothing is defined yet"
    command=${`tocsin define break_in "${EXAMPLE}" --context chronicle`}
  >
    <p>“Door opened, no badge, then motion, within two minutes, for each door” is one definition:</p>
    <p><${Button} small onClick=${() => app.go("definitions", { new: "node", text: EXAMPLE })}>Define it here<//></p>
  <//>`;
}

function Line({ each, app, isChosen }) {
  return html`<a
    class="definition-line"
    href=${`#definitions?name=${encodeURIComponent(each.name)}`}
    aria-current=${isChosen ? "true" : undefined}
    data-definition=${each.name}
    onClick=${(event) => {
      event.preventDefault();
      app.go("definitions", { name: each.name });
    }}
  >
    <span class="definition-name">
      <span class="name">${each.name}</span>
      <span class="badges">
        ${each.halted && html`<${Badge} tone="bad">halted<//>`}
        <${Badge} tone=${each.placement === "spark" ? "warn" : "accent"}>${each.placement}<//>
        <${Badge}>${each.context}<//>
      </span>
    </span>
    <code class="definition-text">${each.text}</code>
    <span class="muted small num"
      >${short(each.detected)} detected${each.placement !== "spark" && ` · ${several(each.open, "opener waits", "openers wait")}`}</span
    >
  </a>`;
}
