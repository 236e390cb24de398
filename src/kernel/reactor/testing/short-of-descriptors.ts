/** Forty clients of a process that has descriptors for fewer, since it holds files open until it is told that it is short; prints what came. */
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
// Everything that is made later than at the first connection has its descriptor by then.
await connectOnce();
for (let isFree = true; isFree; ) {
  try {
    held.push(openSync("/dev/null", "r"));
  } catch {
    isFree = false;
  }
}
// For one client's own end; the other end finds none.
closeSync(held.pop() ?? -1);
for (let at = 0; at < CLIENTS; at += 1) {
  await connectOnce();
  answered += 1;
}
listener.close();
process.stdout.write(JSON.stringify({ fault, answered }));

async function connectOnce(): Promise<void> {
  const stream = await connectTcp({ address, port });
  const ended = new Promise<void>((resolve) => stream.on("close", resolve));
  stream.on("data", () => undefined);
  stream.end(Buffer.from("x"));
  stream.resume();
  await ended;
}
