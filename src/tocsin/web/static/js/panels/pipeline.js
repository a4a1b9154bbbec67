// The Spark pipeline beside the node, the node's own figures, and the index that finds who wants an event.

import {
  Badge,
  Button,
  Card,
  Chart,
  Loading,
  Panel,
  Problem,
  Stat,
  Stats,
  bytes,
  count,
  duration,
  html,
  instant,
  useMemo,
  usePoll,
} from "../ui.js";
import { clock } from "../ui/time.js";
import { Share } from "./pictures.js";
import { Series, remember, remembered as node } from "./series.js";
import { Shards } from "./shards.js";
import { several, short } from "./words.js";

const EVERY = 2000;
const spark = new Series(); // eight minutes
const MINUTES = 5;

const STATES = {
  up: ["ok", "up", "Composite events placed on Spark are found here, a batch at a time."],
  starting: ["warn", "starting", "Spark takes some seconds to come up. What arrives meanwhile is looked at then."],
  waiting: ["bad", "down", "It has ended, and is started again. What arrives meanwhile is kept, and looked at later."],
  unfit: ["bad", "cannot run here", "Composite events are looked for on the node instead."],
  ended: ["warn", "ended", "The node goes down, and the pipeline with it."],
};

async function asked(app) {
  const pipeline = await app.http.get("/pipeline");
  if (pipeline.state !== "none") spark.add(pipeline);
  return pipeline;
}

export function Pipeline({ app }) {
  const { value: pipeline, error, loading } = usePoll(() => asked(app), EVERY);
  const figures = app.figures.value; // the shell asks for them
  useMemo(() => remember(figures), [figures]);
  const note =
    "Spark beside the node, and the index that finds who wants an event. The node neither waits for Spark nor suffers from it.";
  return html`<${Panel} title="Pipeline" note=${note}>
    <${Problem} error=${error ?? app.figures.error} />
    ${loading && !pipeline && html`<${Loading} />`}
    ${pipeline && (pipeline.state === "none" ? html`<${None} />` : html`<${Running} app=${app} pipeline=${pipeline} />`)}
    ${figures && html`<${Node} figures=${figures.node} /><${Matcher} figures=${figures} />`}
  <//>`;
}

function None() {
  return html`<${Card} class="pipeline-state">
    <h2 class="state-line"><${Badge}>none<//> This node runs without a Spark pipeline</h2>
    <p>
      Composite events are looked for on the node itself. Definitions placed on Spark wait until there is one: nothing
      that comes meanwhile is lost to them.
    </p>
    <p>To have one, start the node without <code>--no-spark</code>:</p>
    <dl class="commands">
      <dt><code>tocsin up</code></dt>
      <dd>Spark on this machine</dd>
      <dt><code>tocsin up --master spark://host:7077</code></dt>
      <dd>on a cluster</dd>
      <dt><code>tocsin doctor</code></dt>
      <dd>says whether Spark can run here, and what it lacks</dd>
    </dl>
  <//>`;
}

function Running({ pipeline, app }) {
  const [tone, state, words] = STATES[pipeline.state] ?? ["neutral", pipeline.state, ""];
  const { trouble, lag } = pipeline;
  const batches = pipeline.history.map((each) => instant(each.at) / 1000);
  const behind =
    lag === null
      ? pipeline.definitions
        ? "not known yet"
        : "nothing to look for"
      : lag
        ? duration(pipeline.lag_seconds)
        : "all looked at";
  return html`<${Card} class="pipeline-state">
      <h2 class="state-line">
        <${Badge} tone=${tone}>${state}<//> ${pipeline.spark ? `Spark ${pipeline.spark}` : "Spark"}
        <span class="muted small">at ${pipeline.master}${pipeline.pid && `, process ${pipeline.pid}`}</span>
      </h2>
      <p class="muted">
        ${words}${pipeline.next_start !== null && ` It is started again in ${duration(pipeline.next_start)}.`}
      </p>
      ${
        trouble &&
        html`<div class="trouble" role="alert">
          <p><strong>${trouble.message}</strong></p>
          ${trouble.help && html`<p>What helps: ${trouble.help}</p>`}
          <p class="muted small">at ${clock(trouble.at, { millis: false })}</p>
        </div>`
      }
      ${
        !pipeline.definitions &&
        pipeline.state === "up" &&
        html`<p>
          No definition is placed on Spark.${" "}
          <${Button} small onClick=${() => app.go("definitions", { new: "spark" })}>Define one<//>
        </p>`
      }
    <//>
    <${Stats}>
      <${Stat} label="Definitions" value=${count(pipeline.definitions)} note="placed on Spark" />
      <${Stat} label="Detected" value=${short(pipeline.detected)} note="by Spark" />
      <${Stat}
        label="Behind"
        value=${short(lag)}
        unit=${lag === null ? "" : "events"}
        note=${behind}
        tone=${pipeline.lag_seconds > 10 ? "warn" : undefined}
      />
      <${Stat}
        label="Last batch"
        value=${duration(pipeline.batch_seconds)}
        note=${`${several(pipeline.batches, "batch", "batches")} since it came up`}
      />
      <${Stat} label="State" value=${bytes(pipeline.state_bytes)} note=${`${short(pipeline.state_rows)} entries`} />
      <${Stat}
        label="Restarts"
        value=${count(pipeline.restarts)}
        note="since the node began"
        tone=${pipeline.restarts ? "warn" : undefined}
      />
      ${pipeline.archived && html`<${Stat} label="Archived" value=${short(pipeline.archived.events)} note=${`since it came up; up to offset ${count(pipeline.archived.last)}`} />`}
    <//>
    <div class="charts">
      <${Line}
        title="Batch time, seconds"
        at=${batches}
        values=${pipeline.history.map((each) => each.seconds)}
        unit="s"
        digits=${2}
      />
      <${Line} title="Events of a batch" at=${batches} values=${pipeline.history.map((each) => each.events)} />
      <${Line} title="Behind, seconds" at=${spark.at} values=${spark.of("lag_seconds")} unit="s" digits=${1} />
      <${Line} title="Behind, events" at=${spark.at} values=${spark.of("lag")} />
      <${Line} title="State, entries" at=${spark.at} values=${spark.of("state_rows")} />
      <${Line}
        title="State, MiB"
        at=${spark.at}
        values=${spark.of("state_bytes").map((each) => each && each / 1_048_576)}
        unit="MiB"
        digits=${1}
      />
    </div>
    ${pipeline.matching && html`<${Shards} matching=${pipeline.matching} subscriptions=${pipeline.subscriptions} />`}`;
}

