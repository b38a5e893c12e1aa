// HTTP requests to the inspector. Failures are thrown as ApiError.

const TIMEOUT_MS = 10_000;

export class ApiError extends Error {
  constructor({ status, code, message, hint }) {
    super(message);
    this.status = status;
    this.code = code;
    this.hint = hint;
  }

  // There was no response at all.
  get isUnreachable() {
    return this.status === 0;
  }

  // The inspector rejected the request, so nothing was changed. Without a response the outcome is unknown.
  get isRefusal() {
    return this.status >= 400 && this.status < 500;
  }

  // The inspector does not respond, or it responds 503 because its database is unreachable.
  get isOutage() {
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
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  const signal = options.signal ? AbortSignal.any([options.signal, timeout]) : timeout;
  let response;
  let text;
  try {
    response = await fetch(`api/${path}`, { credentials: "same-origin", ...options, signal });
    text = await response.text();
  } catch (failure) {
    if (options.signal?.aborted) throw failure; // the caller cancelled the request
    throw new ApiError({
      status: 0,
      code: "unreachable",
      message: "The inspector does not respond.",
      hint: "Check that it is running and that this browser can reach it.",
    });
  }
  const body = parse(text);
  if (response.ok && body !== undefined) return body;
  throw toApiError(response, text);
}

// Converts an error response to an ApiError.
export function toApiError(response, text) {
  const error = parse(text)?.error ?? {};
  return new ApiError({
    status: response.status,
    code: error.code ?? `HTTP ${response.status}`,
    message: error.message ?? `The inspector responded with the HTTP status ${response.status}.`,
    hint: error.hint,
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
