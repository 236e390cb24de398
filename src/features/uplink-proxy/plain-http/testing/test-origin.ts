import type { Socket } from "node:net";
import type { TestContext } from "node:test";
import { serverFor } from "../../testing/proxy-fixtures.ts";

/** The kind of answer of an origin, which the path of the request names. */
export type AnswerMode =
  | "length"
  | "chunked"
  | "close"
  | "empty"
  | "not-modified"
  | "interim"
  /** Sends an additional answer, as if it answered another client's request. */
  | "talkative"
  /** Answers before the body of the request has come. */
  | "early"
  | "cut"
  | "both-lengths"
  | "folded";

/** A server of plain HTTP that records all received bytes, for each connection. */
export class TestOrigin {
  readonly name: string;
  readonly port: number;
  /** All bytes of each connection. */
  readonly received: string[] = [];

  private constructor(name: string, port: number) {
    this.name = name;
    this.port = port;
  }

  static async open(t: TestContext, name: string): Promise<TestOrigin> {
    let origin: TestOrigin | undefined;
    const { port } = await serverFor(t, (socket) => origin?.serve(socket));
    origin = new TestOrigin(name, port);
    return origin;
  }

  serve(socket: Socket): void {
    const at = this.received.push("") - 1;
    let isAnswered = false;
    socket.on("data", (chunk: Buffer) => {
      const text = (this.received[at] ?? "") + chunk.toString("latin1");
      this.received[at] = text;
      const [, method = "", id = "", mode = ""] = /^(\w+) \/(\d+)\/([\w-]+) HTTP.*?\r\n\r\n/s.exec(text) ?? [];
      if (isAnswered || mode === "" || (mode !== "early" && !isWhole(text))) return;
      isAnswered = true;
      socket.write(answer(mode as AnswerMode, `${this.name}-${id};`, method === "HEAD"), "latin1");
      if (mode === "close" || mode === "cut") socket.end();
    });
    socket.on("end", () => socket.end());
  }
}

function isWhole(text: string): boolean {
  const [head = "", ...rest] = text.split("\r\n\r\n");
  const body = rest.join("\r\n\r\n");
  const length = /content-length: (\d+)/i.exec(head)?.[1];
  if (length !== undefined) return body.length >= Number(length);
  return !/transfer-encoding: chunked/i.test(head) || body.endsWith("0\r\n\r\n");
}

function answer(mode: AnswerMode, text: string, isHead: boolean): string {
  const whole = text.repeat(3);
  const head = (status: string, ...fields: readonly string[]): string =>
    `HTTP/1.1 ${status}\r\nX-Answer: ${text}\r\n${fields.map((field) => `${field}\r\n`).join("")}\r\n`;
  const withLength = (body: string): string => head("200 OK", `Content-Length: ${body.length}`) + (isHead ? "" : body);
  switch (mode) {
    case "length":
      return withLength(whole);
    case "chunked": {
      const chunk = `${text.length.toString(16)};x=y\r\n${text}\r\n`;
      return head("200 OK", "Transfer-Encoding: chunked") + (isHead ? "" : `${chunk.repeat(3)}0\r\nX-Sum: 1\r\n\r\n`);
    }
    case "close":
      return head("200 OK") + (isHead ? "" : whole);
    case "empty":
      return head("204 No Content");
    case "not-modified":
      return head("304 Not Modified", "Content-Length: 99");
    case "interim":
      return `HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n${withLength(whole)}`;
    case "talkative":
      return `${withLength(whole)}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen`;
    case "early":
      return withLength(whole);
    case "cut":
      return head("200 OK", "Content-Length: 1000") + text;
    case "both-lengths":
      return head("200 OK", "Content-Length: 5", "Transfer-Encoding: chunked");
    case "folded":
      return head("200 OK", "X-A: b", " folded", "Content-Length: 0");
  }
}
