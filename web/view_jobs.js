// SPDX-License-Identifier: Apache-2.0
// The list of jobs, and the queue: live, filtered, with marks for comparison.

import { get, post } from './api.js';
import { ago, clock, duration, el, empty, jobTime, note, number, pill } from './dom.js';

const STATES = ['queued', 'running', 'succeeded', 'failed', 'cancelled', 'paused'];
export const marked = new Set();

function card(value, label, part) {
  return el('div.card', {}, el('b', {}, value), el('span', {}, label),
    part === undefined ? null
      : el('div.meter', { role: 'presentation' }, el('i', { 'width%': Math.round(100 * Math.min(1, part)) })));
}

export function overview(stats) {
  const share = (used, all) => (all ? used / all : 0);
  return el('div.cards', {},
    card(number(stats.jobs.running + stats.jobs.launching), 'running'),
    card(number(stats.jobs.queued), 'queued'),
    card(`${stats.slots_used} / ${stats.slots}`, 'slots in use', share(stats.slots_used, stats.slots)),
    stats.gpus > 0 ? card(`${stats.gpus_used} / ${stats.gpus}`, 'GPUs in use', share(stats.gpus_used, stats.gpus)) : null,
    card(number(stats.jobs.succeeded), 'succeeded'),
    card(number(stats.jobs.failed + stats.jobs.cancelled), 'failed or cancelled'));
}

export async function act(job, what, after) {
  try {
    const answer = await post(`/v1/jobs/${job}/${what}`);
    note(what === 'retry' ? `Job ${answer.id} is queued: job ${job} again.` : `Job ${job}: ${what} requested.`);
    after?.(answer);
  } catch (e) {
    note(e.message);
  }
}

function when(job) {
  if (job.state === 'queued') {
    return job.position > 0 ? `${job.position} before it` : 'next';
  }
  return message(job);
}

// What is worth saying: that a job succeeded, its state says.
export function message(job) {
  return job.state === 'succeeded' && job.message === 'Exit code 0' ? '' : job.message || '';
}

function row(job, page, draw) {
  const mark = el('input', {
    type: 'checkbox', 'aria-label': `Mark job ${job.id} for comparison`,
    onchange: (e) => { if (e.target.checked) marked.add(job.id); else marked.delete(job.id); draw(); },
  });
  mark.checked = marked.has(job.id);
  const live = ['queued', 'launching', 'running', 'paused'].includes(job.state);
  const button = live
    ? el('button.danger', { type: 'button', onclick: () => act(job.id, 'cancel', page.refresh) }, 'Cancel')
    : el('button', { type: 'button', onclick: () => act(job.id, 'retry', page.refresh) }, 'Retry');
  return el('tr.row', { 'data-job': job.id },
    el('td.mark', {}, mark),
    el('td.n', { 'data-label': 'job' }, String(job.id)),
    el('td.name', {}, el('a', { href: `#/job/${job.id}` }, job.name || job.algorithm || `job ${job.id}`)),
    el('td.pill', {}, pill(job.state)),
    el('td', { 'data-label': 'user' }, job.user || ''),
    el('td.n', { 'data-label': 'priority' }, job.priority ? String(job.priority) : ''),
    el('td', { 'data-label': 'submitted', title: clock(job.submitted_ms) }, ago(job.submitted_ms)),
    el('td', { 'data-label': 'time' }, jobTime(job)),
    el('td.wide.full', {}, when(job)),
    el('td.act', {}, button));
}

function table(jobs, page, draw) {
  return el('div.panel', {}, el('table.rows', {},
    el('thead', {}, el('tr', {}, ['', 'Job', 'Name', 'State', 'User', 'Priority', 'Submitted', 'Time', 'Message', '']
      .map((t, i) => el(i === 1 || i === 5 ? 'th.n' : 'th', { scope: 'col' }, t)))),
    el('tbody', {}, jobs.map((j) => row(j, page, draw)))));
}

