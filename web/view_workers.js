// SPDX-License-Identifier: Apache-2.0
// Workers: what the machine has, who uses it, and what the ranks of running jobs wait for. And
// sweeps: their trials, best first.

import { get, post, text } from './api.js';
import { duration, el, empty, jobTime, note, number, pill } from './dom.js';
import { Run } from './run.js';
import { rankBars } from './view_job.js';
import { needs, overview } from './view_jobs.js';

function usage(name, used, all, unit) {
  return all > 0 ? el('tr', {}, el('td', {}, name), el('td', {},
    el('div.split', {}, el('i.c0', { 'width%': 100 * used / all }))),
  el('td.n', {}, `${number(used)} / ${number(all)} ${unit}`)) : null;
}

export async function workersView(page) {
  const top = el('div'), groups = el('div'), waits = el('div');
  async function refresh() {
    const [stats, running, who] = await Promise.all([get('/v1/stats', page.signal),
      get('/v1/jobs?state=running,launching&page_size=200', page.signal), get('/v1/workers', page.signal)]);
    top.replaceChildren(overview(stats), el('h2', {}, 'Capacity'), el('div.panel', {}, el('table', {}, el('tbody', {},
      usage('slots', stats.slots_used, stats.slots, ''), usage('GPUs', stats.gpus_used, stats.gpus, ''),
      usage('memory', stats.memory_mb_used, stats.memory_mb, 'MiB')))),
    el('h2', {}, 'Users'), who.users.length ? el('div.panel', {}, el('table', {},
      el('thead', {}, el('tr', {}, el('th', {}, 'User'), ['Slots', 'GPUs', 'Queued', 'Usage', 'Weight'].map((t) => el('th.n', {}, t)))),
      el('tbody', {}, who.users.map((u) => el('tr', {}, el('td', {}, u.user || 'anybody'), el('td.n', {}, number(u.slots)),
        el('td.n', {}, number(u.gpus)), el('td.n', {}, number(u.queued)), el('td.n', {}, number(u.usage)), el('td.n', {}, number(u.weight)))))))
      : el('div.panel', {}, empty('Nobody has jobs now.')));
    groups.replaceChildren(el('h2', {}, 'Running groups'), running.jobs.length ? el('div.panel', {}, el('table.rows', {},
      el('thead', {}, el('tr', {}, ['Job', 'State', 'Tracker', 'Needs', 'Attempt', 'Time'].map((t) => el('th', {}, t)))),
      el('tbody', {}, running.jobs.map((j) => el('tr.row', { 'data-job': j.id },
        el('td.name', {}, el('a', { href: `#/job/${j.id}` }, `${j.id}  ${j.name || j.algorithm}`)), el('td.pill', {}, pill(j.state)),
        el('td', { 'data-label': 'tracker' }, j.tracker), el('td', { 'data-label': 'needs' }, needs(j)),
        el('td', { 'data-label': 'attempt' }, String(j.attempt)), el('td', { 'data-label': 'time' }, jobTime(j)))))))
      : el('div.panel', {}, empty('Nothing runs.')));
    const parts = [];
    for (const j of running.jobs.slice(0, 12)) {
      const run = new Run();
      const lines = await text(`/v1/jobs/${j.id}/metrics?tail=65536`, page.signal).catch(() => '');
      for (const line of lines.split('\n')) if (line) run.add(line);
      if (run.ranks) parts.push(el('h2', {}, `Waits of job ${j.id}`), rankBars(run.ranks));
    }
    waits.replaceChildren(...parts);
  }
  await page.live(refresh);
  page.show('Workers', el('div.head', {}, el('h1', {}, 'Workers')), top, groups, waits);
  page.every(10000, page.refresh);
}

export async function sweepsView(page) {
  const answer = await get('/v1/sweeps', page.signal);
  page.show('Sweeps', el('div.head', {}, el('h1', {}, 'Sweeps')), answer.sweeps.length
    ? el('div.panel', {}, el('table.rows', {}, el('thead', {}, el('tr', {}, ['Sweep', 'State', 'Search', 'Trials', 'Best'].map((t) => el('th', {}, t)))),
      el('tbody', {}, answer.sweeps.map((s) => el('tr.row', {}, el('td.name', {}, el('a', { href: `#/sweep/${s.id}` }, `${s.id}  ${s.name}`)),
        el('td.pill', {}, pill(s.state)), el('td', {}, s.search), el('td', { 'data-label': 'trials' }, `${s.finished} of ${s.trials.length}`),
        el('td', { 'data-label': s.metric }, s.best ? number(s.best.value) : ''))))))
    : empty('No sweeps yet. Submit one: tandem submit --sweep sweep.yaml'));
}

export async function sweepView(page, id) {
  const body = el('div');
  async function refresh() {
    const s = await get(`/v1/sweeps/${id}`, page.signal);
    const names = [...new Set(s.trials.flatMap((t) => Object.keys(t.parameters)))];
    const low = s.goal === 'min', key = (t) => (t.value === null || t.value === undefined ? Infinity : low ? t.value : -t.value);
    const trials = s.trials.slice().sort((a, b) => key(a) - key(b) || a.job - b.job);
    body.replaceChildren(el('div.head', {}, el('h1', {}, `Sweep ${s.id}  ${s.name}`), pill(s.state),
      el('span.sub', {}, `${s.search}, ${s.finished} of ${s.trials.length} trials, ${s.goal} of ${s.metric}`),
      el('div.actions', {}, trials.length > 1 ? el('a.button', { href: `#/compare/${trials.slice(0, 8).map((t) => t.job).join(',')}` }, 'Compare the best') : null,
        s.state === 'running' ? el('button.danger', { type: 'button', onclick: () => post(`/v1/sweeps/${id}/cancel`).then(page.refresh, (e) => note(e.message)) }, 'Cancel') : null)),
    el('div.panel', {}, el('table', {}, el('thead', {}, el('tr', {}, el('th', {}, 'Job'), el('th', {}, 'State'), el('th.n', {}, s.metric), el('th.n', {}, 'Step'), names.map((n) => el('th.n', {}, n)))),
      el('tbody', {}, trials.map((t, i) => el(i === 0 && t.value !== null ? 'tr.best' : 'tr', {},
        el('td', {}, el('a', { href: `#/job/${t.job}` }, String(t.job))), el('td', {}, pill(t.state)), el('td.n', {}, number(t.value)),
        el('td.n', {}, number(t.step)), names.map((n) => el('td.n', {}, String(t.parameters[n] ?? '')))))))));
  }
  await page.live(refresh);
  page.show(`Sweep ${id}`, body);
}
