// SPDX-License-Identifier: Apache-2.0
// Runs beside each other: their curves in one picture, what differs between them in one table.

import { get, text } from './api.js';
import { chart } from './chart.js';
import { el, empty, jobTime, number, pill } from './dom.js';
import { Run } from './run.js';

function flatten(value, prefix = '', out = {}) {
  for (const [k, v] of Object.entries(value ?? {})) {
    if (v !== null && typeof v === 'object' && !Array.isArray(v)) flatten(v, `${prefix}${k}.`, out);
    else out[prefix + k] = typeof v === 'string' ? v : JSON.stringify(v);
  }
  return out;
}

export async function compareView(page, ids) {
  const all = await Promise.all(ids.map(async (id) => {
    const job = await get(`/v1/jobs/${id}`, page.signal);
    const run = new Run();
    for (const line of (await text(`/v1/jobs/${id}/metrics`, page.signal)).split('\n')) if (line) run.add(line);
    return { id, job, run, spec: flatten(job.spec) };
  }));
  const names = [...new Set(all.flatMap((r) => r.run.names()))].filter((n) => n !== 'lr' && n !== 'data wait %');
  const differ = [...new Set(all.flatMap((r) => Object.keys(r.spec)))]
    .filter((k) => k !== 'job' && new Set(all.map((r) => r.spec[k])).size > 1);
  const label = (r) => `${r.id} ${r.job.name || r.job.algorithm}`;
  const head = (first) => el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, first),
    all.map((r, i) => el('th', { scope: 'col' }, el(`i.key.c${i % 8}`), el('a', { href: `#/job/${r.id}` }, label(r))))));
  const line = (name, cell, best) => el('tr', {}, el('td', {}, name),
    all.map((r) => el('td', {}, best === r ? el('b', {}, cell(r)) : cell(r))));
  const bestOf = (name) => {
    const low = /loss|error|perplexity/.test(name);
    const with_ = all.filter((r) => Number.isFinite(r.run.last(name)));
    return with_.length > 1 ? with_.reduce((a, b) => ((b.run.last(name) < a.run.last(name)) === low ? b : a)) : null;
  };
  page.show('Compare', el('div.head', {}, el('h1', {}, `Comparison of ${all.length} jobs`)),
    names.length ? el('div.charts', {}, names.filter((n) => !all.every((r) => r.run.single(n))).map((n) => chart(n, all.flatMap((r, i) => {
      const both = r.run.both(n);
      const last = both[both.length - 1];
      return last ? [{ ...last, name: label(r), color: i }] : [];
    }), { legend: true }))) : empty('None of these jobs has metrics.'),
    el('h2', {}, 'Results'), el('div.panel', {}, el('table', {}, head(''), el('tbody', {},
      line('state', (r) => pill(r.job.state)), line('time', (r) => jobTime(r.job)), line('steps', (r) => number(r.run.step)),
      names.map((n) => line(n, (r) => number(r.run.last(n)), bestOf(n)))))),
    el('h2', {}, 'Differences'), differ.length
      ? el('div.panel', {}, el('table', {}, head('Key'), el('tbody', {}, differ.map((k) => line(k, (r) => r.spec[k] ?? '–')))))
      : empty('They were submitted alike.'));
}
