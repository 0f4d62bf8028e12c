// SPDX-License-Identifier: Apache-2.0
// The list of jobs, and the queue: live, filtered, with marks for comparison.

import { get, post } from './api.js';
import { ago, clock, duration, el, empty, jobTime, note, number, panel, pill, table }
  from './dom.js';

const STATES = ['queued', 'running', 'succeeded', 'failed', 'cancelled', 'paused'];
const LIVE = ['queued', 'launching', 'pending', 'running', 'paused'];
const PAGE = 50;
const TITLES = ['', '#Job', 'Name', 'State', 'User', '#Priority', 'Submitted', 'Time', 'Message',
  ''];

export const marked = new Set(); // jobs to compare

// ---- pieces that other pages use too ----

function card(value, label, share) {
  const meter = share === undefined ? null : el('div.meter', { role: 'presentation' },
    el('i', { 'width%': Math.round(100 * Math.min(1, share)) }));
  return el('div.card', {}, el('b', {}, value), el('span', {}, label), meter);
}

export function overview(s) {
  const use = (used, all, label) => card(`${used} / ${all}`, label, all ? used / all : 0);
  return el('div.cards', {},
    card(number(s.jobs.running + s.jobs.launching + s.jobs.pending), 'running'),
    card(number(s.jobs.queued), 'queued'),
    use(s.slots_used, s.slots, 'slots in use'),
    s.gpus > 0 ? use(s.gpus_used, s.gpus, 'GPUs in use') : null,
    card(number(s.jobs.succeeded), 'succeeded'),
    card(number(s.jobs.failed + s.jobs.cancelled), 'failed or cancelled'));
}

// cancel, pause, resume or retry; `after` gets the service's answer.
export async function act(job, what, after) {
  try {
    const answer = await post(`/v1/jobs/${job}/${what}`);
    note(what === 'retry' ? `Job ${answer.id} is queued: job ${job} again.`
      : `Job ${job}: ${what} requested.`);
    after?.(answer);
  } catch (e) {
    note(e.message);
  }
}

// What is worth saying: that a job succeeded, its state says.
export function message(job) {
  return job.state === 'succeeded' && job.message === 'Exit code 0' ? '' : job.message || '';
}

export function needs(job) {
  const r = job.resources ?? {}, parts = [];
  const count = (n, word) => `${n} ${word}${n === 1 ? '' : 's'}`;
  if (r.members > 1) parts.push(`${r.members} ×`);
  parts.push(count(r.slots ?? 1, 'slot'));
  if (r.gpus) parts.push(count(r.gpus, 'GPU'));
  if (r.memory_mb) parts.push(`${number(r.memory_mb)} MiB`);
  return parts.join(' ');
}

const labelled = (label, value) => el('td', { 'data-label': label }, value);
const nameCell = (job, text) => el('td.name', {}, el('a', { href: `#/job/${job.id}` }, text));

// ---- the list ----

function place(job) {
  if (job.state !== 'queued') return message(job);
  return job.position > 0 ? `${job.position} before it` : 'next';
}

function markBox(job, draw) {
  const box = el('input', {
    type: 'checkbox', 'aria-label': `Mark job ${job.id} for comparison`,
    onchange: () => {
      if (box.checked) marked.add(job.id); else marked.delete(job.id);
      draw();
    },
  });
  box.checked = marked.has(job.id);
  return box;
}

function row(job, page, draw) {
  const what = LIVE.includes(job.state) ? 'cancel' : 'retry';
  const button = el(what === 'cancel' ? 'button.danger' : 'button', {
    type: 'button', onclick: () => act(job.id, what, page.refresh),
  }, what === 'cancel' ? 'Cancel' : 'Retry');
  return el('tr.row', { 'data-job': job.id },
    el('td.mark', {}, markBox(job, draw)),
    el('td.n', { 'data-label': 'job' }, String(job.id)),
    nameCell(job, job.name || job.algorithm || `job ${job.id}`),
    el('td.pill', {}, pill(job.state)),
    labelled('user', job.user || ''),
    el('td.n', { 'data-label': 'priority' }, job.priority ? String(job.priority) : ''),
    el('td', { 'data-label': 'submitted', title: clock(job.submitted_ms) }, ago(job.submitted_ms)),
    labelled('time', jobTime(job)),
    el('td.wide.full', {}, place(job)),
    el('td.act', {}, button));
}

