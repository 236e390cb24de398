import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { pathToFileURL } from "node:url";
import { SOURCE_NODE } from "#test/node";

const LOADER = new URL("./load-compiled.ts", import.meta.url).href;

/** A program in a folder of its own, and how it is run: each call is a process. */
class Program {
  readonly kept: string;
  readonly #file: string;

  constructor(t: TestContext) {
    const folder = mkdtempSync(join(tmpdir(), "isthmus-load-compiled-"));
    t.after(() => rmSync(folder, { recursive: true, force: true }));
    this.kept = join(folder, "kept");
    this.#file = join(folder, "program-x.cjs");
    mkdirSync(this.kept);
  }

  /** `hash` stands for one of the text. */
  write(answer: string, hash: string): void {
    const functions = `function answer() { return ${JSON.stringify(answer)}; } module.exports = { main: async () => answer() };`;
    writeFileSync(this.#file, `(function (exports, require, module, isthmusUrl) { ${functions} })\n// ${hash}\n`);
  }

  /** Runs the program, and returns its output. */
  run(env: Readonly<Record<string, string>> = {}, folder = JSON.stringify(this.kept)): string {
    const script = `
      const { loadCompiled } = await import(${JSON.stringify(LOADER)});
      const { main } = loadCompiled(new URL(${JSON.stringify(pathToFileURL(this.#file).href)}), ${folder});
      process.stdout.write(await main());`;
    const [node, ...words] = SOURCE_NODE;
    return execFileSync(node, [...words, "--input-type=module", "-e", script], {
      encoding: "utf8",
      env: { ...process.env, ...env },
    });
  }

  files(): string[] {
    return readdirSync(this.kept);
  }
}

const [ONE, OTHER] = ["0123456789abcdef", "fedcba9876543210"] as const;

test("loadCompiled: the first start keeps what it has compiled, the next takes it and writes nothing", (t) => {
  const program = new Program(t);
  program.write("yes", ONE);
  assert.equal(program.run(), "yes");
  const [file = ""] = program.files();
  assert.match(file, /^program-x\.cjs-0123456789abcdef-[0-9a-f]+$/);
  const before = readFileSync(join(program.kept, file));
  assert.equal(program.run(), "yes");
  assert.deepEqual(program.files(), [file]);
  assert.deepEqual(readFileSync(join(program.kept, file)), before);
});

test("loadCompiled: code of another text of the same length is not taken", (t) => {
  const program = new Program(t);
  program.write("yes", ONE);
  program.run();
  program.write("no!", OTHER);
  assert.equal(program.run(), "no!");
  assert.equal(program.files().length, 2);
});

test("loadCompiled: what is no compiled code is replaced", (t) => {
  const program = new Program(t);
  program.write("yes", ONE);
  program.run();
  const [file = ""] = program.files();
  writeFileSync(join(program.kept, file), "nothing of the kind");
  assert.equal(program.run(), "yes");
  assert.ok(readFileSync(join(program.kept, file)).length > 100);
});

test("loadCompiled: without a folder, or with one that is not there, a program runs and nothing is written", (t) => {
  const program = new Program(t);
  program.write("yes", ONE);
  rmSync(program.kept, { recursive: true });
  assert.equal(program.run(), "yes");
  assert.equal(program.run({}, "undefined"), "yes");
  assert.throws(() => program.files(), { code: "ENOENT" });
});

test("loadCompiled: ahead, the same is written each time, for starts that are not", (t) => {
  const program = new Program(t);
  program.write("yes", ONE);
  const written = [1, 2].map(() => {
    program.run({ ISTHMUS_COMPILES_AHEAD: "1" });
    const [file = ""] = program.files();
    const bytes = readFileSync(join(program.kept, file));
    program.run();
    assert.deepEqual([program.files(), readFileSync(join(program.kept, file))], [[file], bytes]);
    rmSync(join(program.kept, file));
    return bytes.length;
  });
  assert.equal(written[0], written[1]);
});

test("loadCompiled: a program that is not there is a missing module", (t) => {
  const program = new Program(t);
  assert.throws(() => program.run(), /MODULE_NOT_FOUND/);
});

test("loadCompiled: under umask 0 what is written is the user's alone", (t) => {
  const program = new Program(t);
  program.write("yes", ONE);
  const mask = process.umask(0);
  try {
    program.run();
  } finally {
    process.umask(mask);
  }
  const [file = ""] = program.files();
  assert.equal(statSync(join(program.kept, file)).mode & 0o777, 0o600);
});

test("loadCompiled: code that others may have changed is not taken: in a file or a folder that they may write", (t) => {
  const program = new Program(t);
  program.write("yes", ONE);
  program.run();
  const [name = ""] = program.files();
  const file = join(program.kept, name);
  const before = statSync(file).ino;
  const isTaken = (): boolean => {
    assert.equal(program.run(), "yes");
    return statSync(file).ino === before;
  };
  assert.equal(isTaken(), true);
  for (const mode of [0o777, 0o775]) {
    chmodSync(program.kept, mode);
    // Nothing is written there either.
    writeFileSync(file, "nothing of the kind");
    assert.equal(program.run(), "yes");
    assert.equal(readFileSync(file, "utf8"), "nothing of the kind");
  }
  chmodSync(program.kept, 0o755);
  for (const mode of [0o666, 0o620]) {
    program.run();
    chmodSync(file, mode);
    const { ino } = statSync(file);
    assert.equal(program.run(), "yes");
    assert.notEqual(statSync(file).ino, ino);
    assert.equal(statSync(file).mode & 0o777, 0o600);
  }
});
