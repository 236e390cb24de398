/** A program whose listeners throw, and that survives this: prints the events of the other listeners, and the thrown errors. */
import { ownPair, ticks } from "./own-pair.ts";

const heard: string[] = [];
process.on("uncaughtException", ({ message }) => heard.push(message));
const [[one, second], [third, fourth]] = [await ownPair(), await ownPair()];
const streams = { one, second, third, fourth };
for (const [name, stream] of Object.entries(streams)) {
  for (const event of ["finish", "close"] as const) stream.on(event, () => heard.push(`${name} ${event}`));
}
one.on("finish", () => {
  throw new Error("thrown of a finish");
});
// This runs at the end of a tick in which a listener has thrown.
fourth.on("data", () => {
  second.destroy();
  throw new Error("thrown of data");
});
fourth.resume();
one.end();
third.end(Buffer.from("x"));
await ticks(10);
for (const stream of Object.values(streams)) stream.destroy();
await ticks(10);
process.stdout.write(heard.join("\n"));
