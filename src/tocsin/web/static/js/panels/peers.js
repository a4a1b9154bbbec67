// Peers: who is connected, what they say they will publish or answer, and how that changes while one looks.

import {
  Ago,
  Badge,
  Button,
  Card,
  Empty,
  Loading,
  Panel,
  Problem,
  Stat,
  Stats,
  count,
  html,
  useEffect,
  useRef,
  usePoll,
  useState,
} from "../ui.js";
import { clock } from "../ui/time.js";
import { several } from "./words.js";

const EVERY = 3000;
const KEPT = 50; // changes that are shown
const WAYS = { ws: "WebSocket", http: "HTTP" };
const KINDS = {
  found: ["ok", "new"],
  advertised: ["accent", "one more"],
  unadvertised: ["neutral", "one fewer"],
  depleted: ["warn", "gone"],
};

export function Peers({ app }) {
  const { value, error, loading, refresh } = usePoll(async () => {
    const [sessions, resources] = await Promise.all([app.http.get("/sessions"), app.http.get("/resources")]);
    return { sessions, resources };
  }, EVERY);
  const changes = useChanges(app, refresh);
  const note =
    "Who is connected, what they will publish, and what they answer. All of it ends with the session, whether that closes or crashes.";
  return html`<${Panel} title="Peers" note=${note}>
    <${Problem} error=${error} />
    ${loading && !value && html`<${Loading} />`}
    ${value && html`<${There} app=${app} ...${value} changes=${changes} />`}
  <//>`;
}

function There({ app, sessions, resources, changes }) {
  const groups = new Map();
  for (const each of sessions)
    for (const group of each.groups) groups.set(group, [...(groups.get(group) ?? []), each.name]);
  const served = resources.filter((each) => each.served);
  return html`<${Stats}>
      <${Stat} label="Sessions" value=${count(sessions.length)} note="connected now" />
      <${Stat} label="Advertised" value=${count(resources.length - served.length)} note="kinds of events" />
      <${Stat} label="Served" value=${count(served.length)} note="resources that answer" />
      <${Stat} label="Groups" value=${count(groups.size)} note="with members" />
    <//>
    <div class="peers-columns">
      <${Card} title="Sessions" flush>
        <div class="items is-flush" role="list" aria-label="Sessions">
          ${sessions.map((each) => html`<${Session} key=${each.name + each.since} each=${each} app=${app} />`)}
        </div>
      <//>
      <div class="stack">
        <${Card} title="Advertised and served" flush>
          ${
            resources.length === 0 &&
            html`<${Empty}
              icon="peers"
              title="Nothing yet"
            >
              A program says what it will publish (<code>bus.advertise</code>) or answers requests${" "}
              (<code>bus.serve</code>); others find it here and in <code>bus.resources()</code>.
            <//>`
          }
          <div class="items is-flush" role="list" aria-label="Resources">
            ${resources.map((each) => html`<${Resource} key=${`${each.served} ${each.resource}`} each=${each} app=${app} />`)}
          </div>
        <//>
        ${
          groups.size > 0 &&
          html`<${Card} title="Groups" flush>
            <div class="items is-flush" role="list" aria-label="Groups">
              ${[...groups].map(
                ([name, members]) =>
                  html`<article role="listitem" class="item peer" key=${name}>
                    <div class="peer-face">
                      <span class="name">${name}</span>
                      <span class="badges">${members.map((each) => html`<${Badge} key=${each}>${each}<//>`)}</span>
                    </div>
                  </article>`,
              )}
            </div>
          <//>`
        }
        <${Card} title="Changes" note="as they come, since you opened this">
          <ol class="changes" aria-live="polite" aria-label="Changes">
            ${changes.length === 0 && html`<li class="muted">None yet.</li>`}
            ${changes.map((each) => html`<${Change} key=${each.number} each=${each} />`)}
          </ol>
        <//>
      </div>
    </div>`;
}

/** Changes of what is advertised and served since the panel was opened, newest first. */
function useChanges(app, refresh) {
  const [changes, setChanges] = useState([]);
  const number = useRef(0);
  useEffect(() => {
    let there = null; // how many of what comes next is no change, but what was there; null: not said yet
    let early = [];
    const take = (items) => {
      const found = items.slice(there).map((each) => ({ ...each, at: Date.now(), number: (number.current += 1) }));
      there = Math.max(0, there - items.length);
      if (!found.length) return;
      setChanges((before) => [...found.reverse(), ...before].slice(0, KEPT));
      refresh();
    };
    const watch = app.bus.watch("resources", null, {
      onItems: (items) => (there === null ? early.push(...items) : take(items)),
      onOpen: ({ now }) => {
        there = now;
        take(early);
        early = [];
      },
      onError: () => {},
    });
    const off = app.bus.on("state", (state) => state !== "open" && (there = null));
    return () => {
      off();
      watch.close();
    };
  }, []);
  return changes;
}

function Session({ each, app }) {
  const isMine = each.name === app.bus.session;
  return html`<article role="listitem" class="item peer" data-session=${each.name}>
    <div class="peer-face">
      <span class="name"><span class="lamp tone-ok"></span>${each.name}</span>
      <span class="badges">
        ${isMine && html`<${Badge} tone="accent">this page<//>`}
        <${Badge}>${WAYS[each.kind] ?? each.kind}<//>
        ${each.groups.map((group) => html`<${Badge} key=${group} tone="ok">in ${group}<//>`)}
      </span>
    </div>
    <p class="muted small">
      ${each.since && html`came <${Ago} at=${each.since} /> · `}${several(each.subscriptions, "subscription")}${each.address && ` · ${each.address}`}
    </p>
    ${
      each.advertises.length + each.serves.length > 0 &&
      html`<ul class="promises">
        ${each.advertises.map((text) => html`<li key=${text}><span class="muted">publishes</span> <code>${text}</code></li>`)}
        ${each.serves.map((text) => html`<li key=${text}><span class="muted">answers</span> <code>${text}</code></li>`)}
      </ul>`
    }
  </article>`;
}

function Resource({ each, app }) {
  return html`<article role="listitem" class="item peer" data-resource=${each.resource}>
    <div class="peer-face">
      <code>${each.resource}</code>
      ${!each.served && html`<${Button} small kind="quiet" icon="live" onClick=${() => app.go("live", { filter: each.resource })}>Listen<//>`}
    </div>
    <p class="muted small">
      <${Badge} tone=${each.served ? "ok" : "accent"}>${each.served ? "answers" : "publishes"}<//> ${each.by.join(", ")}
    </p>
  </article>`;
}

function Change({ each }) {
  const [tone, words] = KINDS[each.kind] ?? ["neutral", each.kind];
  const verb = each.served ? "answered" : "published";
  return html`<li>
    <time class="num muted">${clock(each.at, { millis: false })}</time>
    <${Badge} tone=${tone}>${words}<//>
    <span><code>${each.resource}</code> <span class="muted">${verb} by ${each.by}</span></span>
  </li>`;
}