export async function jobsView(page) {
  const query = new URLSearchParams(page.query);
  let jobs = [], next = '', stats = null;
  const list = el('div'), top = el('div'), more = el('p.actions'), compare = el('a.button', { hidden: true });
  const filter = el('input', {
    id: 'filter', type: 'search', value: query.get('filter') ?? '', 'aria-label': 'Filter',
    placeholder: 'Filter: name=mnist* user=ann label.team=nlp',
    onchange: () => setQuery(),
  });
  const chips = el('div.chips', { role: 'group', 'aria-label': 'States' }, STATES.map((s) => el('button', {
    type: 'button', 'aria-pressed': String((query.get('state') ?? '').split(',').includes(s)),
    onclick: (e) => {
      e.target.setAttribute('aria-pressed', String(e.target.getAttribute('aria-pressed') !== 'true'));
      setQuery();
    },
  }, s)));

  function setQuery() {
    const states = [...chips.children].filter((c) => c.getAttribute('aria-pressed') === 'true').map((c) => c.textContent);
    const q = new URLSearchParams();
    if (states.length) q.set('state', states.join(','));
    if (filter.value) q.set('filter', filter.value);
    location.hash = `#/jobs${q.size ? `?${q}` : ''}`;
  }

  const address = (token) => {
    const q = new URLSearchParams({ page_size: '50' });
    if (query.get('state')) q.set('state', query.get('state'));
    if (query.get('filter')) q.set('filter', query.get('filter'));
    if (token) q.set('page_token', token);
    return `/v1/jobs?${q}`;
  };

  function draw() {
    const at = list.querySelector('tr.at')?.dataset.job;
    top.replaceChildren(...(stats ? [overview(stats)] : []));
    list.replaceChildren(jobs.length ? table(jobs, page, draw)
      : empty(query.size ? 'No job matches.' : 'No jobs yet. Submit one: tandem submit job.yaml'));
    if (at) list.querySelector(`tr[data-job="${at}"]`)?.classList.add('at');
    more.replaceChildren(...(next ? [el('button', { type: 'button', onclick: loadMore }, 'Older jobs')] : []));
    compare.hidden = marked.size < 2;
    compare.href = `#/compare/${[...marked].join(',')}`;
    compare.textContent = `Compare ${marked.size} jobs`;
  }

  async function refresh() {
    const shown = Math.max(50, jobs.length);
    const [answer, s] = await Promise.all([
      get(address('').replace('page_size=50', `page_size=${shown}`), page.signal),
      get('/v1/stats', page.signal)]);
    jobs = answer.jobs;
    next = answer.next_page_token;
    stats = s;
    draw();
  }

  async function loadMore() {
    const answer = await get(address(next), page.signal);
    jobs = jobs.concat(answer.jobs);
    next = answer.next_page_token;
    draw();
  }

  await page.live(refresh);
  page.show('Jobs', el('div.head', {}, el('h1', {}, 'Jobs'), el('div.actions', {}, compare)), top,
    el('div.filters', {}, filter, chips), list, more);
  page.every(5000, () => draw());
}

export async function queueView(page) {
  const body = el('div');
  async function refresh() {
    const [answer, stats] = await Promise.all([
      get('/v1/jobs?state=queued,paused,launching&page_size=500', page.signal), get('/v1/stats', page.signal)]);
    const order = answer.jobs.sort((a, b) => (a.state === 'queued') - (b.state === 'queued') ||
      a.position - b.position || a.id - b.id);
    body.replaceChildren(overview(stats), order.length ? el('div.panel', {}, el('table.rows', {},
      el('thead', {}, el('tr', {}, el('th.n', {}, 'Place'), ['Name', 'State', 'User'].map((t) => el('th', {}, t)),
        el('th.n', {}, 'Priority'), ['Needs', 'Waits', 'Message', ''].map((t) => el('th', {}, t)))),
      el('tbody', {}, order.map((j) => el('tr.row', { 'data-job': j.id },
        el('td.n', { 'data-label': 'place' }, j.state === 'queued' ? String(j.position + 1) : ''),
        el('td.name', {}, el('a', { href: `#/job/${j.id}` }, `${j.id}  ${j.name || j.algorithm}`)),
        el('td.pill', {}, pill(j.state)),
        el('td', { 'data-label': 'user' }, j.user || ''),
        el('td.n', { 'data-label': 'priority' }, String(j.priority)),
        el('td', { 'data-label': 'needs' }, needs(j)),
        el('td', { 'data-label': 'waits' }, duration(Date.now() - j.submitted_ms)),
        el('td.wide.full', {}, j.message || ''),
        el('td.act', {}, j.state === 'paused'
          ? el('button', { type: 'button', onclick: () => act(j.id, 'resume', page.refresh) }, 'Resume')
          : el('button', { type: 'button', onclick: () => act(j.id, 'pause', page.refresh) }, 'Pause')))))))
      : empty('Nothing waits.'));
  }
  await page.live(refresh);
  page.show('Queue', el('div.head', {}, el('h1', {}, 'Queue')), body);
}

export function needs(j) {
  const r = j.resources ?? {}, parts = [], count = (n, word) => `${n} ${word}${n === 1 ? '' : 's'}`;
  if (r.members > 1) parts.push(`${r.members} ×`);
  parts.push(count(r.slots ?? 1, 'slot'));
  if (r.gpus) parts.push(count(r.gpus, 'GPU'));
  if (r.memory_mb) parts.push(`${number(r.memory_mb)} MiB`);
  return parts.join(' ');
}
