import assert from "node:assert/strict";
import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { text } from "node:stream/consumers";
import { after, before, type TestContext, test } from "node:test";
import {
  type Answer,
  callBytes,
  encodeAnswer,
  type HandedCall,
  launcherFor,
  MAX_BODY_BYTES,
  MAX_TEXT_BYTES,
  NOT_MINE,
  parseCall,
  STANDALONE_SUFFIX,
} from "../../src/wire/cni-handover/index.ts";
import { compileLauncher, compilerFor, type Processor } from "./index.ts";

const error = (code: number, msg: string): string => `${JSON.stringify({ cniVersion: "1.1.0", code, msg })}\n`;
/** The errors that the launchers themselves print. */
const FAULTS = {
  lost: error(11, "coild did not answer: it ended, or took longer than 65 s"),
  unavailable: error(
    11,
    "coild cannot be reached, and coil-standalone cannot be run beside this file: run coil-installer again",
  ),
  "no-output": error(5, "standard output is closed, so there is no place for a result; nothing was begun"),
  unwritable: error(
    5,
    "the answer of coild cannot be written to standard output; a DEL removes what the call has made",
  ),
  "too-large": error(7, "environment and network configuration are larger than 4 MiB"),
} as const;
const NO_STANDALONE = error(
  999,
  "the file whose name is that of this one and -standalone cannot be run beside it: run coil-installer again",
);

const PROCESSORS: readonly Processor[] = ["x64", "arm64"];
const QEMU = [process.env["ISTHMUS_QEMU_AARCH64"], "/usr/bin/qemu-aarch64", "/usr/bin/qemu-aarch64-static"].find(
  (path) => path !== undefined && existsSync(path),
);
/** The way in which a launcher of each processor is run on this machine; `undefined` if it cannot be. */
const RUNNERS: Readonly<Record<Processor, readonly string[] | undefined>> = {
  x64: process.arch === "x64" ? [] : undefined,
  arm64: process.arch === "arm64" ? [] : QEMU === undefined ? undefined : [QEMU],
};
function hasCompiler(processor: Processor): boolean {
  return (process.env["PATH"] ?? "").split(delimiter).some((one) => existsSync(join(one, compilerFor(processor))));
}
const skipCompiling = (processor: Processor): string | false =>
  process.arch === processor || hasCompiler(processor) ? false : `package: no ${compilerFor(processor)}`;
const skipRunning = (processor: Processor): string | false =>
  RUNNERS[processor] === undefined ? "package: qemu-user runs it on this processor" : skipCompiling(processor);
/** Stands for the standalone executable: shows what it was given. */
const STANDALONE = '#!/bin/sh\nprintf "standalone %s %s %s:" "$1" "$CNI_COMMAND" "$OTHER"; cat\nexit 3\n';
const OK: Answer = { exitCode: 0, to: "stdout", text: "{}\n" };

let dir = "";
let serial = 0;
/** Compiled once for each processor. */
const launchers = new Map<Processor, Uint8Array>();
function launcherOf(processor: Processor, socket: string): Uint8Array {
  const file = launchers.get(processor) ?? compileLauncher("coil", processor);
  launchers.set(processor, file);
  return launcherFor(file, socket);
}
before(() => {
  dir = mkdtempSync(join(tmpdir(), "isthmus-launcher-"));
});
after(() => rmSync(dir, { recursive: true, force: true }));

/** Registers a test for the launcher of each processor that can be run here. */
function eachTest(name: string, work: (at: ReturnType<typeof bed>, t: TestContext) => Promise<void>): void {
  for (const kind of PROCESSORS)
    test(`launcher (${kind}): ${name}`, { skip: skipRunning(kind) }, (t) => work(bed(kind), t));
}

