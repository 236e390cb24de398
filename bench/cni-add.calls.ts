/**
 * Calls of a CNI plugin in batches. A batch is one bash in the plugin's network namespace, because a shell needs far less CPU time than
 * Node to start and time a process: `EPOCHREALTIME` around each call, `times` for the CPU.
 */
import { spawn } from "node:child_process";
import { inNetNs, openNetNs } from "#kernel/netns";

/** A plugin with its configuration, in the namespace of its node. */
export interface Side {
  readonly executable: string;
  /** File with the network configuration. */
  readonly config: string;
  readonly node: string;
  /** Paths of the pods' namespaces. */
  readonly pods: readonly string[];
  /** The `CNI_ARGS` of the pod with the given number. */
  readonly args: (pod: number) => string;
}

/** Sequential, sequential with the executables dropped from the page cache before each call, or all at once. */
export type How = "sequential" | "cold" | "parallel";

/** The times of one kind of call. `walls` has an entry for each call; `cpuMs` is of the plugin's processes together. */
export interface Batch {
  readonly walls: readonly number[];
  /** The time from the first start to the last end, in milliseconds. */
  readonly totalMs: number;
  readonly cpuMs: number;
}

const SCRIPT = `
call() { # COMMAND POD ID: one call, timed
  local from=$EPOCHREALTIME
  if ! CNI_COMMAND=$1 CNI_CONTAINERID=$3 CNI_NETNS=\${PODS[$2]} CNI_ARGS=\${ARGS[$2]} "$PLUGIN" <"$CONFIG" >"$OUT.$2"; then
    echo "failed $1 of $3: $(cat "$OUT.$2")" >&2
    return 1
  fi
  echo "call $1 $from $EPOCHREALTIME"
}
cpu() { echo "cpu $1"; times; }
sequential() { # COUNT [PREPARE]: each ADD and then its DEL, in the first pod
  cpu start
  for ((at = 0; at < $1; at++)); do
    $2
    call ADD 0 "$ID-$at" || exit 1
    cpu ADD
    $2
    call DEL 0 "$ID-$at" || exit 1
    cpu DEL
  done
}
drop() { # the executables' pages out of the cache: posix_fadvise(2) of the whole file
  local file
  for file in "\${CNI_PATH}"/*; do dd if="$file" iflag=nocache count=0 status=none || exit 1; done
}
cold() { sequential "$1" drop; } # CPU is not comparable: it has that of dd
together() { # COUNT COMMAND: one call in each pod at once
  local from=$EPOCHREALTIME
  for ((at = 0; at < $1; at++)); do call "$2" $at "$ID-$at" & running+=($!); done
  for one in "\${running[@]}"; do wait $one || exit 1; done
  echo "total $2 $from $EPOCHREALTIME"
  running=()
}
parallel() { # COUNT: all ADDs, then all DELs
  cpu start
  together $1 ADD
  cpu ADD
  together $1 DEL
  cpu DEL
}
`;

type Command = "ADD" | "DEL";

/** Runs `count` ADDs and DELs, one after the other or at once. Rejects when one fails. */
export async function runBatch(
  side: Side,
  how: How,
  count: number,
  options: { readonly out: string; readonly id: string; readonly signal: AbortSignal },
): Promise<Record<Command, Batch>> {
  return parseBatch(await bash(side, `${how} ${count}`, options));
}

/** Makes one call; an ADD needs a later DEL of the same id. Resolves to its time in milliseconds. */
export async function runCall(
  side: Side,
  command: Command | "VERSION",
  options: { readonly out: string; readonly id: string; readonly signal: AbortSignal },
): Promise<number> {
  const text = await bash(side, `call ${command} 0 "$ID"`, options);
  return wallOf(text.split("\n")[0] ?? "");
}

async function bash(
  side: Side,
  command: string,
  { out, id, signal }: { readonly out: string; readonly id: string; readonly signal: AbortSignal },
): Promise<string> {
  signal.throwIfAborted();
  const quoted = (values: readonly string[]): string => values.map((value) => `'${value}'`).join(" ");
  const script = [
    SCRIPT,
    `PODS=(${quoted(side.pods)})`,
    `ARGS=(${quoted(side.pods.map((_, pod) => side.args(pod)))})`,
    `PLUGIN='${side.executable}' CONFIG='${side.config}' OUT='${out}' ID='${id}'`,
    command,
  ].join("\n");
  const env = {
    PATH: "/usr/sbin:/usr/bin:/sbin:/bin",
    LC_ALL: "C",
    CNI_IFNAME: "eth0",
    CNI_PATH: side.executable.slice(0, side.executable.lastIndexOf("/")),
  };
  using netns = openNetNs({ name: side.node });
  // The shell has its own process group, so that an interrupt ends the plugins too.
  const child = inNetNs(netns, () =>
    spawn("/bin/bash", ["-c", script], { env, stdio: ["ignore", "pipe", "pipe"], detached: true }),
  );
  const kill = (): void => {
    if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, "SIGKILL");
  };
  signal.addEventListener("abort", kill, { once: true });
  const output = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const) {
    child[name].setEncoding("utf8").on("data", (text: string) => {
      output[name] += text;
    });
  }
  const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
  signal.removeEventListener("abort", kill);
  signal.throwIfAborted();
  if (code !== 0) throw new Error(`${side.executable}: ${output.stderr.trim().slice(0, 2000)}`);
  return output.stdout;
}

function parseBatch(text: string): Record<Command, Batch> {
  const walls: Record<Command, number[]> = { ADD: [], DEL: [] };
  const total: Record<Command, number> = { ADD: Number.NaN, DEL: Number.NaN };
  const cpuMs: Record<Command, number> = { ADD: 0, DEL: 0 };
  let before = 0;
  const lines = text.split("\n");
  for (const [at, line] of lines.entries()) {
    const [word = "", of = ""] = line.split(" ");
    const command: Command = of === "DEL" ? "DEL" : "ADD";
    if (word === "call") walls[command].push(wallOf(line));
    if (word === "total") total[command] = wallOf(line);
    if (word !== "cpu") continue;
    // bash's `times` prints a line for the shell and a line for its ended children.
    const now = cpuOfTimes(lines[at + 2] ?? "");
    if (of !== "start") cpuMs[command] += now - before;
    before = now;
  }
  const batch = (command: Command): Batch => ({
    walls: walls[command],
    totalMs: total[command],
    cpuMs: cpuMs[command],
  });
  return { ADD: batch("ADD"), DEL: batch("DEL") };
}

function wallOf(line: string): number {
  const [, , from, to] = line.split(" ");
  return (Number(to) - Number(from)) * 1000;
}

/** `0m1.234s 0m0.567s`, user and system, in milliseconds. */
function cpuOfTimes(line: string): number {
  const parts = [...line.matchAll(/(\d+)m([\d.]+)s/g)];
  return parts.reduce((sum, [, minutes, seconds]) => sum + (Number(minutes) * 60 + Number(seconds)) * 1000, 0);
}
