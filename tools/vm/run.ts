/**
 * Runs `test/vm` in one QEMU guest with Debian's 6.1 kernel, which has what this machine's may lack: fou, ipip,
 * ip6_tunnel, dummy. The guest sees this machine's root read-only. Prints node:test's report; exits as it did.
 *
 *     node tools/vm/run.ts [--timeout SECONDS] [PATTERN…]
 */
import { spawn } from "node:child_process";
import { accessSync, existsSync, mkdirSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { guestScript } from "./guest.ts";
import { SHARES, writeInitramfs } from "./initramfs.ts";
import { type KernelTree, kernelTree, PACKAGES } from "./kernel-tree.ts";

const checkout = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const state = join(checkout, ".state/vm");
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { timeout: { type: "string", default: "300" } },
});

/**
 * The guest's clock counts its own instructions, 2 ns for each, and real time only while it has nothing to do (QEMU, docs/devel/tcg-icount.rst). So a guest that
 * gets a processor seldom is one whose work takes no longer, by its clock: what its tests wait for within seconds comes within them on any machine.
 */
const CLOCK = ["-icount", "shift=1,sleep=on"] as const;
/** The signals that end the guest, which is in a session of its own and gets none of a terminal. */
const ENDS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
/**
 * The nice value of the guest's session. A kernel with autogroups (sched(7)) divides the processors equally between sessions, whatever the policies of their
 * processes are.
 */
const LAST_SESSION = "19";

process.exitCode = await main(
  Number(values.timeout),
  positionals.length > 0 ? positionals : ["test/vm/**/*.vm.test.ts"],
);

async function main(timeoutSeconds: number, patterns: readonly string[]): Promise<number> {
  for (const tool of ["/usr/bin/qemu-system-x86_64", "/bin/busybox", "/sbin/depmod", "/bin/cpio"]) {
    if (existsSync(tool)) continue;
    console.error(`vm: ${tool} is missing: install ${PACKAGES.join(" ")}`);
    return 2;
  }
  const kernel = kernelTree(state);
  const run = join(state, `run-${process.pid}`);
  mkdirSync(run, { recursive: true });
  try {
    writeInitramfs(join(run, "initramfs.gz"), kernel, checkout);
    mkdirSync(join(run, "work"));
    writeFileSync(join(run, "work/guest.sh"), guestScript(checkout, process.execPath, patterns));
    const ended = await boot(kernel, run, timeoutSeconds * 1000);
    return report(run, ended, timeoutSeconds);
  } finally {
    rmSync(run, { recursive: true, force: true });
  }
}

/** Starts the guest; false if it had to be killed. */
function boot(kernel: KernelTree, run: string, timeoutMs: number): Promise<boolean> {
  const share = (tag: string, path: string, readonly: boolean): string[] => [
    "-virtfs",
    `local,path=${path},mount_tag=${tag},security_model=none,multidevs=remap${readonly ? ",readonly=on" : ""}`,
  ];
  accessSync(kernel.image);
  // One processor: with two, 3 of 38 test files that call the kernel died under TCG (SIGSEGV, or a failed check on V8's
  // code pages), with one none of 24. The cause is not known.
  const child = spawn(
    "qemu-system-x86_64",
    [
      ...["-machine", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "2048", ...CLOCK],
      ...["-nodefaults", "-nographic", "-no-reboot", "-serial", "stdio"],
      ...["-kernel", kernel.image, "-initrd", join(run, "initramfs.gz")],
      ...["-append", "console=ttyS0 quiet panic=-1 mitigations=off"],
      ...share(SHARES.root, "/", true),
      ...share(SHARES.modules, kernel.modules, true),
      ...share(SHARES.checkout, checkout, true),
      ...share(SHARES.work, join(run, "work"), false),
    ],
    { stdio: ["ignore", openSync(join(run, "console"), "w"), "inherit"], detached: true },
  );
  const autogroup = `/proc/${child.pid}/autogroup`;
  if (existsSync(autogroup)) writeFileSync(autogroup, LAST_SESSION);
  return new Promise((resolve, reject) => {
    let ended = true;
    const timer = setTimeout(() => {
      ended = false;
      child.kill("SIGKILL");
    }, timeoutMs);
    const stop = (): void => {
      child.kill("SIGKILL");
    };
    for (const signal of ENDS) process.once(signal, stop);
    child.once("error", reject);
    child.once("exit", () => {
      clearTimeout(timer);
      for (const signal of ENDS) process.off(signal, stop);
      resolve(ended);
    });
  });
}

function report(run: string, ended: boolean, timeoutSeconds: number): number {
  const read = (file: string): string => (existsSync(join(run, file)) ? readFileSync(join(run, file), "utf8") : "");
  process.stdout.write(read("work/output"));
  const exit = read("work/exit").trim();
  if (exit === "0") return 0;
  process.stderr.write(read("work/stderr"));
  // A shell's code of a process that a signal has ended.
  if (Number(exit) > 128) console.error(`vm: signal ${Number(exit) - 128} ended the tests' process`);
  if (exit !== "") return Number(exit);
  console.error(
    ended
      ? "vm: the guest ended without a result; its console:"
      : `vm: the tests were not done within ${timeoutSeconds} s; the guest's console:`,
  );
  process.stderr.write(read("console"));
  return 1;
}
