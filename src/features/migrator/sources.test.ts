import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { MigratorError } from "./errors.ts";
import { parseExport } from "./export-file.ts";
import { type EtcdStore, readSnapshot } from "./snapshot.ts";

const base64 = (text: string): string => Buffer.from(text).toString("base64");
const textOf = ({ key, value }: { key: string; value: Uint8Array }): string => `${key}=${Buffer.from(value)}`;

test("parseExport: the output of etcdctl, where empty values and `more` are left out", () => {
  const text = JSON.stringify({
    header: { cluster_id: 14841639068965178418n.toString(), revision: 7 },
    kvs: [
      { key: base64("/coil/a"), create_revision: 2, mod_revision: 3, version: 1, value: base64("{}") },
      { key: base64("/coil/subnet/10.0.0.0"), create_revision: 2, mod_revision: 3, version: 1 },
    ],
    count: 2,
  });
  assert.deepEqual(parseExport(text).map(textOf), ["/coil/a={}", "/coil/subnet/10.0.0.0="]);
  assert.deepEqual(parseExport('{"header":{}}'), []);
});

test("parseExport: faults say what is wrong and how an export is made", () => {
  const cases: readonly (readonly [string, RegExp])[] = [
    ["/coil/a\n{}", /^the export is not JSON: .*make the export with `etcdctl get/],
    ["[]", /^the export is not what etcdctl writes: /],
    ['{"kvs":[{"value":""}]}', /kvs\.0\.key: /],
    ['{"kvs":[{"key":"%"}]}', /kvs\.0\.key: not base64/],
    ['{"kvs":[{"key":"YQ"}]}', /kvs\.0\.key: not base64/],
    ['{"kvs":[],"more":true,"count":9}', /^the export has only 0 of 9 keys; .*without --limit$/],
  ];
  for (const [text, pattern] of cases)
    assert.throws(() => parseExport(text), { code: "invalid-export", message: pattern });
});

test("parseExport: arbitrary text is an export or a MigratorError", () => {
  const text = fc.oneof(
    fc.string(),
    fc.json(),
    fc.jsonValue().map((kvs) => JSON.stringify({ kvs })),
  );
  fc.assert(
    fc.property(text, (one) => {
      try {
        parseExport(one);
      } catch (error) {
        assert.ok(error instanceof MigratorError, String(error));
      }
    }),
    { numRuns: 2000 },
  );
});

/** A store whose keys are written between the pages, and that compacts. */
class FakeStore implements EtcdStore {
  readonly #history: Map<string, string>[] = [];
  /** Pages after which the next revision is made and older ones are compacted; each once. */
  readonly compactAfter: Set<number>;
  pages = 0;
  #oldest = 1;

  constructor(first: Iterable<readonly [string, string]>, compactAfter: Iterable<number> = []) {
    this.#history.push(new Map(first));
    this.compactAfter = new Set(compactAfter);
  }

  write(key: string, value: string): void {
    this.#history.push(new Map(this.#history.at(-1)).set(key, value));
  }

  async range({ key, rangeEnd, limit, revision }: Parameters<EtcdStore["range"]>[0]): ReturnType<EtcdStore["range"]> {
    const newest = this.#history.length;
    const at = revision === 0 ? newest : revision;
    if (at < this.#oldest)
      throw new MigratorError("compacted", "etcdserver: mvcc: required revision has been compacted");
    const found = [...(this.#history[at - 1] ?? [])]
      .map(([one, value]) => ({ key: Buffer.from(one), value: Buffer.from(value) }))
      .filter((one) => Buffer.compare(one.key, key) >= 0 && Buffer.compare(one.key, rangeEnd) < 0)
      .sort((a, b) => Buffer.compare(a.key, b.key));
    this.pages += 1;
    this.write("/coil/changed", `${this.pages}`);
    if (this.compactAfter.delete(this.pages)) this.#oldest = this.#history.length;
    return { revision: newest, kvs: found.slice(0, limit), more: found.length > limit };
  }
}

const options = { signal: AbortSignal.timeout(60_000) };
const many = (count: number): [string, string][] => Array.from({ length: count }, (_, at) => [`/coil/k${at}`, `${at}`]);

test("readSnapshot: all pages are of one revision, and only of the prefix", async () => {
  const keys = fc.array(
    fc.tuple(fc.constantFrom("/coil/", "/coil", "/coil0", "/other/"), fc.string({ maxLength: 3 })),
    { maxLength: 30 },
  );
  await fc.assert(
    fc.asyncProperty(keys, fc.integer({ min: 1, max: 7 }), async (names, pageSize) => {
      const all = new Map(names.map(([prefix, rest]) => [prefix + rest, rest] as const));
      const store = new FakeStore([...all, ["/coil/changed", "0"]]);
      const entries = await readSnapshot(store, "/coil/", { ...options, pageSize });
      const wanted = [...all, ["/coil/changed", "0"] as const].filter(([key]) => key.startsWith("/coil/"));
      assert.deepEqual(new Set(entries.map(textOf)), new Set(wanted.map(([key, value]) => `${key}=${value}`)));
      assert.equal(entries.length, new Set(wanted.map(([key]) => key)).size);
    }),
    { numRuns: 200 },
  );
});

test("readSnapshot: begins anew when etcd compacts the revision, and gives up when it always does", async () => {
  const store = new FakeStore(many(50), [2, 4]);
  const entries = await readSnapshot(store, "/coil/", { ...options, pageSize: 20 });
  assert.equal(entries.length, 51);
  assert.equal(entries.filter(({ key }) => key === "/coil/changed").map(textOf)[0], "/coil/changed=4");
  const always = new FakeStore(
    many(50),
    Array.from({ length: 99 }, (_, at) => at + 1),
  );
  await assert.rejects(readSnapshot(always, "/coil/", { ...options, pageSize: 20 }), { code: "compacted" });
});

test("readSnapshot: an answer that would never end, or that was not asked for, is refused", async () => {
  const answer = (kvs: readonly string[]): EtcdStore => ({
    range: async () => ({
      revision: 1,
      more: true,
      kvs: kvs.map((key) => ({ key: Buffer.from(key), value: Buffer.alloc(0) })),
    }),
  });
  for (const kvs of [[], ["/coil/a", "/coil/a"], ["/coil/b", "/coil/a"], ["/other"]])
    await assert.rejects(readSnapshot(answer(kvs), "/coil/", options), { code: "etcd-refused" }, kvs.join());
});
