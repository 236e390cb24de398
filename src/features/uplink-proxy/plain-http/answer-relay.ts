import type { HeaderField } from "#wire/http-connect";
import {
  BodyReader,
  encodeChunk,
  encodeLastChunk,
  type ResponseHead,
  ResponseHeadReader,
  responseFraming,
} from "#wire/http1";
import { encodeResponseHead, encodeSwitch, trailersToPass } from "./hop.ts";

/** Limit of interim answers (1xx) before the final one. WebDAV's 102 comes every 20 s for as long as an hour. */
const MAX_INTERIM_ANSWERS = 256;
/** Limit of the bytes of all interim answers to a request, as they are passed on. */
const MAX_INTERIM_BYTES = 262_144;

/** The request that is answered. */
export interface AnswerTo {
  readonly method: string;
  readonly version: "1.0" | "1.1";
  /** The request wants to upgrade to another protocol. */
  readonly wantsUpgrade: boolean;
  /** Called when the final head has come; returns whether the client's connection may continue after this answer. */
  readonly mayStayOpen: () => boolean;
}

/** The state of the answer. */
export type AnswerState =
  | "more"
  /** The answer is complete; further bytes of the origin are dropped. */
  | "done"
  /** The protocol was switched: from now on bytes are passed on unchanged. */
  | "switched"
  | "malformed";

/**
 * Translates the origin's answer to one request for the client (RFC 9112 section 6): with its own framing, so that for the client the
 * answer ends exactly where the origin's answer ends. Pure.
 */
export class AnswerRelay {
  readonly #to: AnswerTo;
  #head: ResponseHeadReader | undefined = new ResponseHeadReader();
  #body: BodyReader | undefined;
  #isChunked = false;
  #interimAnswers = 0;
  #interimBytes = 0;
  #state: AnswerState = "more";
  #hasBegun = false;
  #closes = true;
  #fault = "";

  constructor(to: AnswerTo) {
    this.#to = to;
  }

  get state(): AnswerState {
    return this.#state;
  }

  /** The client has been given a final head, so that no other answer can take its place. */
  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  /** True if the client's connection must be closed after the answer. */
  get closes(): boolean {
    return this.#closes;
  }

  /** The fault of the answer, once its state is `malformed`. */
  get fault(): string {
    return this.#fault;
  }

  /** Takes the origin's next bytes. Returns the bytes to send to the client, which may be views of the given bytes. */
  push(chunk: Uint8Array): readonly Uint8Array[] {
    const out: Uint8Array[] = [];
    let rest = chunk;
    // Interim answers may come in one read together with the final answer.
    while (this.#head !== undefined && rest.length > 0 && this.#state === "more")
      rest = this.#pushHead(this.#head, rest, out);
    if (this.#state === "switched") {
      if (rest.length > 0) out.push(rest);
    } else if (this.#state === "more" && this.#body !== undefined) this.#pushBody(this.#body, rest, out);
    return out;
  }

  /** Call when the origin has ended its sending. Returns the bytes to send to the client. */
  end(): readonly Uint8Array[] {
    if (this.#state !== "more") return [];
    if (this.#body?.end() !== true) {
      this.#fail("the answer is incomplete");
      return [];
    }
    return this.#finish([]);
  }

  #pushHead(reader: ResponseHeadReader, chunk: Uint8Array, out: Uint8Array[]): Uint8Array {
    const progress = reader.push(chunk);
    if (progress.kind === "need-more") return chunk.subarray(chunk.length);
    if (progress.kind === "malformed") {
      this.#fail(progress.what);
      return chunk;
    }
    const { head, rest } = progress;
    if (head.status === 101) this.#switch(head, out);
    else if (head.status < 200) this.#passInterim(head, out);
    else this.#begin(head, out);
    return rest;
  }

  #passInterim(head: ResponseHead, out: Uint8Array[]): void {
    const bytes = encodeResponseHead(head, { isChunked: false, close: false });
    this.#interimAnswers += 1;
    this.#interimBytes += bytes.length;
    if (this.#interimAnswers > MAX_INTERIM_ANSWERS || this.#interimBytes > MAX_INTERIM_BYTES) {
      this.#fail(`more than ${MAX_INTERIM_ANSWERS} interim answers, or ${MAX_INTERIM_BYTES} bytes of them`);
      return;
    }
    this.#head = new ResponseHeadReader();
    // RFC 9110 section 15.2: HTTP/1.0 has no interim answers.
    if (this.#to.version !== "1.0") out.push(bytes);
  }

  #switch(head: ResponseHead, out: Uint8Array[]): void {
    if (!this.#to.wantsUpgrade) {
      this.#fail("the answer changes the protocol, which the request did not ask for");
      return;
    }
    this.#head = undefined;
    this.#hasBegun = true;
    this.#state = "switched";
    out.push(encodeSwitch(head));
  }

  #begin(head: ResponseHead, out: Uint8Array[]): void {
    const framing = responseFraming(head, this.#to.method);
    if (framing.kind === "malformed") {
      this.#fail(framing.what);
      return;
    }
    this.#head = undefined;
    this.#hasBegun = true;
    // HTTP/1.0 has no chunks: the connection ends with the body.
    this.#isChunked = framing.kind === "chunked" && this.#to.version !== "1.0";
    this.#closes = framing.kind === "close" || !this.#to.mayStayOpen();
    out.push(encodeResponseHead(head, { isChunked: this.#isChunked, close: this.#closes }));
    this.#body = new BodyReader(framing);
    if (this.#body.isDone) this.#state = "done";
  }

  #pushBody(body: BodyReader, chunk: Uint8Array, out: Uint8Array[]): void {
    const progress = body.push(chunk);
    if (progress.kind === "malformed") {
      this.#fail(progress.what);
      return;
    }
    for (const payload of progress.payload) out.push(...(this.#isChunked ? encodeChunk(payload) : [payload]));
    if (progress.kind === "done") out.push(...this.#finish(progress.trailers));
  }

  #finish(trailers: readonly HeaderField[]): readonly Uint8Array[] {
    this.#state = "done";
    return this.#isChunked ? [encodeLastChunk(trailersToPass(trailers))] : [];
  }

  #fail(what: string): void {
    this.#state = "malformed";
    this.#fault = what;
  }
}
