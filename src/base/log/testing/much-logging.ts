/** Logs more than anybody reads, tells on standard output how much waits, and ends when its standard input does. */
import { createLogger } from "../index.ts";

const log = createLogger({ name: "much" });
for (let at = 0; at < 40_000; at += 1) log.info("a line", { at, text: "x".repeat(200) });
process.stdout.write(`${process.stderr.writableLength}\n`);
process.stdin.once("end", () => log.info("the last line")).resume();