/** A launcher with a standalone executable beside it, and the socket that it calls. */
function bed(kind: Processor) {
  serial += 1;
  const socket = join(dir, `${serial}.sock`);
  const file = join(dir, `coil${serial}`);
  writeFileSync(file, launcherOf(kind, socket), { mode: 0o755 });
  writeFileSync(`${file}-standalone`, STANDALONE, { mode: 0o755 });
  const runner = RUNNERS[kind] ?? [];
  const start = (env: Readonly<Record<string, string>>, executable = file) => {
    const [command = executable, ...rest] = [...runner, executable, "argument"];
    const child = spawn(command, rest, { env: { PATH: "/usr/bin:/bin", ...env }, stdio: "pipe" });
    child.stdin.on("error", () => undefined);
    return child;
  };
  const run = async (env: Readonly<Record<string, string>>, stdin: string | Uint8Array, executable = file) => {
    const child = start(env, executable);
    child.stdin.end(stdin);
    return outcomeOf(child);
  };
  return { socket, file, runner, start, run };
}
async function outcomeOf(child: ChildProcessWithoutNullStreams) {
  const exit = once(child, "close");
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr)]);
  const [code, signal] = (await exit) as [number | null, string | null];
  return { code, signal, stdout, stderr };
}

/** Serves the socket; `answer` gets each call and its connection. */
async function serve(t: TestContext, path: string, answer: (call: HandedCall, socket: Socket) => void) {
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    const chunks: Buffer[] = [];
    socket.on("data", (chunk) => {
      chunks.push(chunk);
      const bytes = Buffer.concat(chunks);
      if (bytes.length === callBytes(bytes)) answer(parseCall(bytes), socket);
    });
  });
  server.listen(path);
  await once(server, "listening");
  t.after(() => server.close());
}

for (const kind of PROCESSORS) {
  const runner = RUNNERS[kind];
  test(`cleaner (${kind}): the standalone executable gets all of the call but the variables of its runtime`, {
    skip: skipRunning(kind),
  }, async () => {
    const file = join(dir, `vpc-${kind}`);
    writeFileSync(file, compileLauncher("vpc", kind), { mode: 0o755 });
    const env = {
      ...{ PATH: "/usr/bin:/bin", A: "", CNI_COMMAND: "ADD", BUN: "1", XBUN_: "2" },
      ...{ BUN_OPTIONS: "--preload=/evil.js", BUN_BE_BUN: "1", BUN_: "", BUN_INSPECT: "ws://x" },
    };
    const run = (path: string) => {
      const [command = path, ...rest] = [...(runner ?? []), path, "argument"];
      const child = spawn(command, rest, { env, stdio: "pipe" });
      child.stdin.on("error", () => undefined);
      child.stdin.end("input");
      return outcomeOf(child);
    };
    assert.deepEqual(await run(file), { code: 1, signal: null, stdout: NO_STANDALONE, stderr: "" });
    writeFileSync(`${file}-standalone`, '#!/bin/sh\nprintf "%s:" "$1"; cat; /usr/bin/env; exit 3\n', { mode: 0o755 });
    const link = join(dir, `link-${kind}`);
    symlinkSync(file, link);
    for (const path of [file, link]) {
      const { code, stdout, stderr } = await run(path);
      assert.deepEqual([code, stderr], [3, ""]);
      const names = stdout
        .replace(/^argument:input/, "")
        .split("\n")
        .map((line) => line.split("=")[0] ?? "");
      // The shell adds PWD and others.
      assert.deepEqual(names.filter((name) => Object.hasOwn(env, name)).sort(), [
        "A",
        "BUN",
        "CNI_COMMAND",
        "PATH",
        "XBUN_",
      ]);
    }
  });
}

