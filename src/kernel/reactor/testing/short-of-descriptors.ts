/**
 * Forty clients of a process that holds files open until its listener reports a shortage of descriptors; prints the results. The argument is
 * `tcp`, or `unix` for clients of a UNIX socket.
 */
import { closeSync, openSync } from "node:fs";
import { IpAddress } from "#base/ip";
import type { KernelError } from "#kernel/errors";
import { type Endpoint, listenTcp, localEndpoint } from "#kernel/socket";
import { connectTcp, connectUnix, TcpListener, TcpStream, UnixListener, UnixStream } from "../index.ts";
import type { StreamSocket } from "../stream-socket.ts";
import { freshPath } from "./own-pair.ts";

const CLIENTS = 40;
let fault: string | undefined;
let answered = 0;
const held: number[] = [];
const faults = {
  onFault: ({ errno }: KernelError) => {
    fault ??= errno;
    for (const one of held.splice(0)) closeSync(one);
  },
  onError: (error: KernelError) => {
    throw error;
  },
};
const { listener, dial } = process.argv[2] === "unix" ? overUnix() : overTcp();
// Descriptors that are opened lazily, at the first connection, are open after this.
await connectOnce();
for (let isFree = true; isFree; ) {
  try {
    held.push(openSync("/dev/null", "r"));
  } catch {
    isFree = false;
  }
}
// This descriptor is for the client's end; the listener finds no free descriptor.
closeSync(held.pop() ?? -1);
for (let at = 0; at < CLIENTS; at += 1) answered += await connectOnce();
listener.close();
process.stdout.write(JSON.stringify({ fault, answered }));

function serve(stream: StreamSocket): void {
  stream.on("data", (chunk) => stream.end(Buffer.from(chunk)));
  stream.resume();
}

interface Place {
  readonly listener: { close(): void };
  dial(): StreamSocket | Promise<StreamSocket>;
}

function overTcp(): Place {
  const address = IpAddress.parse("127.0.0.1");
  const fd = listenTcp(address, 0);
  const { port } = localEndpoint(fd);
  const onClient = (client: number, remote: Endpoint): void => serve(TcpStream.adopt(client, remote));
  return {
    listener: new TcpListener(fd, { ...faults, onClient }),
    dial: () => connectTcp({ address, port }),
  };
}

function overUnix(): Place {
  const onClient = (client: number): void => serve(UnixStream.adopt(client));
  const made = UnixListener.listen(freshPath(), { umask: 0o077 }, { ...faults, onClient });
  return { listener: made, dial: () => connectUnix(made.path) };
}

/** The number of bytes that came back before the end: one, or none if the client was refused. */
async function connectOnce(): Promise<number> {
  const stream = await dial();
  let bytes = 0;
  const ended = new Promise<number>((resolve) => stream.on("close", () => resolve(bytes)));
  stream.on("data", ({ length }) => {
    bytes += length;
  });
  stream.end(Buffer.from("x"));
  stream.resume();
  return await ended;
}
