// What the inspector answers, or an ApiError that says why not.

const LIMIT_MS = 10_000;

export class ApiError extends Error {
  constructor({ status, code, message, hint }) {
    super(message);
    this.status = status;
    this.code = code;
    this.hint = hint;
  }

  // The inspector is not there at all, as opposed to saying no.
  get isUnreachable() {
    return this.status === 0;
  }

  // The inspector said no, so nothing was changed. Without an answer that is not known.
  get isRefusal() {
    return this.status >= 400 && this.status < 500;
  }

  // 503 is the inspector's word for a database that is away.
  get isAway() {
    return this.status === 0 || this.status === 503;
  }
}

export async function get(path, signal, headers) {
  return request(path, { signal, headers });
}

export async function post(path, body, headers) {
  return request(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers },
    body: JSON.stringify(body),
  });
}

async function request(path, options) {
  const timeLimit = AbortSignal.timeout(LIMIT_MS);
  const signal = options.signal ? AbortSignal.any([options.signal, timeLimit]) : timeLimit;
  let response;
  let text;
  try {
    response = await fetch(`api/${path}`, { credentials: "same-origin", ...options, signal });
    text = await response.text();
  } catch (failure) {
    if (options.signal?.aborted) throw failure; // nobody waits for it any more
    throw new ApiError({ status: 0, code: "unreachable", message: "The inspector does not answer." });
  }
  const answer = parse(text);
  if (response.ok && answer !== undefined) return answer;
  throw explained(response, text);
}

// An answer that is an error, as an ApiError.
export function explained(response, text) {
  const told = parse(text)?.error ?? {};
  return new ApiError({
    status: response.status,
    code: told.code ?? `HTTP ${response.status}`,
    message: told.message ?? `The inspector answered ${response.status}.`,
    hint: told.hint,
  });
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export function withQuery(path, query) {
  const given = Object.entries(query).filter(([, value]) => value != null && value !== "");
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}
