/**
 * The commands of the pages for operators, as they stand there. A command is a block that is indented by four columns more than its list item, after an
 * empty line.
 */
import assert from "node:assert/strict";
import { existsSync, globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { basename, delimiter, dirname, join, relative } from "node:path";
import { ISTHMUS, start } from "#test/lab";

const ROOT = join(import.meta.dirname, "../..");
const DOCS = join(ROOT, "docs");
/** Programs that `./run test` has unpacked. kubectl of sid first: it speaks WebSockets, as `kubectl exec` to a lab needs. */
const UNPACKED = ["debian-sid/usr/bin", "debian/usr/bin"].map((folder) => join(ROOT, ".state", folder));
const PAGES = "{guides,tutorial}/*.md";

/** The part of a page before its first heading of the second level. */
export const TOP = "(top)";

/** The blocks of commands of each section of a page, by the section's heading. */
export function sectionsOf(page: string): ReadonlyMap<string, readonly string[]> {
  const [file] = globSync(`{guides,tutorial}/${page}`, { cwd: DOCS });
  if (file === undefined) throw new Error(`there is no page ${page}`);
  const sections = new Map<string, string[][]>();
  let section = TOP;
  let before = "";
  let [isInside, isFenced] = [false, false];
  for (const line of readFileSync(join(DOCS, file), "utf8").split("\n")) {
    if (line.trimStart().startsWith("```")) isFenced = !isFenced;
    if (!isFenced && line.startsWith("## ")) section = line.slice(3);
    const isCode: boolean = !isFenced && line.startsWith("    ") && (isInside || before === "");
    const blocks = sections.get(section) ?? [];
    if (isCode && !isInside) blocks.push([]);
    if (isCode) blocks.at(-1)?.push(line);
    if (blocks.length > 0) sections.set(section, blocks);
    isInside = isCode;
    before = line;
  }
  return new Map([...sections].map(([name, blocks]) => [name, blocks.map(dedent)]));
}

/** The blocks of one section. */
export function commandsOf(page: string, section: string): readonly string[] {
  return sectionsOf(page).get(section) ?? [];
}

/** The first fenced block of a language on a page, without its indentation. */
export function fenceOf(page: string, language: string): string {
  const text = readFileSync(join(DOCS, page), "utf8");
  const [, indent = "", block] = new RegExp(`^( *)\`\`\`${language}\\n([^]*?)^ *\`\`\`$`, "m").exec(text) ?? [];
  if (block === undefined) throw new Error(`${page} has no block of ${language}`);
  return block
    .split("\n")
    .map((line) => line.slice(indent.length))
    .join("\n");
}

/** Options of the commands of a page. */
export interface FollowOptions {
  /** Words in place of those of the page: names and addresses of a bed. */
  readonly words?: Readonly<Record<string, string>>;
  /** The kubeconfig, if it is there. */
  readonly kubeconfig?: string;
  /** A command that runs another one, such as in the network namespace of a node. */
  readonly wrap?: readonly string[];
  /** The folder in which they run. Default: the checkout. */
  readonly folder?: string;
  /** A root file system in which they run, by chroot; `folder` is a path in it. */
  readonly root?: string;
  /** Variables of the shell; `undefined` removes one. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** A folder of programs that come before those of the machine. */
  readonly bin?: string;
}

/** Runs commands of a page as one shell that ends at the first failure, with our programs and kubectl at hand; what they have printed. */
export async function follow(scripts: readonly string[], options: FollowOptions = {}): Promise<string> {
  const { words = {}, kubeconfig = "", wrap = [], folder = ROOT, root = "/", env = {}, bin } = options;
  assert.ok(scripts.length > 0 && scripts.every((one) => one !== ""), "the page has these commands");
  let script = scripts.join("\n");
  for (const [word, value] of Object.entries(words)) script = script.replaceAll(word, value);
  const own = mkdtempSync(join(root, tmpdir(), "isthmus-page-"));
  try {
    // A file: a command of a page looks for processes by words that the page itself has.
    const file = join(own, "script");
    writeFileSync(file, `cd ${folder}\n${existsSync(kubeconfig) ? `export KUBECONFIG=${kubeconfig}\n` : ""}${script}`);
    const path = [...(bin === undefined ? [] : [bin]), dirname(ISTHMUS), ...UNPACKED, process.env["PATH"]].join(
      delimiter,
    );
    const argv = [...wrap, ...(root === "/" ? [] : ["chroot", root]), "sh", "-e", join("/", relative(root, file))];
    const { code, stdout, stderr } = await start(argv, {
      env: { PATH: path, HOME: join("/", relative(root, own)), ...env },
      timeoutMs: 200_000,
    }).ended;
    assert.equal(code, 0, `${script}\n${stdout}${stderr}`);
    return stdout;
  } finally {
    rmSync(own, { recursive: true });
  }
}

/** A command that runs another one with these folders in place of those of the machine. */
export function withFolders(places: Readonly<Record<string, string>>): readonly string[] {
  const mounts = Object.entries(places).map(([place, folder]) => `mount --bind ${folder} ${place}`);
  return ["unshare", "--mount", "--propagation=private", "sh", "-ec", `${mounts.join("; ")}; exec "$@"`, "sh"];
}

/** A service of systemd on a machine on which systemd does not run. Disposing ends it, which must be before its folder is removed. */
export interface Unit extends Disposable {
  /** The folder that has `systemctl`. */
  readonly bin: string;
  /** In place of folders of the machine: that of units. */
  readonly places: Readonly<Record<string, string>>;
  /** Returns the log of the service. */
  readonly log: () => string;
}

/**
 * A unit of `deploy`, with an operator's changes to its text. `systemctl enable --now` enables it by Debian's own systemctl, which checks and links it,
 * and starts its ExecStart. A unit of Type=oneshot, which the page has copied, is enabled and started too.
 */
export function unitOf(folder: string, file: string, change: (text: string) => string): Unit {
  const [units, bin, log, pid] = ["units", "bin", "log", "pid"].map((name) => join(folder, name)) as [
    string,
    string,
    string,
    string,
  ];
  for (const one of [units, bin]) mkdirSync(one);
  const text = change(readFileSync(join(ROOT, "deploy", file), "utf8"));
  const name = basename(file, ".service");
  writeFileSync(join(units, basename(file)), text);
  const [, command] = /^ExecStart=\/usr\/local\/bin\/(isthmus .*)$/m.exec(text.replaceAll(/\s*\\\n\s*/g, " ")) ?? [];
  assert.ok(command !== undefined, `${file} starts isthmus`);
  const script = `#!/bin/sh -e
[ "$# $1 $2" = "3 enable --now" ]
SYSTEMD_OFFLINE=1 /bin/systemctl enable "$3"
if [ "$3" != ${name} ]; then
  grep -qx Type=oneshot ${units}/"$3".service
  sed -n 's/^ExecStart=//p' ${units}/"$3".service | sh -e
  exit
fi
setsid ${command.replaceAll("%H", hostname())} >${log} 2>&1 </dev/null &
echo $! >${pid}
`;
  writeFileSync(join(bin, "systemctl"), script, { mode: 0o755 });
  return {
    bin,
    places: { "/etc/systemd/system": units },
    log: () => (existsSync(log) ? readFileSync(log, "utf8") : ""),
    [Symbol.dispose]: () => {
      // At once: its folders go with the test. Without the file the page's commands have failed before they started it.
      if (existsSync(pid)) process.kill(Number(readFileSync(pid, "utf8")), "SIGKILL");
    },
  };
}

/** The names of all pages. */
export function pagesOfOperators(): readonly string[] {
  return globSync(PAGES, { cwd: DOCS })
    .map((file) => basename(file))
    .sort();
}

function dedent(block: readonly string[]): string {
  const indent = Math.min(...block.map((line) => line.length - line.trimStart().length));
  return block.map((line) => line.slice(indent)).join("\n");
}
