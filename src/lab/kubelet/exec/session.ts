import type { Readable } from "node:stream";
import type { RawData, WebSocket } from "ws";
import { sleep } from "#base/async";
import { describeError, ExpectedError } from "#base/errors";
import { decodeClientMessage, type ExecProtocol, encodeExit, encodeFailure, encodeOutput } from "./channels.ts";
import { type ExecPlace, killCommand, type RunningCommand, startCommand } from "./command.ts";
import type { ExecRequest } from "./request.ts";

/** A command is paused while its client has more unread bytes than this. */
const MAX_UNSENT_BYTES = 1 << 20;
/**
 * Pause between the upgrade and the start of the command, in milliseconds. kubectl before 1.34 discards output that arrives before it has
 * registered its streams (kubernetes/kubernetes#131189). A real container runtime needs about as long to start a process.
 */
const START_DELAY_MS = 100;
const NORMAL_CLOSURE = 1000;
const PROTOCOL_ERROR = 1002;

/**
 * Connects a command with its client; resolves when both have ended. The command ends with its client. `placeNow` returns the place of the
 * command when it starts, `undefined` if the container has ended meanwhile.
 */
export async function runExec(
  socket: WebSocket,
  protocol: ExecProtocol,
  placeNow: () => ExecPlace | undefined,
  request: ExecRequest,
): Promise<void> {
  const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
  socket.pause();
  await sleep(START_DELAY_MS);
  const place = socket.readyState === socket.OPEN ? placeNow() : undefined;
  if (place === undefined) {
    socket.send(encodeFailure("the container has ended"), () => socket.close(NORMAL_CLOSURE));
    socket.resume();
    await closed;
    return;
  }
  const command = startCommand(place, request);
  void closed.then(() => killCommand(command));
  takeInput(socket, protocol, command, request);
  socket.resume();
  passOutput(socket, "stdout", command.child.stdout, request.stdout);
  passOutput(socket, "stderr", command.child.stderr, request.stderr || request.tty);
  socket.send(await lastMessage(command));
  socket.close(NORMAL_CLOSURE);
  await closed;
}

async function lastMessage(command: RunningCommand): Promise<Buffer> {
  try {
    return encodeExit(await command.ended);
  } catch (error) {
    if (!(error instanceof Error && "code" in error)) throw error;
    return encodeFailure(`the command cannot be started: ${error.message}`);
  }
}

function takeInput(socket: WebSocket, protocol: ExecProtocol, command: RunningCommand, request: ExecRequest): void {
  const { stdin } = command.child;
  if (stdin === null) throw new Error("the command's process has no standard input");
  // A command may end without reading its input.
  stdin.on("error", () => socket.resume());
  stdin.on("drain", () => socket.resume());
  if (!request.stdin) stdin.end();
  socket.on("message", (data: RawData) => {
    try {
      const message = decodeClientMessage(
        protocol,
        Buffer.isBuffer(data) ? data : Buffer.concat([data].flat().map(bytes)),
      );
      if (message.kind === "stdin" && request.stdin && stdin.writable && !stdin.write(message.bytes)) socket.pause();
      if (message.kind === "stdin-end") stdin.end();
      if (message.kind === "resize") command.resize(message.columns, message.rows);
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      socket.close(PROTOCOL_ERROR, describeError(error).slice(0, 100));
    }
  });
}

function bytes(part: ArrayBuffer | Buffer): Buffer {
  return Buffer.isBuffer(part) ? part : Buffer.from(part);
}

function passOutput(socket: WebSocket, stream: "stdout" | "stderr", source: Readable | null, wanted: boolean): void {
  source?.on("data", (chunk: Buffer) => {
    if (!wanted || socket.readyState !== socket.OPEN) return;
    socket.send(encodeOutput(stream, chunk), () => {
      if (socket.bufferedAmount < MAX_UNSENT_BYTES) source.resume();
    });
    if (socket.bufferedAmount >= MAX_UNSENT_BYTES) source.pause();
  });
}