eachTest("the variables of CNI, standard input and the path arrive; answer and exit code come back", async (at, t) => {
  const calls: HandedCall[] = [];
  await serve(t, at.socket, (call, socket) => {
    calls.push(call);
    socket.end(encodeAnswer({ exitCode: 1, to: "stdout", text: '{"code":7}\n' }));
  });
  const env = { CNI_COMMAND: "ADD", SECRET: "password", CNI_ARGS: "A=B;C=é", CN: "", CNI_: "x", XCNI_A: "y" };
  const outcome = await at.run(env, '{"name":"net"}');
  assert.deepEqual(outcome, { code: 1, signal: null, stdout: '{"code":7}\n', stderr: "" });
  const [call] = calls;
  assert.deepEqual({ ...call?.env }, { CNI_COMMAND: "ADD", CNI_ARGS: "A=B;C=é", CNI_: "x" });
  assert.deepEqual([call?.stdin, call?.path, calls.length], ['{"name":"net"}', at.socket, 1]);
});

eachTest("an answer goes where it says, in any pieces, up to 4 MiB; an empty one prints nothing", async (at, t) => {
  const large = "x".repeat(4 * 1024 * 1024);
  const answers = [
    OK,
    { exitCode: 1, to: "stderr", text: "no\n" },
    { ...OK, text: "" },
    { ...OK, text: large },
  ] as const;
  let next = 0;
  await serve(t, at.socket, (_call, socket) => {
    const bytes = encodeAnswer(answers[next] ?? OK);
    next += 1;
    // The first bytes one by one, and the connection is left open: the size ends the answer.
    for (let at = 0; at < 9; at += 1) setTimeout(() => socket.write(bytes.subarray(at, at + 1)), at * 5);
    setTimeout(() => socket.write(bytes.subarray(9)), 60);
  });
  for (const { exitCode, to, text } of answers) {
    const outcome = await at.run({ CNI_COMMAND: "ADD" }, "{}");
    assert.equal(outcome.code, exitCode);
    assert.ok(outcome[to] === text && outcome[to === "stdout" ? "stderr" : "stdout"] === "", outcome.stderr);
  }
});

eachTest("an environment of 100 KiB and a configuration of 3 MiB in small pieces arrive whole", async (at, t) => {
  const calls: HandedCall[] = [];
  await serve(t, at.socket, (call, socket) => {
    calls.push(call);
    socket.end(encodeAnswer(OK));
  });
  const args = "x".repeat(100 * 1024);
  const config = "y".repeat(3 * 1024 * 1024);
  const child = at.start({ CNI_ARGS: args, OTHER: args.slice(0, 1000) });
  for (let from = 0; from < config.length; from += 100_001) child.stdin.write(config.slice(from, from + 100_001));
  child.stdin.end();
  assert.deepEqual(await outcomeOf(child), { code: 0, signal: null, stdout: "{}\n", stderr: "" });
  assert.ok(calls[0]?.env["CNI_ARGS"] === args && calls[0].stdin === config);
});

eachTest(
  "without a coild the standalone executable runs, with arguments, input and the variables of CNI, and no others",
  async (at) => {
    const env = { CNI_COMMAND: "DEL", OTHER: "by which its runtime would run other code", CNI_ARGS: "A=B" };
    for (const stdin of ["", "{}", "z".repeat(1_000_000)]) {
      const { code, stdout } = await at.run(env, stdin);
      assert.deepEqual([code, stdout === `standalone argument DEL :${stdin}`], [3, true]);
    }
  },
);

eachTest(
  "a call that is for another coild, or a server that hangs up before it has read, leads there too",
  async (at, t) => {
    await serve(t, at.socket, (_call, socket) => socket.end(encodeAnswer(NOT_MINE)));
    const { code, stdout } = await at.run({ CNI_COMMAND: "ADD" }, '{"a":1}');
    assert.deepEqual([code, stdout], [3, 'standalone argument ADD :{"a":1}']);
  },
);

eachTest(
  "through a link the standalone executable beside the link is run, else the one beside the launcher",
  async (at) => {
    const link = join(dir, `link${serial}`);
    symlinkSync(at.file, link);
    assert.equal((await at.run({ CNI_COMMAND: "ADD" }, "{}", link)).stdout, "standalone argument ADD :{}");
    assert.match((await at.run({}, "", link)).stdout, /^standalone argument/);
    writeFileSync(`${link}-standalone`, "#!/bin/sh\necho linked\n", { mode: 0o755 });
    assert.equal((await at.run({ CNI_COMMAND: "ADD" }, "", link)).stdout, "linked\n");
    for (const file of [at.file, link]) rmSync(`${file}-standalone`);
    assert.equal((await at.run({ CNI_COMMAND: "ADD" }, "", link)).stdout, FAULTS.unavailable);
  },
);

