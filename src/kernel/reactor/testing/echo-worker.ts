/** A thread that echoes until it is asked to close. */
import { parentPort } from "node:worker_threads";
import { IpAddress } from "#base/ip";
import { listenTcp, localEndpoint } from "#kernel/socket";
import { closeReactor, TcpListener, TcpStream } from "../index.ts";

function fail(error: Error): never {
  throw error;
}

const fd = listenTcp(IpAddress.parse("127.0.0.1"), 0);
const { port } = localEndpoint(fd);
const listener = new TcpListener(fd, {
  onClient: (client, remote) => {
    const stream = TcpStream.adopt(client, remote);
    stream.on("data", (chunk) => stream.write(chunk));
    stream.resume();
  },
  onFault: fail,
  onError: fail,
});
parentPort?.once("message", () => {
  listener.close();
  closeReactor();
});
parentPort?.postMessage(port);
