// SPDX-License-Identifier: Apache-2.0
// Runs beside each other: their curves in one picture, what differs between them in one table.

import { get, text } from './api.js';
import { chart } from './chart.js';
import { el, empty, jobTime, number, panel, pill } from './dom.js';
import { Run } from './run.js';

const NOT_COMPARED = new Set(['lr', 'data wait %']);

// {resources: {gpus: 2}} as {"resources.gpus": "2"}.
function flatten(value, prefix = '', out = {}) {
  for (const [k, v] of Object.entries(value ?? {})) {
    if (v !== null && typeof v === 'object' && !Array.isArray(v)) flatten(v, `${prefix}${k}.`, out);
    else out[prefix + k] = typeof v === 'string' ? v : JSON.stringify(v);
  }
  return out;
}

async function load(id, signal) {
  const job = await get(`/v1/jobs/${id}`, signal);
  const run = new Run();
  const lines = await text(`/v1/jobs/${id}/metrics`, signal);
  for (const line of lines.split('\n')) if (line) run.add(line);
  return { id, job, run, spec: flatten(job.spec), label: `${id} ${job.name || job.algorithm}` };
}

// The run with the best last value; null where there is nothing to compare.
function bestOf(all, name) {
  const low = /loss|error|perplexity/.test(name);
  const valued = all.filter((r) => Number.isFinite(r.run.last(name)));
  if (valued.length < 2) return null;
  return valued.reduce((a, b) => ((b.run.last(name) < a.run.last(name)) === low ? b : a));
}

// One line for each run: its validation where it has one.
function curve(all, name) {
  const lines = all.flatMap((r, i) => {
    const last = r.run.both(name).pop();
    return last ? [{ ...last, name: r.label, color: i }] : [];
  });
  return chart(name, lines, { legend: true });
}

export async function compareView(page, ids) {
  const all = await Promise.all(ids.map((id) => load(id, page.signal)));
  const names = [...new Set(all.flatMap((r) => r.run.names()))].filter((n) => !NOT_COMPARED.has(n));
  const curves = names.filter((n) => !all.every((r) => r.run.single(n)));
  const keys = [...new Set(all.flatMap((r) => Object.keys(r.spec)))]
    .filter((k) => k !== 'job' && new Set(all.map((r) => r.spec[k])).size > 1);
  const head = (first) => el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, first),
    all.map((r, i) => el('th', { scope: 'col' }, el(`i.key.c${i % 8}`),
      el('a', { href: `#/job/${r.id}` }, r.label)))));
  const line = (name, cell, best) => el('tr', {}, el('td', {}, name),
    all.map((r) => el('td', {}, best === r ? el('b', {}, cell(r)) : cell(r))));
  page.show('Compare', el('div.head', {}, el('h1', {}, `Comparison of ${all.length} jobs`)),
    curves.length ? el('div.charts', {}, curves.map((n) => curve(all, n)))
      : empty('None of these jobs has metrics.'),
    el('h2', {}, 'Results'),
    panel(el('table', {}, head(''), el('tbody', {},
      line('state', (r) => pill(r.job.state)),
      line('time', (r) => jobTime(r.job)),
      line('steps', (r) => number(r.run.step)),
      names.map((n) => line(n, (r) => number(r.run.last(n)), bestOf(all, n)))))),
    el('h2', {}, 'Differences'),
    keys.length
      ? panel(el('table', {}, head('Key'), el('tbody', {},
        keys.map((k) => line(k, (r) => r.spec[k] ?? '–')))))
      : empty('They were submitted alike.'));
}