eachTest("without a variable of CNI the standalone executable runs at once, and has standard input", async (at, t) => {
  await serve(t, at.socket, () => assert.fail("called"));
  const child = at.start({ OTHER: "person" });
  const [first] = (await once(child.stdout, "data")) as [Buffer];
  assert.equal(String(first), "standalone argument  :");
  child.stdin.end("typed");
  assert.equal((await outcomeOf(child)).stdout, "typed");
});

eachTest("without the standalone executable the error says what to do", async (at) => {
  rmSync(`${at.file}-standalone`);
  const outcome = await at.run({ CNI_COMMAND: "ADD" }, "{}");
  assert.deepEqual(outcome, { code: 1, signal: null, stdout: FAULTS.unavailable, stderr: "" });
  assert.equal(JSON.parse(outcome.stdout).code, 11);
});

eachTest("a coild that ends before or in its answer is code 11, and nothing is begun a second time", async (at, t) => {
  const answer = encodeAnswer({ ...OK, text: "x".repeat(100) });
  const pieces = [0, 1, 7, 8, 50, answer.length - 1];
  let next = 0;
  await serve(t, at.socket, (_call, socket) => {
    socket.end(answer.subarray(0, pieces[next]));
    next += 1;
  });
  for (const _piece of pieces) {
    const outcome = await at.run({ CNI_COMMAND: "ADD" }, "{}");
    assert.deepEqual(outcome, { code: 1, signal: null, stdout: FAULTS.lost, stderr: "" });
  }
  assert.equal(JSON.parse(FAULTS.lost).code, 11);
});

eachTest("an answer that announces more than 4 MiB is not an answer", async (at, t) => {
  await serve(t, at.socket, (_call, socket) => {
    const head = Buffer.from(encodeAnswer({ ...OK, text: "" }));
    head.writeUInt32LE(0xffffffff, 4);
    socket.write(head);
    socket.end(Buffer.alloc(5 * 1024 * 1024));
  });
  assert.equal((await at.run({ CNI_COMMAND: "ADD" }, "{}")).stdout, FAULTS.lost);
});

eachTest("more than 4 MiB of configuration is code 7, and coild never sees it", async (at, t) => {
  let calls = 0;
  await serve(t, at.socket, (_call, socket) => {
    calls += 1;
    socket.end(encodeAnswer(OK));
  });
  const variables = "CNI_COMMAND=ADD".length + 1;
  const most = "x".repeat(MAX_BODY_BYTES - variables);
  assert.equal((await at.run({ CNI_COMMAND: "ADD" }, most)).stdout, "{}\n");
  for (const stdin of [`${most}x`, "x".repeat(10 * 1024 * 1024)]) {
    const outcome = await at.run({ CNI_COMMAND: "ADD" }, stdin);
    assert.deepEqual(outcome, { code: 1, signal: null, stdout: FAULTS["too-large"], stderr: "" });
  }
  assert.deepEqual([JSON.parse(FAULTS["too-large"]).code, calls], [7, 1]);
});

eachTest(
  "standard input that stays open concerns coild in nothing, and a killed launcher's connection closes",
  async (at, t) => {
    let connections = 0;
    let closed: Promise<unknown> | undefined;
    await serve(t, at.socket, (_call, socket) => {
      connections += 1;
      closed = once(socket, "close");
    });
    const open = at.start({ CNI_COMMAND: "ADD" });
    open.stdin.write("{");
    const other = at.start({ CNI_COMMAND: "DEL" });
    other.stdin.end("{}");
    while (closed === undefined) await new Promise((resolve) => setTimeout(resolve, 5));
    assert.equal(connections, 1);
    for (const child of [other, open]) {
      const ended = outcomeOf(child);
      child.kill("SIGTERM");
      assert.equal((await ended).signal, "SIGTERM");
    }
    await closed;
  },
);

