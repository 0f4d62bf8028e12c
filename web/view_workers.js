// SPDX-License-Identifier: Apache-2.0
// Workers: what the machine has, who uses it, and what the ranks of running jobs wait for.

import { get, text } from './api.js';
import { el, empty, jobTime, number, panel, pill, table } from './dom.js';
import { Run } from './run.js';
import { rankBars } from './view_job.js';
import { needs, overview } from './view_jobs.js';

const TAIL = 65536; // bytes of metrics in which the last line about ranks is looked for
const MOST = 12; // jobs whose waits are shown

function usage(name, used, all, unit) {
  if (!(all > 0)) return null;
  return el('tr', {}, el('td', {}, name),
    el('td', {}, el('div.split', {}, el('i.c0', { 'width%': 100 * used / all }))),
    el('td.n', {}, `${number(used)} / ${number(all)} ${unit}`));
}

function capacity(stats) {
  return panel(el('table', {}, el('tbody', {},
    usage('slots', stats.slots_used, stats.slots, ''),
    usage('GPUs', stats.gpus_used, stats.gpus, ''),
    usage('memory', stats.memory_mb_used, stats.memory_mb, 'MiB'))));
}

function userTable(users) {
  if (!users.length) return panel(empty('Nobody has jobs now.'));
  return panel(table({}, ['User', '#Slots', '#GPUs', '#Queued', '#Usage', '#Weight'],
    users.map((u) => el('tr', {}, el('td', {}, u.user || 'anybody'),
      [u.slots, u.gpus, u.queued, u.usage, u.weight].map((v) => el('td.n', {}, number(v)))))));
}

function groupTable(jobs) {
  if (!jobs.length) return panel(empty('Nothing runs.'));
  return panel(table({ rows: true }, ['Job', 'State', 'Tracker', 'Needs', 'Attempt', 'Time'],
    jobs.map((j) => el('tr.row', { 'data-job': j.id },
      el('td.name', {}, el('a', { href: `#/job/${j.id}` }, `${j.id}  ${j.name || j.algorithm}`)),
      el('td.pill', {}, pill(j.state)),
      el('td', { 'data-label': 'tracker' }, j.tracker),
      el('td', { 'data-label': 'needs' }, needs(j)),
      el('td', { 'data-label': 'attempt' }, String(j.attempt)),
      el('td', { 'data-label': 'time' }, jobTime(j))))));
}

function memberTable(members) {
  if (!members.length) return panel(empty('No members.'));
  const columns = ['Job', '#Member', 'Ranks', 'State', 'Tracker', 'Host', '#Waits'];
  return panel(table({ rows: true }, columns, members.map((m) => el('tr', {},
      el('td.name', {}, el('a', { href: `#/job/${m.job_id}` }, String(m.job_id))),
      el('td.n', {}, String(m.member)),
      el('td', { 'data-label': 'ranks' },
        m.ranks > 1 ? `${m.rank} to ${m.rank + m.ranks - 1}` : String(m.rank)),
      el('td', { 'data-label': 'state', title: m.message }, m.state),
      el('td', { 'data-label': 'tracker' }, m.tracker),
      el('td', { 'data-label': 'host' }, m.host),
      el('td.n', {}, m.step_seconds > 0
        ? `${number(Math.round(100 * m.wait_seconds / m.step_seconds))} %` : '')))));
}

// What the ranks of a job wait for; null where it does not say.
async function waitsOf(job, signal) {
  const run = new Run();
  const lines = await text(`/v1/jobs/${job.id}/metrics?tail=${TAIL}`, signal).catch(() => '');
  for (const line of lines.split('\n')) if (line) run.add(line);
  return run.ranks;
}

export async function workersView(page) {
  const top = el('div'), groups = el('div'), waits = el('div');

  async function refresh() {
    const [stats, running, who] = await Promise.all([
      get('/v1/stats', page.signal),
      get('/v1/jobs?state=running,launching,pending&page_size=200', page.signal),
      get('/v1/workers', page.signal)]);
    top.replaceChildren(overview(stats), el('h2', {}, 'Capacity'), capacity(stats),
      el('h2', {}, 'Users'), userTable(who.users));
    groups.replaceChildren(el('h2', {}, 'Running groups'), groupTable(running.jobs),
      el('h2', {}, 'Members'), memberTable(who.members));
    const parts = [];
    for (const j of running.jobs.slice(0, MOST)) {
      const ranks = await waitsOf(j, page.signal);
      if (ranks) parts.push(el('h2', {}, `Waits of job ${j.id}`), rankBars(ranks));
    }
    waits.replaceChildren(...parts);
  }

  await page.live(refresh);
  page.show('Workers', el('div.head', {}, el('h1', {}, 'Workers')), top, groups, waits);
  page.every(10000, page.refresh);
}