export async function jobsView(page) {
  let query = new URLSearchParams(page.query);
  const list = el('div'), top = el('div'), more = el('p.actions');
  const compare = el('a.button', { hidden: true });
  let jobs = [], next = '', stats = null;

  const filter = el('input', {
    id: 'filter', type: 'search', value: query.get('filter') ?? '', 'aria-label': 'Filter',
    placeholder: 'Filter: name=mnist* user=ann label.team=nlp', onchange: setQuery,
  });
  const states = (query.get('state') ?? '').split(',');
  const chips = el('div.chips', { role: 'group', 'aria-label': 'States' }, STATES.map((s) => {
    const chip = el('button', {
      type: 'button', 'aria-pressed': String(states.includes(s)),
      onclick: () => {
        chip.setAttribute('aria-pressed', String(chip.getAttribute('aria-pressed') !== 'true'));
        setQuery();
      },
    }, s);
    return chip;
  }));

  // The page stays: were it opened again, what is typed while the list is fetched would be lost,
  // and the field with it.
  function setQuery() {
    const pressed = [...chips.querySelectorAll('[aria-pressed=true]')].map((c) => c.textContent);
    query = new URLSearchParams();
    if (pressed.length) query.set('state', pressed.join(','));
    if (filter.value) query.set('filter', filter.value);
    jobs = [];
    page.setAddress(`#/jobs${query.size ? `?${query}` : ''}`);
    page.refresh().catch((e) => {
      if (!page.signal.aborted) list.replaceChildren(empty(e.message));
    });
  }

  function ask(size, token) {
    const q = new URLSearchParams({ page_size: size });
    for (const key of ['state', 'filter']) if (query.get(key)) q.set(key, query.get(key));
    if (token) q.set('page_token', token);
    return get(`/v1/jobs?${q}`, page.signal);
  }

  function draw() {
    const at = list.querySelector('tr.at')?.dataset.job;
    top.replaceChildren(...(stats ? [overview(stats)] : []));
    list.replaceChildren(jobs.length
      ? panel(table({ rows: true }, TITLES, jobs.map((j) => row(j, page, draw))))
      : empty(query.size ? 'No job matches.' : 'No jobs yet. Submit one: tandem submit job.yaml'));
    if (at) list.querySelector(`tr[data-job="${at}"]`)?.classList.add('at');
    more.replaceChildren(...(next
      ? [el('button', { type: 'button', onclick: loadMore }, 'Older jobs')] : []));
    compare.hidden = marked.size < 2;
    compare.href = `#/compare/${[...marked].join(',')}`;
    compare.textContent = `Compare ${marked.size} jobs`;
  }

  async function refresh() {
    const asked = query;
    const [answer, s] = await Promise.all([
      ask(Math.max(PAGE, jobs.length)), get('/v1/stats', page.signal)]);
    if (asked !== query) return; // another list is wanted by now, and is fetched next
    jobs = answer.jobs;
    next = answer.next_page_token;
    stats = s;
    draw();
  }

  async function loadMore() {
    const asked = query, answer = await ask(PAGE, next);
    if (asked !== query) return;
    jobs = jobs.concat(answer.jobs);
    next = answer.next_page_token;
    draw();
  }

  await page.live(refresh);
  page.show('Jobs', el('div.head', {}, el('h1', {}, 'Jobs'), el('div.actions', {}, compare)), top,
    el('div.filters', {}, filter, chips), list, more);
  page.every(5000, draw);
}

// ---- the queue ----

function queueRow(job, page) {
  const what = job.state === 'paused' ? 'resume' : 'pause';
  return el('tr.row', { 'data-job': job.id },
    el('td.n', { 'data-label': 'place' }, job.state === 'queued' ? String(job.position + 1) : ''),
    nameCell(job, `${job.id}  ${job.name || job.algorithm}`),
    el('td.pill', {}, pill(job.state)),
    labelled('user', job.user || ''),
    el('td.n', { 'data-label': 'priority' }, String(job.priority)),
    labelled('needs', needs(job)),
    labelled('waits', duration(Date.now() - job.submitted_ms)),
    el('td.wide.full', {}, job.message || ''),
    el('td.act', {}, el('button', {
      type: 'button', onclick: () => act(job.id, what, page.refresh),
    }, what === 'resume' ? 'Resume' : 'Pause')));
}

export async function queueView(page) {
  const body = el('div');
  const titles = ['#Place', 'Name', 'State', 'User', '#Priority', 'Needs', 'Waits', 'Message', ''];

  async function refresh() {
    const [{ jobs }, stats] = await Promise.all([
      get('/v1/jobs?state=queued,paused,launching,pending&page_size=500', page.signal),
      get('/v1/stats', page.signal)]);
    // Launching first, then the queue in its order, then what is paused.
    const rank = (j) => ['launching', 'pending', 'queued', 'paused'].indexOf(j.state);
    jobs.sort((a, b) => rank(a) - rank(b) || a.position - b.position || a.id - b.id);
    body.replaceChildren(overview(stats), jobs.length
      ? panel(table({ rows: true }, titles, jobs.map((j) => queueRow(j, page))))
      : empty('Nothing waits.'));
  }

  await page.live(refresh);
  page.show('Queue', el('div.head', {}, el('h1', {}, 'Queue')), body);
}