eachTest("descriptors that are not blocking, or closed, do what blocking ones do", async (at, t) => {
  await serve(t, at.socket, (call, socket) => {
    // More than a pipe holds.
    socket.end(encodeAnswer({ ...OK, text: `${call.stdin}${"x".repeat(300_000)}\n` }));
  });
  const script = `
import fcntl, os, subprocess, sys, time
[ours, theirs], [result, output] = os.pipe(), os.pipe()
for fd in (ours, output): fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)
child = subprocess.Popen(sys.argv[1:], stdin=ours, stdout=output, env={"CNI_COMMAND": "ADD"})
os.close(output)
time.sleep(0.2); os.write(theirs, b"{"); time.sleep(0.1); os.write(theirs, b"}"); os.close(theirs)
time.sleep(0.2)
text = b""
while (more := os.read(result, 65536)): text += more
print(child.wait(), len(text), text[:3])
closed = subprocess.run(["sh", "-c", '"$@" <&-', "sh"] + sys.argv[1:], stdout=subprocess.PIPE, env={"CNI_COMMAND": "ADD"})
print(closed.returncode, len(closed.stdout))
`;
  const child = spawn("python3", ["-c", script, ...at.runner, at.file], { stdio: "pipe" });
  const { stdout, stderr } = await outcomeOf(child);
  assert.deepEqual([stdout, stderr], ["0 300003 b'{}x'\n0 300001\n", ""]);
});

/** Runs a launcher under a filter of system calls: `refused` are the flags of memfd_create that this kernel does not take. */
const FILTERED = `
import ctypes, os, struct, sys
number = {"x86_64": 319, "aarch64": 279}[os.uname().machine]
refused, command = sys.argv[1], sys.argv[2:]
line = lambda code, yes, no, k: struct.pack("HBBI", code, yes, no, k)
load, equal, any_bit, end = 0x20, 0x15, 0x45, 0x06
allow, refuse = line(end, 0, 0, 0x7fff0000), line(end, 0, 0, 0x00050000 | 22)
test = {"0": line(equal, 1, 0, 0), "8": line(any_bit, 1, 0, 8), "all": line(equal, 1, 1, 0)}[refused]
code = line(load, 0, 0, 0) + line(equal, 0, 2, number) + line(load, 0, 0, 24) + test + allow + refuse
buffer = ctypes.create_string_buffer(code, len(code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer)))
libc = ctypes.CDLL(None, use_errno=True)
prctl = lambda *values: libc.prctl(*map(ctypes.c_ulong, values))
assert prctl(38, 1, 0, 0, 0) == 0 and prctl(22, 2, ctypes.addressof(program), 0, 0) == 0, ctypes.get_errno()
os.execv(command[0], command)
`;

eachTest(
  "on a kernel that refuses memory files without a seal, or the seal, the standalone executable gets standard input",
  async (at) => {
    for (const [refused, wanted] of [
      ["0", "standalone argument ADD :{}"],
      ["8", "standalone argument ADD :{}"],
      ["all", FAULTS.unavailable],
    ] as const) {
      const command = ["-c", FILTERED, refused, ...at.runner, at.file, "argument"];
      const child = spawn("python3", command, { env: { PATH: "/usr/bin:/bin", CNI_COMMAND: "ADD" }, stdio: "pipe" });
      child.stdin.end("{}");
      const { stdout, stderr } = await outcomeOf(child);
      assert.deepEqual([stdout, stderr], [wanted, ""], refused);
    }
  },
);

