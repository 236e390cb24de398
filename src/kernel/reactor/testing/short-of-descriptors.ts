/** Forty clients of a process that holds files open until its listener reports a shortage of descriptors; prints the results. */
import { closeSync, openSync } from "node:fs";
import { IpAddress } from "#base/ip";
import { listenTcp, localEndpoint } from "#kernel/socket";
import { connectTcp, TcpListener, TcpStream } from "../index.ts";

const CLIENTS = 40;
const address = IpAddress.parse("127.0.0.1");
const fd = listenTcp(address, 0);
const { port } = localEndpoint(fd);
let fault: string | undefined;
let answered = 0;
const held: number[] = [];
const listener = new TcpListener(fd, {
  onClient: (client, remote) => {
    const stream = TcpStream.adopt(client, remote);
    stream.on("data", (chunk) => stream.end(Buffer.from(chunk)));
    stream.resume();
  },
  onFault: ({ errno }) => {
    fault ??= errno;
    for (const one of held.splice(0)) closeSync(one);
  },
  onError: (error) => {
    throw error;
  },
});
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

/** The number of bytes that came back before the end: one, or none if the client was refused. */
async function connectOnce(): Promise<number> {
  const stream = await connectTcp({ address, port });
  let bytes = 0;
  const ended = new Promise<number>((resolve) => stream.on("close", () => resolve(bytes)));
  stream.on("data", ({ length }) => {
    bytes += length;
  });
  stream.end(Buffer.from("x"));
  stream.resume();
  return await ended;
}
