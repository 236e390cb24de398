/**
 * Runs one benchmark of bench/, together with its peers.
 *
 *     node tools/bench.ts NAME [--json] [ARGUMENTS]
 */
import { spawn } from "node:child_process";
import { globSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dirname, "..");
const names = globSync("bench/*.ts", { cwd: root })
  .map((file) => file.slice("bench/".length, -".ts".length))
  .filter((name) => !name.includes("."))
  .sort();
const [name = "", ...rest] = process.argv.slice(2);
if (!names.includes(name)) {
  console.error(
    `${name === "" ? "which benchmark?" : `there is no benchmark "${name}";`} there are: ${names.join(" ")}`,
  );
  process.exit(2);
}
const child = spawn(process.execPath, ["--expose-gc", join(root, "bench", `${name}.ts`), ...rest], {
  stdio: "inherit",
});
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => child.kill(signal));
child.once("close", (code) => {
  process.exitCode = code ?? 1;
});
