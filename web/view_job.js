// SPDX-License-Identifier: Apache-2.0
// One job: its state, live curves, waits of its workers, log, artifacts, history.

import { del, download, get, Tail } from './api.js';
import { chart } from './chart.js';
import { ago, bytes, clock, duration, el, empty, jobTime, note, number, panel, pill, table }
  from './dom.js';
import { Run } from './run.js';
import { act, message, needs } from './view_jobs.js';

const FINAL = ['succeeded', 'failed', 'cancelled'];
// Parts of a step in a "ranks" line, with their colours.
const PARTS = [['compute', 0], ['update', 2], ['comm', 1], ['wait', 4], ['data', 6]];
const SECONDARY = new Set(['lr', 'grad_norm', 'samples/s', 'data wait %']);
const DRAW_MS = 250; // curves are drawn no more often
const MOST_PIECES = 2000; // of a log that is followed

const tell = (e) => { if (e.name !== 'AbortError') note(e.message); };

// ---- pieces of the page ----

export function rankBars(ranks) {
  const of = (part, rank) => ranks[part]?.[rank] ?? 0;
  const sums = (ranks.compute ?? []).map((_, r) => PARTS.reduce((sum, [p]) => sum + of(p, r), 0));
  const most = Math.max(...sums, 1e-12);
  const bar = (r) => el('div.split', {
    title: PARTS.map(([p]) => `${p} ${duration(of(p, r) * 1000)}`).join(', '),
  }, PARTS.map(([p, c]) => el(`i.c${c}`, { 'width%': 100 * of(p, r) / most })));
  return el('div', {},
    el('p.legend', {}, PARTS.map(([p, c]) => el('span', {}, el(`i.key.c${c}`), p))),
    panel(table({}, ['Rank', 'Time of a step', '#Waits', '#Memory'],
      sums.map((sum, r) => el('tr', {}, el('td', {}, String(r)), el('td', {}, bar(r)),
        el('td.n', {}, `${number(100 * of('wait', r) / (sum || 1))} %`),
        el('td.n', {}, ranks.memory?.[r] ? bytes(ranks.memory[r]) : ''))))));
}

function curves(run) {
  const names = run.names().filter((n) => !run.single(n));
  const order = names.sort((a, b) => SECONDARY.has(a) - SECONDARY.has(b)); // stable
  return order.length ? el('div.charts', {}, order.map((n) => chart(n, run.both(n))))
    : empty('No metrics yet.');
}

function facts(pairs) {
  return el('dl.facts', {}, pairs.filter(([, v]) => v !== undefined && v !== null && v !== '')
    .map(([k, v]) => el('div', {}, el('dt', {}, k), el('dd', {}, v))));
}

function jobFacts(job, run) {
  const metrics = (m) => Object.entries(m).map(([k, v]) => `${k} ${number(v)}`).join(', ');
  const total = run.begin?.steps ? ` of ${number(run.begin.steps)}` : '';
  const tests = run.end ? run.names().filter((n) => run.single(n)) : [];
  return facts([
    ['Message', message(job)],
    ['User', job.user],
    ['Tracker', job.tracker],
    ['Needs', needs(job)],
    ['Submitted', clock(job.submitted_ms)],
    ['Waited', job.launched_ms ? duration(job.launched_ms - job.submitted_ms) : ''],
    ['Attempt', job.attempt > 1 ? `${job.attempt} (${job.failures} failed)` : ''],
    ['Step', run.step ? number(run.step) + total : ''],
    ['Best', run.best ? metrics(run.best.metrics) : ''],
    ...tests.map((n) => [n, number(run.last(n))]),
    ['Checkpoints', run.checkpoints || ''],
    ['Labels', Object.entries(job.labels ?? {}).map(([k, v]) => `${k}=${v}`).join(' ')],
    ['Sweep', job.sweep ? el('a', { href: `#/sweep/${job.sweep}` }, String(job.sweep)) : ''],
  ]);
}

function buttons(job) {
  const live = !FINAL.includes(job.state);
  const after = (answer) => { location.hash = `#/job/${answer.id}`; }; // of a retry: another one
  const button = (what, label, danger) => el(danger ? 'button.danger' : 'button', {
    type: 'button', onclick: () => act(job.id, what, after),
  }, label);
  const remove = async () => {
    if (!confirm(`Delete job ${job.id} with its log and artifacts?`)) return;
    await del(`/v1/jobs/${job.id}`).then(() => { location.hash = '#/jobs'; }, tell);
  };
  return el('div.actions', {},
    live && job.state !== 'paused' ? button('pause', 'Pause') : null,
    job.state === 'paused' ? button('resume', 'Resume') : null,
    live ? button('cancel', 'Cancel', true) : button('retry', 'Retry'),
    live ? null : el('button.danger', { type: 'button', onclick: remove }, 'Delete'));
}

