// SPDX-License-Identifier: Apache-2.0
// Calls to the service: JSON, streams of events, files. The token, where one is needed, stays in
// this tab (sessionStorage) and travels in a header; EventSource cannot send one, so streams are
// read with fetch.

// unauthorized: asks for a token; its promise is kept when there is another one to try.
export const api = { unauthorized: null };

function headers(more) {
  const token = sessionStorage.getItem('token');
  return { ...(token ? { Authorization: `Bearer ${token}` } : {}), ...more };
}

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

async function request(method, path, body, signal) {
  for (;;) {
    let answer;
    try {
      answer = await fetch(path, {
        method, signal,
        headers: headers(body === undefined ? {} : { 'Content-Type': 'application/json' }),
        body: body === undefined ? undefined : JSON.stringify(body),
      });
    } catch (e) {
      if (e.name === 'AbortError') throw e;
      throw new ApiError(0, 'unavailable', 'The service cannot be reached.');
    }
    if (answer.ok) return answer;
    if (answer.status === 401 && api.unauthorized) {
      await api.unauthorized();
      continue;
    }
    const problem = await answer.json().catch(() => ({}));
    throw new ApiError(answer.status, problem.error?.code ?? 'unknown',
      problem.error?.message ?? `${answer.status} ${answer.statusText}`);
  }
}

export async function get(path, signal) {
  return (await request('GET', path, undefined, signal)).json();
}

export async function post(path, body = {}) {
  return (await request('POST', path, body)).json();
}

export async function del(path) {
  return (await request('DELETE', path)).json();
}

export async function text(path, signal) {
  return (await request('GET', path, undefined, signal)).text();
}

// Save a file under its own name; a plain link could not carry the token.
export async function download(path, name) {
  const data = await (await request('GET', path)).blob();
  const a = document.createElement('a');
  a.href = URL.createObjectURL(data);
  a.download = name.split('/').pop();
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 10000);
}

async function readLines(path, signal, onLine) {
  const answer = await request('GET', path, undefined, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    for (const line of lines) onLine(line);
  }
}

// A text that grows, such as a log: more() hands over what it has more than last time. One request
// at a time, and none that stays open: browsers allow few connections to a server, for all tabs.
export class Tail {
  #path; #signal; #onText; #at; #decoder; #running; #again;

  // path: the address without `from`, which has a query already.
  constructor(path, signal, onText) {
    this.#path = path;
    this.#signal = signal;
    this.#onText = onText;
    this.reset();
  }

  // From the beginning again.
  reset() {
    this.#at = 0;
    this.#decoder = new TextDecoder();
  }

  async more() {
    this.#again = true;
    if (this.#running) return;
    this.#running = true;
    try {
      while (this.#again && !this.#signal.aborted) {
        this.#again = false;
        const at = this.#at;
        const answer = await request('GET', `${this.#path}&from=${at}`, undefined, this.#signal);
        const data = await answer.arrayBuffer();
        if (at !== this.#at || !data.byteLength) continue; // it was reset meanwhile
        this.#at += data.byteLength;
        this.#onText(this.#decoder.decode(data, { stream: true }));
      }
    } finally {
      this.#running = false;
    }
  }
}

// Server-sent events until the signal aborts. `path(last)` gives the address, after the id of the
// last event that was seen; a lost connection is made again, more and more slowly.
export async function events(path, signal, onEvent, onState) {
  let last = null, wait = 500;
  while (!signal.aborted) {
    try {
      let event = {};
      await readLines(path(last), signal, (line) => {
        wait = 500;
        onState(true);
        if (line === '') {
          if (event.data !== undefined) {
            if (event.id !== undefined) last = event.id;
            onEvent(event.event ?? 'message', event.data, event.id);
          }
          event = {};
          return;
        }
        const colon = line.indexOf(':');
        if (colon > 0) event[line.slice(0, colon)] = line.slice(colon + 1).replace(/^ /, '');
      });
    } catch (e) {
      if (signal.aborted) return;
      if (e.status >= 400 && e.status < 500) throw e;
    }
    onState(false);
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(wait * 2, 15000);
  }
}