/** A figure over the last minutes. */
function Line({ title, at, values, unit, digits, tone = "accent" }) {
  const last = values[values.length - 1];
  const now = Date.now() / 1000;
  const label = `${title} over the last minutes${last === null || last === undefined ? "" : `, ${short(last)} now`}`;
  const series = [{ label: title, tone, fill: true, unit, digits }];
  return html`<${Card} title=${title} class="chart-card">
    <${Chart}
      data=${[at, values]}
      series=${series}
      height=${140}
      label=${label}
      from=${now - MINUTES * 60}
      to=${now}
    />
  <//>`;
}

function Node({ figures }) {
  return html`<h2 class="section">The node</h2>
    <${Stats}>
      <${Stat} label="Events a second" value=${short(figures.events_per_second)} note="over the last 10 s" />
      <${Stat}
        label="Newest offset"
        value=${count(figures.head)}
        note=${`oldest kept ${count(figures.oldest_offset)}`}
      />
      <${Stat} label="On disk" value=${bytes(figures.bytes_on_disk)} />
      <${Stat} label="Delivered" value=${short(figures.delivered)} note=${`${short(figures.settled)} settled`} />
      <${Stat} label="Redelivered" value=${short(figures.redelivered)} />
      <${Stat} label="To be stored" value=${count(figures.waiting_to_commit)} note="wait for the disk" />
    <//>
    <div class="charts">
      <${Line} title="Stored, events a second" at=${node.at} values=${node.rate("head")} tone="ok" />
      <${Line} title="Delivered, events a second" at=${node.at} values=${node.rate("delivered")} tone="ok" />
    </div>`;
}

const FACTS = [
  ["conjunctions", "Conjunctions", "alternatives of OR, each by itself"],
  ["dimensions", "Fields", "that tests are found by"],
  ["codes", "Values", "that tests name"],
  ["postings", "Postings", "entries of the built index"],
  ["rebuilds", "Rebuilt", "times"],
  ["scanned", "Entries looked at", "since the node began"],
  ["tested", "Tried in full", "conjunctions, since the node began"],
  ["residue_tests", "Asked in Python", "conditions, since the node began"],
];
const MANY = 100; // conjunctions tried for every event before that is worth a thought

function Matcher({ figures: { matcher, lanes, mailboxes, on_spark: onSpark } }) {
  const size = matcher.bytes + matcher.key_bytes + matcher.dictionary_bytes;
  const whole = Math.max(matcher.conjunctions, matcher.in_delta); // what is new counts removed ones until it is built in
  const each = matcher.filters ? `${bytes(Math.round(size / matcher.filters))} a filter` : "without a filter";
  return html`<h2 class="section">The matcher</h2>
    <${Stats}>
      <${Stat}
        label="Filters"
        value=${count(matcher.filters)}
        note=${`${count(matcher.distinct)} distinct, of ${several(mailboxes, "consumer")}`}
      />
      <${Stat}
        label="Not indexed"
        value=${count(matcher.unindexed)}
        note="tried for every event"
        tone=${matcher.unindexed > MANY ? "warn" : undefined}
      />
      <${Stat} label="Memory" value=${bytes(size)} note=${each} />
      <${Stat}
        label="Engine"
        value=${matcher.engine}
        note=${matcher.engine === "numba" ? "compiled" : "pip install 'tocsin[fast]' compiles it"}
      />
      <${Stat}
        label="Lanes"
        value=${count(lanes)}
        note=${onSpark ? `${count(onSpark)} matched by Spark` : "matched on the node"}
      />
    <//>
    <div class="matcher">
      <${Line} title="Entries looked at a second" at=${node.at} values=${node.rate("scanned")} />
      <${Card} title="How the index is divided">
        <dl class="divided">
          <${Divided}
            label="Built in"
            part=${Math.max(0, matcher.conjunctions - matcher.in_delta)}
            whole=${whole}
            tone="ok"
          />
          <${Divided} label="New since the last build" part=${matcher.in_delta} whole=${whole} />
          <${Divided} label="Tried for every event" part=${matcher.unindexed} whole=${whole} tone="warn" />
          <${Divided} label="Partly asked in Python" part=${matcher.with_residue} whole=${whole} tone="warn" />
        </dl>
      <//>
      <${Card} title="What matching cost">
        <dl class="facts-grid">
          ${FACTS.map(
            ([name, label, about]) =>
              html`<div key=${name} title=${about}>
                <dt>${label}</dt>
                <dd class="num">${short(matcher[name])}</dd>
              </div>`,
          )}
        </dl>
      <//>
    </div>`;
}

function Divided({ label, part, whole, tone = "accent" }) {
  return html`<div>
    <dt>${label}</dt>
    <dd>
      <${Share} part=${part} whole=${whole} tone=${tone} label=${`${count(part)} of ${count(whole)}`} /><span
        class="num"
        >${short(part)}</span
      >
    </dd>
  </div>`;
}