eachTest(
  "with standard output closed nothing is begun, and the error is on standard error, as far as that is open",
  async (at, t) => {
    await serve(t, at.socket, () => assert.fail("called"));
    for (const [closed, told] of [
      [">&-", FAULTS["no-output"]],
      [">&- <&-", FAULTS["no-output"]],
      [">&- 2>&-", ""],
    ] as const) {
      const env = { PATH: "/usr/bin:/bin", CNI_COMMAND: "ADD" };
      const command = ["-c", `"$@" ${closed}`, "sh", ...at.runner, at.file, "argument"];
      const child = spawn("sh", command, { env, stdio: "pipe" });
      child.stdin.on("error", () => undefined);
      child.stdin.end("{}");
      assert.deepEqual(await outcomeOf(child), { code: 1, signal: null, stdout: "", stderr: told }, closed);
    }
  },
);

eachTest("an answer that cannot be written is exit code 1 and an error, never a success", async (at, t) => {
  let calls = 0;
  await serve(t, at.socket, (call, socket) => {
    calls += 1;
    // More than a pipe holds, so that a reader that goes is noticed.
    socket.end(encodeAnswer({ ...OK, text: `${call.stdin}${"x".repeat(300_000)}` }));
  });
  const env = { PATH: "/usr/bin:/bin", CNI_COMMAND: "ADD" };
  for (const script of [
    '"$@" >/dev/full; echo $? >&2',
    '"$@" 1</dev/null; echo $? >&2',
    '"$@" >/dev/full 2>&-; echo $? >&2',
    '("$@"; echo $? >&2) | head -c1 >/dev/null',
  ]) {
    const child = spawn("sh", ["-c", script, "sh", ...at.runner, at.file, "argument"], { env, stdio: "pipe" });
    child.stdin.end("{}");
    const { stderr } = await outcomeOf(child);
    assert.equal(stderr, `${script.includes("2>&-") ? "" : FAULTS.unwritable}1\n`, script);
  }
  assert.equal(calls, 4);
});

for (const kind of PROCESSORS) {
  const skip = skipCompiling(kind);

  test(`launcher (${kind}): of one path the file is always the same, small, and its end is the path`, { skip }, () => {
    const file = Buffer.from(launcherFor(compileLauncher("coil", kind), "/run/coild.sock.call1"));
    assert.deepEqual(file, Buffer.from(launcherFor(compileLauncher("coil", kind), "/run/coild.sock.call1")));
    assert.ok(file.length < 4096, `it has ${file.length} bytes`);
    assert.equal(file.subarray(-108).toString().replace(/\0+$/, ""), "/run/coild.sock.call1");
    assert.ok(compileLauncher("vpc", kind).length < 2048);
  });

  test(`launcher (${kind}): the kernel maps no page of it that is both writable and executable`, { skip }, () => {
    for (const name of ["coil", "vpc"] as const) {
      const file = Buffer.from(compileLauncher(name, kind));
      const segments = Array.from({ length: file.readUInt16LE(56) }, (_, at) => file.readUInt32LE(64 + 56 * at + 4));
      assert.deepEqual(segments, [5, 6, 6], "read and execute; read and write; the stack");
      assert.deepEqual([file.readUInt16LE(16), file.readUInt16LE(60)], [2, 0], "an executable without sections");
    }
  });
}

test("launcher: its texts and sizes are those of the messages", () => {
  const source = ["launcher.h", "coil.c"].map((name) => readFileSync(join(import.meta.dirname, name), "utf8")).join("");
  const number = (name: string): string | undefined => new RegExp(`^#define ${name} (.+)$`, "m").exec(source)?.[1];
  assert.equal(number("SUFFIX"), JSON.stringify(STANDALONE_SUFFIX));
  assert.deepEqual([number("MAX_BODY_BYTES"), MAX_BODY_BYTES], ["(4 * MIB)", 4 * 1024 * 1024]);
  assert.deepEqual([number("MAX_TEXT_BYTES"), MAX_TEXT_BYTES], ["(4 * MIB)", 4 * 1024 * 1024]);
  assert.equal(number("NOT_MINE"), String(NOT_MINE));
});
