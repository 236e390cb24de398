import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { NodeFacts } from "#features/suite-report";
import { optional } from "../../shared/suite/index.ts";

/** Folders of settings, the one that wins first (networkd.conf(5)). */
const FOLDERS = ["/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd"];
/** The name of the process, as the kernel has it: at most 15 bytes. */
const COMM = "systemd-network";
const MAX_FILES = 100;

/** The settings that let systemd-networkd remove what others have made; by default all are on (systemd 249). */
const SETTINGS = { ManageForeignRoutingPolicyRules: "rules", ManageForeignRoutes: "routes" } as const;
type Removes = { readonly [Key in (typeof SETTINGS)[keyof typeof SETTINGS]]: boolean };

/** Reads what systemd-networkd removes of others; `undefined` where it does not run. Its files are read as it sees them, also from a container. */
export function readNetworkd(): NodeFacts["networkd"] {
  const pid = readdirSync("/proc").find(
    (name) => /^\d+$/.test(name) && optional(() => readFileSync(`/proc/${name}/comm`, "utf8"))?.trimEnd() === COMM,
  );
  if (pid === undefined) return undefined;
  const root = `/proc/${pid}/root`;
  if (!existsSync(`${root}/usr`)) return { fault: `the files of systemd-networkd (process ${pid}) may not be read` };
  return { value: networkdRemoves(networkdFiles(root)) };
}

/** The texts of the settings below a root, in the order in which they are read: later ones win. A drop-in hides one of the same name in a later folder. */
export function networkdFiles(root: string): readonly string[] {
  const read = (path: string): string | undefined => optional(() => readFileSync(join(root, path), "utf8"));
  const main = FOLDERS.map((folder) => read(`${folder}/networkd.conf`)).find((text) => text !== undefined);
  const dropIns = new Map<string, string>();
  for (const folder of FOLDERS.map((one) => `${one}/networkd.conf.d`))
    for (const name of optional(() => readdirSync(join(root, folder))) ?? [])
      if (name.endsWith(".conf") && !dropIns.has(name) && dropIns.size < MAX_FILES)
        dropIns.set(name, `${folder}/${name}`);
  const texts = [...dropIns].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, path]) => read(path));
  return [main, ...texts].filter((text) => text !== undefined);
}

/** Returns the objects that systemd-networkd removes by these settings. Pure; any text may be given. */
export function networkdRemoves(texts: readonly string[]): Removes {
  const removes = { rules: true, routes: true };
  for (const text of texts) {
    let section = "";
    for (const line of text
      .replaceAll("\\\n", " ")
      .split("\n")
      .map((one) => one.trim())) {
      if (line.startsWith("[") && line.endsWith("]")) section = line.slice(1, -1);
      if (section !== "Network" || line.startsWith("#") || line.startsWith(";")) continue;
      const at = line.indexOf("=");
      const key = line.slice(0, Math.max(0, at)).trim();
      const value = booleanOf(line.slice(at + 1).trim());
      if (at > 0 && Object.hasOwn(SETTINGS, key) && value !== undefined)
        removes[SETTINGS[key as keyof typeof SETTINGS]] = value;
    }
  }
  return removes;
}

/** A boolean as systemd reads it; `undefined` for what it ignores. */
function booleanOf(text: string): boolean | undefined {
  const word = text.toLowerCase();
  if (["1", "yes", "y", "true", "t", "on"].includes(word)) return true;
  return ["0", "no", "n", "false", "f", "off"].includes(word) ? false : undefined;
}
