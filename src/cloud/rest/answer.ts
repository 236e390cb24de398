import type { Dispatcher } from "#base/undici";
import { CloudError } from "./errors.ts";

/** The longest answer that is read, in bytes: a page of a thousand ports has one MiB. */
export const MAX_ANSWER_BYTES = 64 * 1024 * 1024;

/** A whole answer. */
export interface WholeAnswer {
  readonly status: number;
  /** Names in lower case; of a header that came several times, the first value. */
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
  /** The JSON value of the text; `undefined` if it is none. */
  readonly body: unknown;
}

/** Reads an answer. Rejects with `bad-response` if it is longer than {@link MAX_ANSWER_BYTES}, and with undici's error if it ends early. */
export async function readAnswer(
  answer: Pick<Dispatcher.ResponseData, "statusCode" | "headers" | "body">,
): Promise<WholeAnswer> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of answer.body as AsyncIterable<Uint8Array>) {
    length += chunk.length;
    if (length > MAX_ANSWER_BYTES) {
      throw new CloudError("bad-response", `the answer is longer than ${MAX_ANSWER_BYTES} bytes`, {
        httpStatus: answer.statusCode,
      });
    }
    chunks.push(chunk);
  }
  const text = Buffer.concat(chunks, length).toString("utf8");
  const headers = Object.entries(answer.headers).flatMap(([name, value]) => {
    const first = Array.isArray(value) ? value[0] : value;
    return first === undefined ? [] : [[name.toLowerCase(), first] as const];
  });
  return { status: answer.statusCode, headers: Object.fromEntries(headers), text, body: parsed(text) };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // Proxies answer with HTML; the caller decides by the status whether that is a fault.
    return undefined;
  }
}
