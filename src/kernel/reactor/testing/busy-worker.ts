/** A thread whose connections are never idle, and that ends as its worker data requests: by a bug, by `process.exit`, or not by itself. */
import { parentPort, workerData } from "node:worker_threads";
import type { TcpStream } from "../index.ts";
import { ownPair } from "./own-pair.ts";

function echo(stream: TcpStream): void {
  stream.on("data", (chunk) => stream.write(chunk));
  stream.resume();
}

for (let at = 0; at < 10; at += 1) {
  const [one, other] = await ownPair();
  echo(one);
  echo(other);
  one.write(Buffer.alloc(1000));
}
parentPort?.once("message", () => {
  if (workerData === "bug") throw new Error("a bug of the thread");
  if (workerData === "exit") process.exit(7);
});
parentPort?.postMessage("busy");