// The log of a member; more() shows what it has written since, again() begins with another launch.
function logPanel(page, id, members) {
  const out = el('pre.log', { tabindex: '0', 'aria-label': 'Log' });
  const stick = el('input', { type: 'checkbox' });
  stick.checked = true;
  const member = el('select', { 'aria-label': 'Member', onchange: start },
    Array.from({ length: members }, (_, i) => el('option', { value: i }, `member ${i}`)));
  const address = () => `/v1/jobs/${id}/logs?member=${member.value}`;
  let tail = null;

  function start() {
    out.textContent = '';
    tail = new Tail(address(), page.signal, (piece) => {
      out.append(piece);
      while (out.childNodes.length > MOST_PIECES) out.firstChild.remove();
      // The first piece may come before the log is in the page and has a height.
      if (stick.checked) requestAnimationFrame(() => { out.scrollTop = out.scrollHeight; });
    });
    tail.more().catch(tell);
  }

  const save = () => download(address(), `job-${id}-${member.value}.log`).catch(tell);
  const node = el('section', {}, el('h2', {}, 'Log'), panel(
    el('div.tools', {}, members > 1 ? member : null, el('label', {}, stick, 'follow'),
      el('button', { type: 'button', onclick: save }, 'Download')), out));
  start();
  return { node, again: start, more: () => tail.more().catch(tell) };
}

function artifactTable(id, artifacts) {
  if (!artifacts.length) return panel(empty('None yet.'));
  const escape = (name) => name.split('/').map(encodeURIComponent).join('/');
  const path = (name) => `/v1/jobs/${id}/artifacts/${escape(name)}`;
  const save = (name) => (e) => { e.preventDefault(); download(path(name), name).catch(tell); };
  return panel(table({}, ['Name', '#Size', 'sha256'], artifacts.map((a) => el('tr', {},
    el('td.name', {}, el('a', { href: path(a.name), onclick: save(a.name) }, a.name)),
    el('td.n', {}, bytes(a.nbytes)),
    el('td.mono', { title: a.sha256 }, a.sha256.slice(0, 12))))));
}

function historyTable(past) {
  return panel(el('table', {}, el('tbody', {}, past.slice(-60).reverse().map((e) => el('tr', {},
    el('td', { title: clock(e.time_ms) }, ago(e.time_ms)),
    el('td', {}, e.kind === 'state' ? pill(e.state) : e.kind),
    el('td.wide', {}, e.text ?? ''))))));
}

function specPanel(job) {
  const { job: file, ...rest } = job.spec ?? {};
  const text = JSON.stringify(rest, null, 2) + (file ? `\n\n# job file\n${file}` : '');
  return el('section', {}, el('h2', {}, 'As submitted'),
    panel(el('pre.log', { tabindex: '0' }, text)));
}

// ---- the page ----

export async function jobView(page, id) {
  let job = await get(`/v1/jobs/${id}`, page.signal);
  const head = el('div.head'), about = el('div'), plots = el('div'), ranks = el('div');
  const files = el('div'), past = el('div');
  const log = logPanel(page, id, job.resources?.members ?? 1);
  const run = new Run();
  let history = [], line = '', drawing = null;

  const metrics = new Tail(`/v1/jobs/${id}/metrics?follow=0`, page.signal, (text) => {
    const lines = (line + text).split('\n');
    line = lines.pop();
    const found = lines.filter((l) => l && run.add(l)).length;
    if (found) drawing ??= setTimeout(drawRun, DRAW_MS);
  });

  function drawHead() {
    const progress = FINAL.includes(job.state) ? null : run.progress();
    head.replaceChildren(el('h1', {}, `${job.id}  ${job.name || job.algorithm || ''}`),
      pill(job.state), el('span.sub', {}, jobTime(job)), buttons(job));
    about.replaceChildren(
      progress === null ? '' : el('div.meter', {
        role: 'progressbar', 'aria-valuenow': Math.round(progress * 100),
      }, el('i', { 'width%': progress * 100 })),
      jobFacts(job, run));
  }

  function drawRun() {
    drawing = null;
    plots.replaceChildren(el('h2', {}, 'Curves'), curves(run));
    ranks.replaceChildren(...(run.ranks
      ? [el('h2', {}, 'Workers and their waits'), rankBars(run.ranks)] : []));
    drawHead();
  }

  async function refresh() {
    const [now, stored, made] = await Promise.all([
      get(`/v1/jobs/${id}`, page.signal),
      get(`/v1/jobs/${id}/history`, page.signal),
      get(`/v1/jobs/${id}/artifacts`, page.signal)]);
    job = now;
    history = stored.events;
    files.replaceChildren(el('h2', {}, 'Artifacts'), artifactTable(id, made.artifacts));
    past.replaceChildren(el('h2', {}, 'History'), historyTable(history));
    drawHead();
    metrics.more().catch(tell); // with each change of state, lest the last lines be missed
    log.more();
  }

  page.onEvent((kind, e) => {
    if (kind !== 'connected' && e.job !== job.id) return;
    if (kind === 'metrics') metrics.more().catch(tell);
    if (kind === 'log') log.more();
    if (kind === 'attempt') log.again();
  });
  drawRun();
  await page.live(refresh);
  page.show(`Job ${id}`, head, about, plots, ranks,
    el('div.two', {}, log.node, el('section', {}, files, past)), specPanel(job));
  page.every(5000, drawHead);
}
