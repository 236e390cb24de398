import { request } from "node:http";
import { type Fact, readFact } from "#base/diagnosis";
import { describeError, ExpectedError } from "#base/errors";
import {
  type EndpointPlace,
  type Instance,
  type InstanceAnswer,
  isOurReadiness,
  parseExposition,
  parseReadiness,
  STATUS_METRICS,
  SUITE_PROGRAMS,
} from "#features/suite-report";
import type { KubeClient } from "#kube/client";

/** The time in which a program must answer, in milliseconds. */
const ANSWER_MS = 3000;
/** The maximum size of an answer, in bytes; the metrics of a proxy of 10,000 Services have less than 1 MiB. */
const MAX_BYTES = 4 * 1024 * 1024;

/** A program did not answer, or answered something else. */
export class AnswerError extends ExpectedError<"no-answer" | "foreign-answer"> {
  override readonly name = "AnswerError";
}

/** Gives work a time limit. Rejects with {@link AnswerError} when it is over, and with the signal's reason. */
export async function within<T>(
  limitMs: number,
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const limit = AbortSignal.timeout(limitMs);
  try {
    return await work(AbortSignal.any([signal, limit]));
  } catch (error) {
    if (!limit.aborted || signal.aborted) throw error;
    throw new AnswerError("no-answer", `there was no answer in ${limitMs} ms`, { cause: error });
  }
}

/** An answer of any status. */
export interface PlainAnswer {
  readonly status: number;
  readonly text: string;
}

/** Sends a GET to a program of this machine. Rejects with {@link AnswerError}, or with the signal's reason. */
export async function askHere(
  { host, port }: EndpointPlace,
  path: string,
  { signal }: { readonly signal: AbortSignal },
): Promise<PlainAnswer> {
  const { promise, resolve, reject } = Promise.withResolvers<PlainAnswer>();
  const where = { host: host === "" || host === "0.0.0.0" || host === "::" ? "127.0.0.1" : host, port };
  const fail = (why: string): void => {
    reject(new AnswerError("no-answer", `http://${where.host}:${port}${path} does not answer: ${why}`));
  };
  const sent = request({ ...where, path, headers: { connection: "close" }, signal }, (response) => {
    let text = "";
    response.setEncoding("utf8").on("data", (chunk: string) => {
      text += chunk;
      if (text.length > MAX_BYTES) sent.destroy(new Error(`the answer is longer than ${MAX_BYTES} bytes`));
    });
    response.once("end", () => resolve({ status: response.statusCode ?? 0, text }));
    response.once("error", (error) => fail(describeError(error)));
  });
  sent.setTimeout(ANSWER_MS, () => sent.destroy(new Error(`no answer in ${ANSWER_MS} ms`)));
  sent.once("error", (error) => (signal.aborted ? reject(signal.reason) : fail(describeError(error))));
  sent.end();
  return promise;
}

/** Sends a GET to a pod through the API server (`pods/proxy`). Rejects with `KubeError` and {@link AnswerError}. */
async function askPod(
  api: KubeClient,
  { namespace, name }: { readonly namespace: string; readonly name: string },
  { port }: EndpointPlace,
  path: string,
  { signal }: { readonly signal: AbortSignal },
): Promise<PlainAnswer> {
  const pod = `${encodeURIComponent(name)}:${port}`;
  const url = `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods/${pod}/proxy${path}`;
  const answer = await api.fetch(url, { signal, timeoutMs: ANSWER_MS, maxBytes: MAX_BYTES });
  const refusal = refusalOf(answer.text);
  if (refusal !== undefined) throw new AnswerError("no-answer", refusal);
  return answer;
}

/** The message of a Status of the API server; `undefined` for an answer of the pod. */
function refusalOf(text: string): string | undefined {
  if (!text.startsWith("{") || !text.includes('"Status"')) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
  const { kind, message } = value as { readonly kind?: unknown; readonly message?: unknown };
  return kind === "Status" && typeof message === "string" ? message.slice(0, 500) : undefined;
}

/**
 * Asks a program for its parts and metrics: a pod through the API server, a process of this machine directly. Rejects only with the signal's reason and
 * with bugs.
 */
export async function askInstance(
  api: KubeClient | undefined,
  instance: Instance,
  at: { readonly signal: AbortSignal },
): Promise<InstanceAnswer> {
  const get = (place: EndpointPlace, path: string): Promise<PlainAnswer> => {
    if (instance.pod === undefined) return askHere(place, path, at);
    if (api === undefined) throw new AnswerError("no-answer", "the API server does not answer");
    if (isLoopback(place)) {
      const why = `it listens on ${place.host} alone, which the API server does not reach`;
      throw new AnswerError("no-answer", why);
    }
    return askPod(api, instance.pod, place, path, at);
  };
  const { health, metrics, program } = instance;
  const isPrivate = (place: EndpointPlace): boolean =>
    instance.pod !== undefined && isLoopback(place) && SUITE_PROGRAMS[program]?.metrics.host !== undefined;
  const readiness =
    health === undefined ? undefined : readFact(async () => readinessOf(await get(health, "/readyz?verbose")));
  const samples: Promise<Fact<ReturnType<typeof parseExposition>>> | undefined =
    metrics === undefined || isPrivate(metrics)
      ? undefined
      : readFact(async () => {
          const { status, text } = await get(metrics, "/metrics");
          const isClosed = status === 401 || status === 403;
          if (isClosed)
            throw new AnswerError(
              "no-answer",
              "/metrics is not for this client (--metrics-authorization, --metrics-from)",
            );
          if (status !== 200) throw new AnswerError("foreign-answer", `/metrics answers with the status ${status}`);
          return parseExposition(text, STATUS_METRICS);
        });
  // Together: when the signal aborts, both reject.
  const [parts, found] = await Promise.all([readiness, samples]);
  return { readiness: parts, samples: found };
}

function readinessOf({ status, text }: PlainAnswer) {
  if (![200, 500, 503].includes(status) || !isOurReadiness(text))
    throw new AnswerError(
      "foreign-answer",
      `/readyz answers with the status ${status}, and not as the suite's programs do`,
    );
  return { isReady: status === 200, parts: parseReadiness(text) };
}

function isLoopback({ host }: EndpointPlace): boolean {
  return host === "localhost" || host === "::1" || host.startsWith("127.");
}
