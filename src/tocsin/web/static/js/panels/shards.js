// The filters of subscriptions that Spark matches: how they are divided into shards, and how busy each is.

import { Card, Stat, Stats, Table, count, duration, html } from "../ui.js";
import { clock } from "../ui/time.js";
import { Share, Spark } from "./pictures.js";
import { several } from "./words.js";

const when = (change) => clock(change.time, { date: true, millis: false });
const name = (shard) => html`<code>${shard.name}</code>`;
const last = (shard) => shard.seconds[shard.seconds.length - 1] ?? null;

export function Shards({ matching, subscriptions }) {
  const { shards, changes } = matching;
  const isElastic = matching.measured !== null || shards.length > 1;
  const change = changes[changes.length - 1];
  const said = change && `Last change: ${change.what}, from version ${count(change.version)} on, ${when(change)}`;
  return html`<h2 class="section">Filters on Spark</h2>
    <${Stats}>
      <${Stat} label="Subscriptions" value=${count(subscriptions)} note="matched by Spark" />
      <${Stat} label="Version" value=${count(matching.version)} note="of their filters" />
      <${Stat} label="Shards" value=${count(shards.length)} note=${isElastic ? "each a task" : "not divided"} />
      ${isElastic && html`<${Stat} label="Split" value=${count(matching.splits)} note="since the query began" />`}
      ${isElastic && html`<${Stat} label="Merged" value=${count(matching.merges)} note="since the query began" />`}
    <//>
    ${
      isElastic &&
      html`<${Card} title="Shards" note=${said} flush>
        <${Table} label="Shards" columns=${columns(shards)} rows=${shards} keyOf=${(shard) => shard.name} />
      <//>`
    }`;
}

function columns(shards) {
  const longest = Math.max(0, ...shards.map(last));
  return [
    { key: "name", label: "Shard", main: true, cell: name, sort: (shard) => shard.name },
    { key: "filters", label: "Filters", num: true, cell: filters, sort: (shard) => shard.filters },
    { key: "busy", label: "Busy", num: true, cell: (shard) => duration(last(shard)), sort: last },
    { key: "share", label: "Beside the busiest", wide: true, hide: true, cell: (shard) => share(shard, longest) },
    { key: "past", label: "Last batches", hide: true, cell: past },
  ];
}

const filters = (shard) => (shard.filters === null ? "not measured" : count(shard.filters));

function share(shard, longest) {
  const label = `busy for ${duration(last(shard))} in the last batch`;
  return html`<${Share} part=${last(shard) ?? 0} whole=${longest} tone="accent" label=${label} />`;
}

function past(shard) {
  const label = `how long it was busy in the last ${several(shard.seconds.length, "batch", "batches")}`;
  return html`<${Spark} values=${shard.seconds} label=${label} />`;
}
