/**
 * Free ports of this machine's loopback for programs that cannot choose one themselves.
 *
 * Owns: a file for each port that was given out, so that no other process of the tests is given it; they go with the process.
 */
import { once } from "node:events";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Neither reserved nor ephemeral: a port of the kernel's range can become that of any connection before the program listens. */
const [FIRST, LAST] = [12_000, 31_999] as const;
const FOLDER = join(tmpdir(), "isthmus-ports");
const own: string[] = [];

/** A port of 127.0.0.1 where nothing listens, from 12000 to 31999; nobody else is given it while this process lives. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = FIRST + Math.floor(Math.random() * (LAST - FIRST + 1));
    if (!take(port)) continue;
    if (await isFree(port)) return port;
  }
}

function take(port: number): boolean {
  const file = join(FOLDER, String(port));
  if (own.length === 0) {
    mkdirSync(FOLDER, { recursive: true });
    removeStale();
    process.once("exit", () => {
      for (const one of own) rmSync(one, { force: true });
    });
  }
  try {
    writeFileSync(file, String(process.pid), { flag: "wx" });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  }
  own.push(file);
  return true;
}

/** Files of processes that were killed. */
function removeStale(): void {
  for (const name of readdirSync(FOLDER)) {
    const file = join(FOLDER, name);
    try {
      process.kill(Number(readFileSync(file, "utf8")), 0);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      // Another process may have removed it meanwhile.
      if (code === "ESRCH") rmSync(file, { force: true });
      else if (code !== "ENOENT" && code !== "EPERM") throw error;
    }
  }
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer().listen(port, "127.0.0.1");
  try {
    await once(server, "listening");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EADDRINUSE") return false;
    throw error;
  }
  server.close();
  await once(server, "close");
  return true;
}
